package h2bound

import (
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/transport/unread"
)

// piece is how much of an answer is sent before it counts as taken by its client: a
// frame, in the size that all clients accept.
const piece = 16 << 10

// Answers returns a handler that counts what h writes until it is sent, and that ends
// answers whose clients do not read.
func Answers(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 2 {
			if c := From(r.Context()); c != nil {
				a := &answer{ResponseWriter: w, conn: c}
				a.begin()
				defer a.finish()
				w = a
			}
		}
		h.ServeHTTP(w, r)
	})
}

// answer is the answer of a handler that is running.
type answer struct {
	http.ResponseWriter
	conn *Conn
	at   int // in conn.answers
	mark unread.Mark

	mu   sync.Mutex // the handler does not return meanwhile
	done bool
}

func (a *answer) begin() {
	c := a.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	a.at = len(c.answers)
	c.answers = append(c.answers, a)
}

func (a *answer) finish() {
	a.mu.Lock()
	a.done = true
	a.mu.Unlock()
	c := a.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	last := len(c.answers) - 1
	c.answers[a.at] = c.answers[last]
	c.answers[a.at].at = a.at
	c.answers[last] = nil
	c.answers = c.answers[:last]
	c.tail.grows(c.bound.sendingTick())
}

// Write implements http.ResponseWriter.
func (a *answer) Write(p []byte) (n int, err error) {
	a.conn.Owes(len(p))
	defer a.conn.Owes(-len(p))
	defer a.mark.Done()
	for {
		a.mark.Begin(a.conn.bound.options.Unread)
		some, err := a.ResponseWriter.Write(p[n:min(n+piece, len(p))])
		if n += some; err != nil || n >= len(p) {
			return n, err
		}
	}
}

// FlushError is for http.ResponseController.
func (a *answer) FlushError() error {
	defer a.mark.Done()
	a.mark.Begin(a.conn.bound.options.Unread)
	return http.NewResponseController(a.ResponseWriter).Flush()
}

// Unwrap supports http.ResponseController.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// Waits implements [unread.Answer]. While the whole connection waits for its client, that
// counts in its place: the client may be reading what was sent before.
func (a *answer) Waits(now int64) (unread.Wait, bool) {
	c := a.conn
	if all, waits := c.sending.Waits(unread.Terms{}); waits && now-all.Since > 1 {
		a.mark.Moves(a.since(), now)
		return unread.Wait{}, false
	}
	wait, waits := a.mark.Waits(c.bound.options.Terms)
	wait.Crowd = c.crowd.Load()
	return wait, waits
}

// since returns the tick since which it waits.
func (a *answer) since() int64 {
	wait, _ := a.mark.Waits(unread.Terms{})
	return wait.Since
}

// End implements [unread.Answer]. It resets the stream.
func (a *answer) End() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mark.Ends()
	if !a.done { // net/http does not allow it afterwards
		_ = http.NewResponseController(a.ResponseWriter).SetWriteDeadline(time.Unix(1, 0))
	}
}

// Remote implements [unread.Answer].
func (a *answer) Remote() string { return a.conn.RemoteAddr().String() }

// tail is what the server still has to send on a connection after handlers have returned:
// the ends of answers, up to 4 KiB of each. Nothing tells which stream a handler had, so it
// is known by numbers: of the streams that have sent nothing since a tick, as many as there
// are handlers may belong to these, and as many as have returned since then may have had
// something to send only since then. The others wait for the client.
type tail struct {
	conn *Conn
	mark unread.Mark
	// ticks are when handlers have returned, and how many, in order. Guarded by conn.mu.
	ticks []returned
}

type returned struct {
	tick     int64
	handlers int
}

// mostTicks is how many ticks a tail remembers.
const mostTicks = 1024

// grows notes that a handler has returned. It needs conn.mu.
func (t *tail) grows(now int64) {
	last := len(t.ticks) - 1
	switch {
	case len(t.conn.streams) == 0:
		t.ticks = t.ticks[:0]
		return
	case last >= 0 && t.ticks[last].tick == now:
		t.ticks[last].handlers++
		return
	case last+1 >= mostTicks:
		t.ticks = append(t.ticks[:0], t.ticks[mostTicks/2:]...)
	}
	t.ticks = append(t.ticks, returned{now, 1})
}

// after returns how many handlers have returned after a tick. It needs conn.mu.
func (t *tail) after(tick int64) (n int) {
	for i := len(t.ticks) - 1; i >= 0 && t.ticks[i].tick > tick; i-- {
		n += t.ticks[i].handlers
	}
	return n
}

// Waits implements [unread.Answer].
func (t *tail) Waits(int64) (unread.Wait, bool) {
	c := t.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	handlers := len(c.answers)
	if len(c.streams) <= handlers || len(t.ticks) == 0 {
		return unread.Wait{}, false
	}
	moved := make([]int64, len(c.streams))
	for i := range c.streams {
		moved[i] = max(c.streams[i].moved, t.ticks[0].tick)
	}
	slices.Sort(moved)
	for i := handlers; i < len(moved); i++ {
		if more := i + 1 - handlers - t.after(moved[i]); more > 0 {
			wait, _ := t.mark.Waits(c.bound.options.Terms)
			wait.Since, wait.Terms.Cost = moved[i], int64(more*c.bound.options.StreamCost)
			wait.Crowd = more > unread.Crowd
			return wait, true
		}
	}
	return unread.Wait{}, false
}

// End implements [unread.Answer]. It closes the connection.
func (t *tail) End() {
	t.mark.Ends()
	_ = t.conn.raw.Close() // its server notices
}

// Remote implements [unread.Answer].
func (t *tail) Remote() string { return t.conn.RemoteAddr().String() }

// Unread implements [unread.Source].
func (b *Bound) Unread(f func(unread.Answer)) {
	var some []unread.Answer
	b.mu.Lock()
	for c := range b.conns {
		some = c.unread(some)
	}
	b.mu.Unlock()
	for _, a := range some {
		f(a)
	}
}

// unread appends the answers that may wait.
func (c *Conn) unread(to []unread.Answer) []unread.Answer {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := len(to)
	for _, a := range c.answers {
		if a.since() >= 0 {
			to = append(to, a)
		}
	}
	c.crowd.Store(len(to)-before > unread.Crowd)
	if len(c.streams) > len(c.answers) {
		to = append(to, &c.tail)
	}
	return to
}

// sendingTick returns the current tick of Options.Unread.
func (b *Bound) sendingTick() int64 {
	if b.options.Unread == nil {
		return 0
	}
	return b.options.Unread.Now()
}
