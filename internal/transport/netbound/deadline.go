package netbound

import (
	"errors"
	"net"
	"os"
	"sync"
	"time"
)

// deadline is that of one direction of a connection. Servers of net/http set
// six for each request, nearly all of them later than the one before, and each
// costs the runtime a timer. So the connection below hears of one only if a call
// that waits would otherwise wait too long; and when one that it still knows
// ends a call too soon, it is told of the true one, and the call is made again.
// To the caller it is as if it had heard of all.
type deadline struct {
	tell func(net.Conn, time.Time) error // net.Conn.SetReadDeadline or net.Conn.SetWriteDeadline

	mu    sync.Mutex
	asked time.Time // by the caller; zero for none
	told  time.Time // to the connection below; zero for none
	busy  int       // calls of the connection below that are under way
}

// set asks for t.
func (d *deadline) set(c net.Conn, t time.Time) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked = t
	if d.busy == 0 || !d.sooner() {
		return nil
	}
	d.told = t
	return d.tell(c, t)
}

// sooner reports whether what was asked for comes before what the connection
// below knows. It needs d.mu.
func (d *deadline) sooner() bool {
	return !d.asked.IsZero() && (d.told.IsZero() || d.asked.Before(d.told))
}

// passed reports whether what was asked for is over. It needs d.mu.
func (d *deadline) passed() bool {
	return !d.asked.IsZero() && time.Until(d.asked) <= 0 //nolint:forbidigo // deadlines are on the real clock
}

// begin comes before a call of the connection below, which is not to be made if
// an error is returned.
func (d *deadline) begin(c *conn) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.sooner() && !c.closed.Load() { // one that is closed says so itself
		if d.passed() {
			return os.ErrDeadlineExceeded
		}
		d.told = d.asked
		if err := d.tell(c.Conn, d.asked); err != nil {
			return err
		}
	}
	d.busy++
	return nil
}

// end comes after that call, which has returned err. It reports whether that
// was a deadline no longer asked for.
func (d *deadline) end(c net.Conn, err error) (early bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.busy--
	if err == nil || !errors.Is(err, os.ErrDeadlineExceeded) || d.passed() {
		return false
	}
	d.told = d.asked
	return d.tell(c, d.asked) == nil
}
