package netbound

import (
	"os"
	"sync"
	"time"
)

// turn measures how long work that is ready waits for its turn. A byte takes the way of a
// request: through the system's list of what is ready, and the line of goroutines. CPU use
// does not tell how long that line is, nor do the runtime's latencies, which begin after
// the list.
type turn struct {
	mu   sync.Mutex // held during wait
	r, w *os.File
	back chan struct{} // receives when the byte has arrived; closed at the end
}

// newTurn returns a turn, or an error if there are no file descriptors for it.
func newTurn() (*turn, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	t := &turn{r: r, w: w, back: make(chan struct{})}
	go t.arrive()
	return t, nil
}

func (t *turn) arrive() {
	defer close(t.back)
	for b := make([]byte, 1); ; t.back <- struct{}{} {
		if _, err := t.r.Read(b); err != nil {
			return
		}
	}
}

// wait waits for a turn, and returns how long that took; 0 after close.
func (t *turn) wait() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	begin := time.Now() //nolint:forbidigo // a turn takes real time
	if _, err := t.w.Write([]byte{0}); err != nil {
		return 0
	}
	<-t.back
	return time.Since(begin) //nolint:forbidigo // as above
}

// close ends what newTurn has started, and a wait in progress.
func (t *turn) close() {
	_ = t.w.Close()
	_ = t.r.Close()
}
