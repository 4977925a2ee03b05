package admission

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/answer"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/queue"
	"github.com/headgate/headgate/internal/request/client"
)

// Asker asks the engine for a door, and reports what went wrong.
type Asker struct {
	Engine  *engine.Engine   // decides. Required.
	Clients *client.Resolver // identifies clients and groups their addresses for counting. Required.
	// Clock is read once per request, or once for all that arrive together. Required,
	// unless a door says that without it the store's clock decides.
	Clock   func() time.Time
	Logger  *slog.Logger   // receives what callers cannot be told. Required.
	Dialect answer.Dialect // of the header fields
	// Wait holds a request back; banned is set for one that is only answered late. Nil if
	// the callers of the door do that.
	Wait func(ctx context.Context, d time.Duration, banned bool) error
	// Queue returns where requests wait that a rule queues, or nil. Nil if the door has none.
	Queue    func() *queue.Queue
	Patience time.Duration // how long a settlement may take; 0 for what the store allows
	// Linger ends a Hold later, for an upstream that may go on with a request that it did
	// not receive whole or did not answer in time. If nil, the Hold ends at once.
	Linger func(*engine.Hold)
	// Failed is told of errors in place of the Logger; it may be nil.
	Failed func(ctx context.Context, err error)
}

// Decide asks the engine, and logs its error: the caller receives the verdict of the
// failure policy, whose reason says so.
func (a *Asker) Decide(ctx context.Context, q engine.Query) engine.Verdict {
	v, err := a.Engine.Decide(ctx, q)
	a.Report(ctx, q.Domain, err)
	return v
}

// DecideBatch is [engine.Engine.DecideBatch]. It logs errors as Decide does.
func (a *Asker) DecideBatch(ctx context.Context, n int, query func(i int) engine.Query, answer func(i int, v *engine.Verdict)) {
	a.Engine.DecideBatch(ctx, n, query, func(i int, v *engine.Verdict, err error) {
		if err != nil {
			a.Report(ctx, query(i).Domain, err)
		}
		answer(i, v)
	})
}

// Report logs err, an error of the engine about a request in a domain, unless it is nil.
func (a *Asker) Report(ctx context.Context, domain string, err error) {
	switch {
	case err == nil:
		return
	case a.Failed != nil:
		a.Failed(ctx, err)
		return
	}
	level := slog.LevelError
	if errors.Is(err, headgate.ErrUnavailable) {
		level = slog.LevelDebug // logged once by what watches the store
	}
	a.Logger.Log(ctx, level, "check failed", "domain", domain, "err", err)
}

// Policy returns the state of the limit of r for header fields. It reports false if the
// limit is hidden from clients or not enforced, or if it is none but a list.
func Policy(r *engine.Result, at int64) (answer.Policy, bool) {
	if !r.Enforced || r.Hidden() || r.Rule.List() != nil {
		return answer.Policy{}, false
	}
	return answer.Policy{Name: r.Rule.Name, Limit: r.Rule.Limit, Decision: r.Decision, At: at}, true
}

// Policies appends the [Policy] of each of results to dst.
func Policies(dst []answer.Policy, results []engine.Result, at int64) []answer.Policy {
	for i := range results {
		if p, ok := Policy(&results[i], at); ok {
			dst = answer.Append(dst, p)
		}
	}
	return dst
}

// Lease returns the token of the slots that v holds while its request is in progress;
// empty if it holds none.
func (a *Asker) Lease(ctx context.Context, v *engine.Verdict) string {
	token, err := a.Engine.LeaseToken(ctx, v)
	if err != nil && a.Engine.WarnsOfToken(v) {
		a.Logger.WarnContext(ctx, "lease token not created, the lease will expire on its own (logged once a minute)", "err", err)
	}
	return token
}

// ReportToken returns the token with which a caller reports the answer to the request of
// v, under rules with charge_on; empty if none applies. at is the time of the decision.
func (a *Asker) ReportToken(ctx context.Context, v *engine.Verdict, at int64) string {
	token, err := a.Engine.ReportToken(ctx, v, at)
	if err != nil && a.Engine.WarnsOfToken(v) {
		a.Logger.WarnContext(ctx, "report token not created, the request will stay charged (logged once a minute)", "err", err)
	}
	return token
}

// Unsettled is why a lease or a reservation was not settled.
type Unsettled uint8

// The values of Unsettled.
const (
	Settled    Unsettled = iota // it was settled
	NotOurs                     // the token was not issued here, or is damaged
	Unanswered                  // the store did not answer; a retry may succeed
	Broken                      // an internal error
)

// WhyUnsettled returns the reason for err. It logs errors whose details callers do not
// receive.
func (a *Asker) WhyUnsettled(ctx context.Context, err error) Unsettled {
	switch {
	case err == nil:
		return Settled
	case errors.Is(err, engine.ErrBadToken):
		return NotOurs
	case errors.Is(err, headgate.ErrUnavailable):
		a.Logger.DebugContext(ctx, "lease or reservation not settled", "err", err)
		return Unanswered
	}
	a.Logger.ErrorContext(ctx, "lease or reservation not settled", "err", err)
	return Broken
}

// leaseFailed is told of a slot that could not be kept or released.
func (a *Asker) leaseFailed(err error) {
	if a.Failed != nil {
		a.Failed(context.Background(), err)
		return
	}
	a.Logger.Debug("lease not renewed or released", "err", err)
}
