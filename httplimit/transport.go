package httplimit

import (
	"cmp"
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/headgate/headgate"
)

const (
	// DefaultMaxWait is the MaxWait of a Transport that has none.
	DefaultMaxWait = time.Minute
	// DefaultMaxRetries is the MaxRetries of a Transport that has none.
	DefaultMaxRetries = 3

	// longestHold is for how long a host is believed to have nothing left.
	longestHold  = time.Hour
	firstBackoff = time.Second
	maxHosts     = 4096
	maxDrain     = 64 << 10
)

// Transport is an http.RoundTripper that keeps to the limits of servers. Its
// zero value is ready for use:
//
//	client := &http.Client{Transport: &httplimit.Transport{}}
//
// When a server says that there is nothing left, later requests to the same
// host wait until there is more, or fail at once with a *headgate.LimitedError
// (use errors.As) if that is later than MaxWait or their context allow. A
// server says so by Retry-After in a 429 or 503, in seconds or as a date; by
// RateLimit: "name";r=0;t=30 (the IETF's field); or by X-RateLimit-Remaining: 0
// (or RateLimit-Remaining) and a Reset, in seconds or as a Unix time, of seconds or
// milliseconds. The first of these that is there counts.
//
// A host is believed for an hour at most, or for MaxWait if that is longer. Then
// it is asked again: a time that was wrong, or in a unit that nobody knows, does not
// give the host up until the program is restarted.
//
// A 429 is tried again if the body can be sent again (http.Request.GetBody); a
// 503 only if the method is idempotent too, for it may come from behind a
// server that has already acted. Where no time was told, or again one of 0, the
// wait doubles from one second. When retries or MaxWait are used up the caller gets the answer as
// it came.
//
// Every wait is up to a tenth longer than told, at random, so that clients who
// were told the same do not come back at the same time.
//
// A Transport is safe for concurrent use and must not be copied after first
// use.
type Transport struct {
	// Base sends the requests; http.DefaultTransport if nil.
	Base http.RoundTripper
	// MaxWait is the longest that one request is held back, retries included;
	// 0 means DefaultMaxWait, a negative one not at all.
	MaxWait time.Duration
	// MaxRetries is how often a request is tried again; 0 means
	// DefaultMaxRetries, a negative number never.
	MaxRetries int

	clock headgate.Limiter // without a store: it knows the real time
	mu    sync.Mutex
	until map[string]time.Time // by scheme and host: nothing is left before
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	host := r.URL.Scheme + "://" + r.URL.Host
	start := t.clock.Now()
	limit := start.Add(t.maxWait())
	if err := t.pace(r.Context(), host, limit); err != nil {
		closeBody(r)
		return nil, err
	}
	for attempt := 0; ; attempt++ {
		res, err := t.base().RoundTrip(r)
		if err != nil {
			return nil, err
		}
		wait, told := hint(res, t.clock.Now())
		if told {
			t.hold(host, t.clock.Now().Add(min(wait, max(longestHold, t.maxWait()))))
		}
		if attempt >= t.maxRetries() || !retryable(r, res.StatusCode) {
			return res, nil
		}
		switch {
		case !told:
			wait = firstBackoff << min(attempt, 16)
		case wait <= 0 && attempt > 0: // it was not true
			wait = firstBackoff << min(attempt-1, 16)
		}
		wait, err = t.next(r.Context(), host, t.clock.Now().Add(wait), limit)
		if err != nil {
			return res, nil // the answer says more than our error would
		}
		drain(res)
		if err := t.clock.Sleep(r.Context(), jittered(wait, limit.Sub(t.clock.Now()))); err != nil {
			return nil, err
		}
		// Meanwhile another request may have been told to wait for longer.
		if err := t.pace(r.Context(), host, limit); err != nil {
			return nil, err
		}
		if r, err = again(r); err != nil {
			return nil, err
		}
	}
}

