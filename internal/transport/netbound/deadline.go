package netbound

import (
	"errors"
	"net"
	"os"
	"sync"
	"time"
)

// deadline is the deadline of one direction of a connection. net/http servers set six for
// each request, most of them later than the previous one, and each costs a timer of the
// runtime. So the connection below gets a deadline only if a blocking call would
// otherwise wait too long. If an earlier deadline ends a call too soon, the current one
// is set and the call is repeated. Callers do not notice.
type deadline struct {
	tell func(net.Conn, time.Time) error // net.Conn.SetReadDeadline or net.Conn.SetWriteDeadline

	mu    sync.Mutex
	asked time.Time // set by the caller; zero for none
	told  time.Time // set on the connection below; zero for none
	busy  int       // calls of the connection below in progress
}

// set sets the deadline.
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

// sooner reports whether the deadline is before that of the connection below. It needs
// d.mu.
func (d *deadline) sooner() bool {
	return !d.asked.IsZero() && (d.told.IsZero() || d.asked.Before(d.told))
}

// passed reports whether the deadline has passed. It needs d.mu.
func (d *deadline) passed() bool {
	return !d.asked.IsZero() && time.Until(d.asked) <= 0 //nolint:forbidigo // deadlines are on the real clock
}

// begin is called before a call of the connection below, which must not be made if begin
// returns an error.
func (d *deadline) begin(c *conn) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.sooner() && !c.closed.Load() { // a closed one returns its own error
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

// end is called after that call, which returned err. It reports whether err is a deadline
// that no longer applies.
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
