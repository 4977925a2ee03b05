package netbound

import (
	"net"
	"sync/atomic"

	"github.com/headgate/headgate/internal/transport/unread"
)

// sending is what a connection has to send.
type sending struct {
	mark  unread.Mark
	heard atomic.Bool // something has been received, so its client is known
	taken uint64      // bytes that the client had taken when its Watch last looked
}

// may notes that something has been received.
func (s *sending) may() {
	if !s.heard.Load() {
		s.heard.Store(true)
	}
}

func (s *sending) begin(w *unread.Watch) {
	if s.heard.Load() {
		s.mark.Begin(w)
	}
}

// Unread implements [unread.Source].
func (l *Listener) Unread(f func(unread.Answer)) {
	var some []*conn
	l.mu.Lock()
	for c := range l.conns {
		if _, waits := c.mark.Waits(unread.Terms{}); waits {
			some = append(some, c)
		}
	}
	l.mu.Unlock()
	for _, c := range some {
		f(c)
	}
}

// Waits implements [unread.Answer]. One call of Write may take long with a slow client, so
// it asks the system how much the client has taken.
func (c *conn) Waits(now int64) (unread.Wait, bool) {
	wait, waits := c.mark.Waits(c.listener.options.Terms)
	if !waits || now-wait.Since < 2 {
		return wait, false
	}
	if all, known := taken(c.Conn); known && all > c.taken {
		c.taken = all
		c.mark.Moves(wait.Since, now)
		return wait, false
	}
	return wait, true
}

// End implements [unread.Answer]. It drops what the system has buffered: otherwise that
// would stay there until the client takes it, or leaves.
func (c *conn) End() {
	c.mark.Ends()
	if tcp, ok := Layer[*net.TCPConn](c.Conn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Conn.Close() // its server notices, and closes it again
}

// Remote implements [unread.Answer].
func (c *conn) Remote() string { return c.RemoteAddr().String() }
