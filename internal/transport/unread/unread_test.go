package unread_test

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/transport/netbound"
	"github.com/headgate/headgate/internal/transport/unread"
)

const perMinute = int64(time.Minute / unread.Long)

// waiter is an answer that waits. It ends only if it is told to and may.
type waiter struct {
	id, since int64
	terms     unread.Terms
	crowd     bool
	stuck     bool
	ended     bool
	order     *[]int64
}

func (a *waiter) Waits(int64) (unread.Wait, bool) {
	return unread.Wait{Since: a.since, Terms: a.terms, Crowd: a.crowd, Ended: a.ended}, !a.ended || a.stuck
}

func (a *waiter) End() { a.ended, *a.order = true, append(*a.order, a.id) }

func (*waiter) Remote() string { return "192.0.2.1:5" }

type waiters []*waiter

func (s waiters) Unread(f func(unread.Answer)) {
	for _, a := range s {
		f(a)
	}
}

// Answers are ended after their pause, and the longest waiting first beyond the bound of
// memory and while memory is short, but only a crowd or after a while.
func TestWhichAnswersAreEnded(t *testing.T) {
	const cost = 100
	for name, row := range map[string]struct {
		most  int64
		short bool
		ticks int64
		pause time.Duration
		crowd bool
		stuck bool
		want  []int64
	}{
		"none before the pause":             {most: 1000, ticks: perMinute},
		"all after it":                      {most: 1000, ticks: perMinute + 12, want: []int64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}},
		"another pause":                     {most: 1000, ticks: 61, pause: 15 * time.Second, want: []int64{0}},
		"no pause":                          {most: 1000, ticks: 10 * perMinute, pause: -1},
		"a crowd beyond the bound":          {most: 500, ticks: 12, crowd: true, want: []int64{0, 1, 2, 3, 4}},
		"no crowd beyond the bound":         {most: 500, ticks: 30},
		"the same later":                    {most: 500, ticks: 50, want: []int64{0, 1, 2, 3, 4}},
		"what does not end frees nothing":   {most: 800, ticks: 12, crowd: true, stuck: true, want: []int64{0, 1, 2, 3, 4}},
		"memory is short":                   {most: 1000, short: true, ticks: 4, want: []int64{0}},
		"memory is short, for longer":       {most: 1000, short: true, ticks: 12, want: []int64{0, 1, 2, 3, 4, 5, 6, 7, 8}},
		"memory is short, nobody waits yet": {most: 1000, short: true, ticks: 3},
	} {
		t.Run(name, func(t *testing.T) {
			var ended []int64
			all := waiters{}
			for i := range int64(10) {
				all = append(all, &waiter{id: i, since: i, terms: unread.Terms{Pause: row.pause, Cost: cost}, crowd: row.crowd, stuck: row.stuck, order: &ended})
			}
			slices.Reverse(all)
			w := unread.New(unread.Options{Most: row.most, Short: func() bool { return row.short }, Logger: slog.New(slog.DiscardHandler)})
			w.Add(all)
			w.Tick(row.ticks)
			if !slices.Equal(ended, row.want) {
				t.Errorf("%v were ended, want %v", ended, row.want)
			}
			if int(w.Ended()) != len(ended) {
				t.Errorf("%d counted of %d", w.Ended(), len(ended))
			}
		})
	}
}

// download is a server over a real connection, whose client has a small buffer. The
// handler sends more than the system buffers.
type download struct {
	watch  *unread.Watch
	client net.Conn
	ended  chan error // of the handler's writing
}

func newDownload(t *testing.T, size int) *download {
	t.Helper()
	d := &download{watch: unread.New(unread.Options{Most: 1 << 30, Logger: slog.New(slog.DiscardHandler)}), ended: make(chan error, 1)}
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, err := w.Write(make([]byte, size))
		d.ended <- err
	})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(netbound.New(l, netbound.Options{Max: 10, Unread: d.watch, Logger: slog.New(slog.DiscardHandler)}))
	}()
	t.Cleanup(func() {
		_ = s.Close()
		<-done
	})
	var dialer net.Dialer
	if d.client, err = dialer.DialContext(t.Context(), "tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.client.Close() })
	if tcp, ok := d.client.(*net.TCPConn); !ok || tcp.SetReadBuffer(64<<10) != nil {
		t.Fatal("it has no buffer to make small")
	}
	if _, err := io.WriteString(d.client, "GET / HTTP/1.0\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	return d
}

// A client that stops to read is cut off, although the system still has much to send.
func TestAClientThatStopsToRead(t *testing.T) {
	d := newDownload(t, 64<<20)
	if _, err := io.ReadFull(d.client, make([]byte, 100_000)); err != nil {
		t.Fatal(err)
	}
	for {
		d.watch.Tick(1)
		select {
		case err := <-d.ended:
			if err == nil {
				t.Error("all was sent")
			}
			return
		case <-t.Context().Done():
			t.Fatal("it was not cut off")
		default:
		}
	}
}

// A client that reads a little in each pause is not, although one call of Write lasts for
// the whole download, and the system rarely takes more of it.
func TestAClientThatReadsALittle(t *testing.T) {
	const size, step = 8 << 20, 512 << 10
	d := newDownload(t, size)
	got := 0
	for buf := make([]byte, step); ; {
		n, err := io.ReadFull(d.client, buf)
		if got += n; err != nil {
			break
		}
		d.watch.Tick(perMinute - 10)
	}
	if got < size {
		t.Errorf("%d of %d bytes", got, size)
	}
	if err := <-d.ended; err != nil {
		t.Error(err)
	}
}
