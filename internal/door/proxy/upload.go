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

// defaultBodyTimeout is how long a client may leave us waiting in the middle of
// a body if the options do not say. nginx has the same (client_body_timeout).
const defaultBodyTimeout = time.Minute

// upload is the body of a request. It bounds how long each single read may wait
// for the client, so that a body may take hours, but not stand still, and says
// so to the bound on connections while it waits. Only the client's silence
// counts: an upstream that takes its time is waited for.
type upload struct {
	io.ReadCloser
	control *http.ResponseController
	http1   bool
	conn    netbound.Handle // of HTTP/1, whose connection is this request's alone
	timeout time.Duration   // none if not positive
	until   time.Time       // by when all of it has to be there; zero for never

	mu       sync.Mutex
	deadline time.Time     // of the connection, as it was last set
	timer    *time.Timer   // of HTTP/2, see arm
	talking  bool          // the upstream answers: the client may pause
	reading  bool          // a read is in flight
	stopped  chan struct{} // is closed when it is not any more
	done     bool          // the request is over, and the connection may be another's
	ended    bool          // all of the body has been read
	closed   bool          // nobody wants the rest
	err      error         // why it ended too early
}

// receive returns r with a body that does not stand still, or r itself and nil
// if it has none. The caller calls finish at the end of the request. The
// request that net/http knows keeps its body, by whose type net/http finds out
// whether there is a rest of it before the next request.
func (p *Proxy) receive(w http.ResponseWriter, r *http.Request) (*http.Request, *upload) {
	if r.Body == nil || r.Body == http.NoBody {
		return r, nil
	}
	u := &upload{ReadCloser: r.Body, control: http.NewResponseController(w), timeout: p.options.BodyTimeout, http1: r.ProtoMajor == 1}
	if u.timeout == 0 {
		u.timeout = defaultBodyTimeout
	}
	if total := p.options.ReadTimeout; total > 0 {
		u.until = time.Now().Add(total) //nolint:forbidigo // a deadline of a connection is of the real clock
	}
	if u.http1 {
		u.conn = netbound.From(r.Context())
		u.postpone() // also for what net/http reads before it sends a refusal
	} else if u.timeout > 0 {
		u.timer = time.AfterFunc(u.timeout, u.interrupt)
		u.timer.Stop()
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

// arm begins to wait for the client. It needs u.mu, as all below do.
func (u *upload) arm() {
	if u.done {
		return
	}
	u.conn.Waits()
	switch {
	case u.talking:
	case u.timer != nil:
		u.timer.Reset(u.timeout)
	default:
		u.postpone()
	}
}

// postpone gives the client another while. It is not done every time, as
// bodies come in small pieces; so the while may be an eighth longer.
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
	switch {
	case err == nil:
	case errors.Is(err, io.EOF):
		u.ended = true
		u.forever()
	case !u.closed: // otherwise it is not the client who broke off
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

// forever takes back the deadline.
func (u *upload) forever() {
	if u.timer == nil && !u.deadline.IsZero() {
		u.deadline = time.Time{}
		_ = u.control.SetReadDeadline(u.until)
	}
}

// interrupt ends a read of HTTP/2. There a deadline would end the body also
// while nobody reads.
func (u *upload) interrupt() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.done && !u.talking && !u.ended {
		_ = u.control.SetReadDeadline(time.Unix(1, 0)) // any that has passed
	}
}

// leaves tells the client that its connection closes behind the answer, if the
// body has not ended before it. net/http reads what is left of the body, but
// where both go on at once it would take what comes after a time-out for the
// next request.
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

// talk notes that the upstream answers while the body is still coming, if it
// is: they converse, and pauses are theirs to make.
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

// finish lets go of the connection, once the request has been answered. What is
// left of the body net/http reads, a little of it, and for that the client has
// as long as for any other piece.
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
		u.deadline = time.Time{} // whatever others have made of it
		u.postpone()
	}
}

// stop ends a read that is in flight. Otherwise net/http does, takes our
// deadline back with its own, and waits for the rest for ever.
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

// broken returns why the client did not send all of the body, or nil.
func (u *upload) broken() error {
	if u == nil {
		return nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.err
}

// whole returns the body without bounds on time, for who has other ones.
func whole(body io.ReadCloser) io.ReadCloser {
	if u, ok := body.(*upload); ok {
		return u.ReadCloser
	}
	return body
}

// brokenOff returns the status and the words for a body that err has ended.
func brokenOff(err error) (status int, detail string) {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return http.StatusRequestTimeout, "the request body did not arrive in time"
	}
	return http.StatusBadRequest, "the request body is incomplete"
}

// late reports whether the client was silent for too long in the middle of the body.
// net/http ends the request's context then, as if the client had gone, which waits
// for its answer.
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
