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
	// DefaultMaxWait is the default of Transport.MaxWait.
	DefaultMaxWait = time.Minute
	// DefaultMaxRetries is the default of Transport.MaxRetries.
	DefaultMaxRetries = 3

	// longestHold limits how long a host counts as exhausted.
	longestHold  = time.Hour
	firstBackoff = time.Second
	maxHosts     = 4096
	maxDrain     = 64 << 10
)

// Transport is an http.RoundTripper that respects the limits of servers. Its zero value
// is ready for use:
//
//	client := &http.Client{Transport: &httplimit.Transport{}}
//
// When a server reports that nothing is left, later requests to the same host wait, or
// fail at once with a *headgate.LimitedError (use errors.As) if the wait would exceed
// MaxWait or their context's deadline. Servers report it by Retry-After in a 429 or 503,
// in seconds or as a date; by the IETF field RateLimit: "name";r=0;t=30, or as in draft-07
// limit=1, remaining=0, reset=30; or by X-RateLimit-Remaining: 0 (or RateLimit-Remaining)
// and a Reset. The first of these counts. A number that would be 31 years or more is a
// Unix time, in seconds or milliseconds. A malformed RateLimit is ignored as a whole.
//
// A host counts as exhausted for at most an hour, or for MaxWait if that is longer, so
// a wrong time does not block it until the program restarts.
//
// A 429 is retried if the body can be sent again (http.Request.GetBody). A 503 is
// retried only if the method is idempotent too, since a server behind it may have acted
// already. Without a time, or after another 0, the wait doubles from one second. When
// retries or MaxWait are used up, the caller gets the last answer.
//
// Every wait is up to a tenth longer than reported, at random, so that clients do not
// return all at once.
//
// A Transport is safe for concurrent use and must not be copied after first use.
type Transport struct {
	// Base sends the requests. The default is http.DefaultTransport.
	Base http.RoundTripper
	// MaxWait limits how long one request is held back, including retries. 0 means
	// DefaultMaxWait, negative not at all.
	MaxWait time.Duration
	// MaxRetries limits how often a request is retried. 0 means DefaultMaxRetries,
	// negative never.
	MaxRetries int

	clock headgate.Limiter // without a store, for its real clock only
	mu    sync.Mutex
	until map[string]time.Time // by scheme and host: exhausted before then
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	host := r.URL.Scheme + "://" + r.URL.Host
	start := t.clock.Caller().Now()
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
		wait, told := hint(res, t.clock.Caller().Now())
		if told {
			t.hold(host, t.clock.Caller().Now().Add(min(wait, max(longestHold, t.maxWait()))))
		}
		if attempt >= t.maxRetries() || !retryable(r, res.StatusCode) {
			return res, nil
		}
		switch {
		case !told:
			wait = firstBackoff << min(attempt, 16)
		case wait <= 0 && attempt > 0: // the wait was too short
			wait = firstBackoff << min(attempt-1, 16)
		}
		wait, err = t.next(r.Context(), host, t.clock.Caller().Now().Add(wait), limit)
		if err != nil {
			return res, nil // the answer says more than our error
		}
		drain(res)
		if err := t.clock.Caller().Sleep(r.Context(), jittered(wait, limit.Sub(t.clock.Caller().Now()))); err != nil {
			return nil, err
		}
		// Another request may have learned of a longer wait in the meantime.
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
		if err := t.clock.Caller().Sleep(ctx, jittered(wait, limit.Sub(t.clock.Caller().Now()))); err != nil {
			return err
		}
	}
}

// next returns how long to wait for host, at least until at. If that is after limit or
// the deadline of ctx, it returns a *headgate.LimitedError.
func (t *Transport) next(ctx context.Context, host string, at, limit time.Time) (time.Duration, error) {
	t.mu.Lock()
	until := t.until[host]
	t.mu.Unlock()
	if until.Before(at) {
		until = at
	}
	wait := until.Sub(t.clock.Caller().Now())
	if wait <= 0 {
		return 0, nil
	}
	deadline, ok := ctx.Deadline()
	if until.After(limit) || ok && until.After(deadline) {
		return 0, &headgate.LimitedError{Decision: headgate.Decision{Reason: headgate.ReasonLimited, RetryAfter: wait}}
	}
	return wait, nil
}

// hold notes that host is exhausted until then.
func (t *Transport) hold(host string, until time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.until == nil {
		t.until = make(map[string]time.Time)
	}
	if t.until[host].After(until) {
		return // the longer one counts
	}
	if _, ok := t.until[host]; !ok && len(t.until) >= maxHosts {
		t.forget()
	}
	t.until[host] = until
}

// forget removes a host from t.until to make space, preferably one that need not be
// waited for. t.mu is held.
func (t *Transport) forget() {
	at := t.clock.Caller().Now()
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

// idempotent reports whether r may be repeated safely. As in net/http, a header field
// can say so.
func idempotent(r *http.Request) bool {
	switch r.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	return r.Header.Get("Idempotency-Key") != "" || r.Header.Get("X-Idempotency-Key") != ""
}

// again returns a copy of r with its body from the start. A RoundTripper must not
// change the caller's request.
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

// drain reads the rest of a small body, so that its connection can be reused, and
// closes it.
func drain(res *http.Response) {
	_, _ = io.CopyN(io.Discard, res.Body, maxDrain)
	_ = res.Body.Close()
}

// closeBody closes the body of a request that is not sent, as a RoundTripper must.
func closeBody(r *http.Request) {
	if r.Body != nil {
		_ = r.Body.Close()
	}
}

// jittered returns wait and up to a tenth more, but not more than most.
func jittered(wait, most time.Duration) time.Duration {
	if tenth := wait / 10; tenth > 0 {
		wait += rand.N(tenth) //nolint:gosec // not a secret: it spreads clients out
	}
	return min(wait, most)
}