// pace waits until host has something left.
func (t *Transport) pace(ctx context.Context, host string, limit time.Time) error {
	for {
		wait, err := t.next(ctx, host, time.Time{}, limit)
		if err != nil || wait <= 0 {
			return err
		}
		if err := t.clock.Sleep(ctx, jittered(wait, limit.Sub(t.clock.Now()))); err != nil {
			return err
		}
	}
}

// next returns how long to wait for host, and at least until at. If that is
// past limit or the deadline of ctx, it returns a *headgate.LimitedError.
func (t *Transport) next(ctx context.Context, host string, at, limit time.Time) (time.Duration, error) {
	t.mu.Lock()
	until := t.until[host]
	t.mu.Unlock()
	if until.Before(at) {
		until = at
	}
	wait := until.Sub(t.clock.Now())
	if wait <= 0 {
		return 0, nil
	}
	deadline, ok := ctx.Deadline()
	if until.After(limit) || ok && until.After(deadline) {
		return 0, &headgate.LimitedError{Decision: headgate.Decision{Reason: headgate.Limited, RetryAfter: wait}}
	}
	return wait, nil
}

// hold notes that host has nothing left before until.
func (t *Transport) hold(host string, until time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.until == nil {
		t.until = make(map[string]time.Time)
	}
	if t.until[host].After(until) {
		return // the limit that lasts longer counts
	}
	if _, ok := t.until[host]; !ok && len(t.until) >= maxHosts {
		t.forget()
	}
	t.until[host] = until
}

// forget makes room in t.until, with t.mu held: hosts that need not be waited
// for go first, and then any one.
func (t *Transport) forget() {
	at := t.clock.Now()
	for host, until := range t.until {
		if !until.After(at) {
			delete(t.until, host)
		}
	}
	for host := range t.until {
		if len(t.until) < maxHosts {
			return
		}
		delete(t.until, host)
	}
}

func (t *Transport) base() http.RoundTripper {
	if t.Base == nil {
		return http.DefaultTransport
	}
	return t.Base
}

func (t *Transport) maxWait() time.Duration { return max(cmp.Or(t.MaxWait, DefaultMaxWait), 0) }

func (t *Transport) maxRetries() int { return max(cmp.Or(t.MaxRetries, DefaultMaxRetries), 0) }

// retryable reports whether r may be sent again after an answer of status.
func retryable(r *http.Request, status int) bool {
	if r.Body != nil && r.Body != http.NoBody && r.GetBody == nil {
		return false
	}
	switch status {
	case http.StatusTooManyRequests:
		return true
	case http.StatusServiceUnavailable:
		return idempotent(r)
	}
	return false
}

// idempotent reports whether doing r twice is as good as once. As in net/http,
// a header field may say so.
func idempotent(r *http.Request) bool {
	switch r.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	return r.Header.Get("Idempotency-Key") != "" || r.Header.Get("X-Idempotency-Key") != ""
}

// again returns r with its body from the start. A RoundTripper must not change
// the request of its caller, so it is a copy.
func again(r *http.Request) (*http.Request, error) {
	if r.GetBody == nil {
		return r, nil
	}
	body, err := r.GetBody()
	if err != nil {
		return nil, err
	}
	r = r.Clone(r.Context())
	r.Body = body
	return r, nil
}

// drain reads what is left of a small body, so that its connection can be used
// again, and closes it.
func drain(res *http.Response) {
	_, _ = io.CopyN(io.Discard, res.Body, maxDrain)
	_ = res.Body.Close()
}

// closeBody closes the body of a request that is not sent, as a RoundTripper
// has to.
func closeBody(r *http.Request) {
	if r.Body != nil {
		_ = r.Body.Close()
	}
}

// jittered returns wait and up to a tenth more, but not more than most.
func jittered(wait, most time.Duration) time.Duration {
	if tenth := wait / 10; tenth > 0 {
		wait += rand.N(tenth) //nolint:gosec // no secret: it keeps clients apart
	}
	return min(wait, most)
}
