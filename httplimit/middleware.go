package httplimit

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/answer"
)

// New returns middleware that lets requests pass as limit allows, counted by
// [ByIP] unless an option says otherwise, and refuses the others with 429. A
// refusal because the store could not answer (headgate.FailureDeny) is a 503.
//
// Requests to a leaky bucket wait for their turn. One whose client goes away
// before gives its place back.
//
// New does not validate limit: an invalid one refuses all requests, and
// [OnError] is told why.
func New(limiter *headgate.Limiter, limit headgate.Limit, options ...Option) func(http.Handler) http.Handler {
	c, checks := configure(limit, options)
	return func(next http.Handler) http.Handler {
		return &middleware{config: c, limiter: limiter, checks: checks, next: next}
	}
}

// check is one limit of a middleware.
type check struct {
	name  string
	limit headgate.Limit
	by    By
	cost  func(*http.Request) int64
}

type middleware struct {
	config
	limiter *headgate.Limiter
	checks  []check
	next    http.Handler
}

// ticket is what one request has taken.
type ticket struct {
	at       time.Time
	ops      []headgate.Op
	policies []answer.Policy
	decision headgate.Decision // the tightest
}

// ServeHTTP implements http.Handler.
func (m *middleware) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	t := m.take(r)
	if !t.decision.Allowed {
		m.reject(w, r, &t)
		return
	}
	if err := t.wait(r.Context()); err != nil {
		m.giveBack(r, &t)
		answer.Problem(w, http.StatusServiceUnavailable, "The request was given up while it waited for its turn.")
		return
	}
	answer.Headers(w.Header(), m.dialect.answers(), t.policies...)
	if len(m.refund) == 0 {
		m.next.ServeHTTP(w, r)
		return
	}
	watched := &statusWriter{ResponseWriter: w}
	m.next.ServeHTTP(watched, r)
	if slices.Contains(m.refund, watched.final()) {
		m.giveBack(r, &t)
	}
}

// take asks for everything that r needs, all or nothing.
func (m *middleware) take(r *http.Request) ticket {
	t := ticket{
		at:       m.clock(),
		ops:      make([]headgate.Op, len(m.checks)),
		policies: make([]answer.Policy, len(m.checks)),
	}
	for i := range m.checks {
		c := &m.checks[i]
		key, ok := c.by(r)
		if !ok {
			key = "" // no request that says who it is has this key
		}
		t.ops[i] = headgate.Op{Key: key, Scope: c.name, Limit: c.limit, Cost: c.cost(r)}
	}
	decisions := make([]headgate.Decision, len(m.checks))
	tightest, err := m.limiter.AllowAll(r.Context(), t.ops, decisions)
	m.report(r, err)
	t.decision = tightest
	for i, d := range decisions {
		t.policies[i] = answer.Policy{Name: m.checks[i].name, Limit: m.checks[i].limit, Decision: d, At: t.at.UnixMicro()}
	}
	return t
}

// reject answers r, which was refused.
func (m *middleware) reject(w http.ResponseWriter, r *http.Request, t *ticket) {
	if m.onLimit == nil {
		answer.Refuse(w, r, answer.Refusal{Policies: t.policies, Dialect: m.dialect.answers()})
		return
	}
	answer.Headers(w.Header(), m.dialect.answers(), t.policies...)
	m.onLimit.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), refusedKey{}, t.decision)))
}

type refusedKey struct{}

// Refused returns the decision about the request of an [OnLimit] handler, the
// tightest if there are several limits. It reports false for the context of
// any other request.
func Refused(ctx context.Context) (headgate.Decision, bool) {
	d, ok := ctx.Value(refusedKey{}).(headgate.Decision)
	return d, ok
}

// wait waits for the ticket's turn.
func (t *ticket) wait(ctx context.Context) error {
	var delay time.Duration
	for i := range t.policies {
		delay = max(delay, t.policies[i].Decision.Delay)
	}
	return sleep(ctx, delay)
}

// giveBack returns what t has taken, less what time has given back already.
func (m *middleware) giveBack(r *http.Request, t *ticket) {
	since := m.clock().Sub(t.at)
	refunds := t.ops[:0]
	for i, op := range t.ops {
		d := &t.policies[i].Decision
		left := d.ResetAfter - since
		if d.Granted == 0 || left <= 0 {
			continue // nothing was taken, or time has given it back (or the store did not answer)
		}
		op.Kind, op.Cost, op.Duration, op.At = headgate.Refund, d.Granted, left, 0
		refunds = append(refunds, op)
	}
	if len(refunds) == 0 {
		return
	}
	// The client may be gone; what it did not use has to be returned anyway.
	ctx := context.WithoutCancel(r.Context())
	m.report(r, m.limiter.Batch(ctx, refunds, make([]headgate.Decision, len(refunds))))
}

func (m *middleware) report(r *http.Request, err error) {
	if err != nil && m.onError != nil {
		m.onError(r, err)
	}
}

// sleep waits for d, or until ctx is done, whose error it returns.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d) //nolint:forbidigo // waiting is the point
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
