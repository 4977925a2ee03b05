package proxy

import (
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/transport/netbound"
)

// defaultBodyTimeout is the default of Options.BodyTimeout, the same as nginx's
// client_body_timeout.
const defaultBodyTimeout = time.Minute

// upload is the body of a request. It limits how long each read may wait for the
// client, so a body may take hours but must not stall. While it waits, its connection
// may be closed to make room for a new one. Only the client's silence counts, not the
// time that the upstream takes.
type upload struct {
	io.ReadCloser
	control *http.ResponseController
	clock   func() time.Time // tells when all of it has arrived; nil if nobody asks
	http1   bool
	conn    netbound.Handle // of HTTP/1, where the request has the connection to itself
	timeout time.Duration   // none if not positive
	until   time.Time       // when all of it must have arrived; zero for no limit

	mu       sync.Mutex
	deadline time.Time     // of the connection, as last set
	timer    *time.Timer   // of HTTP/2, see arm
	talking  bool          // the upstream answers: the client may pause
	reading  bool          // a read is in progress
	stopped  chan struct{} // closed when that read has ended
	done     bool          // the request is over; the connection may serve another
	ended    bool          // all of the body has been read
	at       time.Time     // when, if clock is set
	asked    time.Time     // when the read in progress began, if clock is set
	waits    time.Duration // of the reads before it
	closed   bool          // the rest is not wanted
	err      error         // why it ended too early
}

// receive returns r with a body that cannot stall, or r itself and nil if it has none.
// The caller calls finish at the end of the request. net/http's own request keeps its
// body: net/http uses its type to find out whether any of it is left before the next
// request.
func (p *Proxy) receive(w http.ResponseWriter, r *http.Request) (*http.Request, *upload) {
	if r.Body == nil || r.Body == http.NoBody {
		return r, nil
	}
	u := &upload{ReadCloser: r.Body, control: http.NewResponseController(w), timeout: p.options.BodyTimeout, http1: r.ProtoMajor == 1}
	if u.timeout == 0 {
		u.timeout = defaultBodyTimeout
	}
	if total := p.options.ReadTimeout; total > 0 {
		u.until = time.Now().Add(total) //nolint:forbidigo // connections use the real clock
	}
	if u.http1 {
		u.conn = netbound.From(r.Context())
		u.postpone() // also for what net/http reads before it sends a refusal
	} else if u.timeout > 0 {
		u.timer = time.AfterFunc(u.timeout, u.interrupt)
		u.timer.Stop()
	}
	if p.options.Adaptive != nil || p.timed() {
		u.clock = p.options.Clock
	}
	r = r.WithContext(r.Context())
	r.Body = u
	return r, u
}

// Read implements io.Reader.
func (u *upload) Read(p []byte) (int, error) {
	u.mu.Lock()
	if err := u.err; err != nil {
		u.mu.Unlock()
		return 0, err
	}
	if u.done && u.http1 {
		u.mu.Unlock()
		return 0, http.ErrBodyReadAfterClose
	}
	u.reading = true
	u.arm()
	u.mu.Unlock()
	n, err := u.ReadCloser.Read(p)
	u.mu.Lock()
	defer u.mu.Unlock()
	u.reading = false
	if u.stopped != nil {
		close(u.stopped)
		u.stopped = nil
	}
	u.disarm(err)
	return n, err
}

// arm starts to wait for the client. The caller holds u.mu, as for disarm, postpone,
// forever and stop.
func (u *upload) arm() {
	if u.done {
		return
	}
	u.conn.Waits()
	if u.clock != nil {
		u.asked = u.clock()
	}
	switch {
	case u.talking:
	case u.timer != nil:
		u.timer.Reset(u.timeout)
	default:
		u.postpone()
	}
}

// postpone moves the deadline. Since bodies arrive in small pieces it does not do so
// every time; the client may therefore have up to an eighth more than the timeout.
func (u *upload) postpone() {
	if u.timeout <= 0 {
		return
	}
	now := time.Now() //nolint:forbidigo // as above
	if u.deadline.Sub(now) >= u.timeout {
		return
	}
	u.deadline = now.Add(u.timeout + u.timeout/8)
	if at := u.deadline; u.until.IsZero() || at.Before(u.until) {
		_ = u.control.SetReadDeadline(at)
		return
	}
	_ = u.control.SetReadDeadline(u.until)
}

// disarm ends the waiting, after a read that returned err.
func (u *upload) disarm(err error) {
	if u.timer != nil {
		u.timer.Stop()
	}
	if u.done {
		return
	}
	u.conn.Works()
	var now time.Time
	if u.clock != nil {
		now = u.clock()
		u.waits, u.asked = u.waits+now.Sub(u.asked), time.Time{}
	}
	switch {
	case err == nil:
	case errors.Is(err, io.EOF):
		if u.ended = true; u.at.IsZero() {
			u.at = now
		}
		u.forever()
	case !u.closed: // otherwise the client is not to blame
		u.err = err
	}
}

// Close implements io.Closer.
func (u *upload) Close() error {
	u.mu.Lock()
	u.closed = true
	u.mu.Unlock()
	return u.ReadCloser.Close()
}

// forever removes the deadline, except until.
func (u *upload) forever() {
	if u.timer == nil && !u.deadline.IsZero() {
		u.deadline = time.Time{}
		_ = u.control.SetReadDeadline(u.until)
	}
}

// interrupt ends a read of HTTP/2, where a deadline would end the body even when no
// read is in progress.
func (u *upload) interrupt() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.done && !u.talking && !u.ended {
		_ = u.control.SetReadDeadline(time.Unix(1, 0)) // any time in the past
	}
}

// leaves tells the client that its connection closes after the answer, if the body has
// not ended by then. net/http reads the rest of the body, but in full duplex it would
// read anything that arrives after a timeout as the next request.
func (u *upload) leaves(h http.Header) {
	if u == nil || !u.http1 {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.ended {
		h.Set("Connection", "close")
	}
}

// talk notes that the upstream answers. If the body is still arriving, the two are in a
// dialogue, and the client may pause for any time.
func (u *upload) talk() {
	if u == nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.done || u.ended || u.talking {
		return
	}
	u.talking = true
	if u.timer != nil {
		u.timer.Stop()
	}
	u.forever()
}

// finish releases the connection after the answer. net/http then reads a little of the
// rest of the body, for which the client has the usual timeout.
func (u *upload) finish() {
	if u == nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.done = true
	if u.timer != nil {
		u.timer.Stop()
	} else if !u.ended && u.err == nil {
		u.stop()
		u.conn.Waits()
		u.deadline = time.Time{} // others may have changed it
		u.postpone()
	}
}

// stop ends a read that is in progress. Otherwise net/http would, but replace our
// deadline with its own and wait for the rest forever.
func (u *upload) stop() {
	if !u.http1 || !u.reading || u.control.SetReadDeadline(time.Unix(1, 0)) != nil {
		return
	}
	stopped := make(chan struct{})
	u.stopped = stopped
	u.mu.Unlock()
	<-stopped
	u.mu.Lock()
}

// arrived returns when all of the body had arrived; zero before.
func (u *upload) arrived() time.Time {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.at
}

// Sending implements adaptive.Body. An upstream that does not read, such as before it answers
// "100 Continue", does not wait.
func (u *upload) Sending(now time.Time) (waited time.Duration, all bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if waited = u.waits; !u.asked.IsZero() {
		waited += max(now.Sub(u.asked), 0)
	}
	return waited, !u.at.IsZero()
}

// broken returns why the client did not send all of the body, or nil.
func (u *upload) broken() error {
	if u == nil {
		return nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.err
}

// whole returns the body without time limits, for callers that set their own.
func whole(body io.ReadCloser) io.ReadCloser {
	if u, ok := body.(*upload); ok {
		return u.ReadCloser
	}
	return body
}

// brokenOff returns the status and the detail of the answer for a body that failed
// with err.
func brokenOff(err error) (status int, detail string) {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return http.StatusRequestTimeout, "the request body did not arrive in time"
	}
	return http.StatusBadRequest, "the request body is incomplete"
}

// late reports whether the client was silent for too long in the middle of the body.
// net/http then ends the request's context as if the client had gone, but it still
// waits for its answer.
func (u *upload) late() bool {
	if u == nil || !u.http1 {
		return false
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.talking || u.err != nil {
		return !u.talking && isTimeout(u.err)
	}
	// The read may not have returned yet.
	at := u.deadline
	if !u.until.IsZero() && (at.IsZero() || u.until.Before(at)) {
		at = u.until
	}
	return u.reading && !at.IsZero() && !time.Now().Before(at) //nolint:forbidigo // as above
}
