// Package verdict turns a verdict of the engine into what doors report, answer and log.
package verdict

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/answer"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/door/described"
	"github.com/headgate/headgate/internal/request/client"
	"github.com/headgate/headgate/internal/rules"
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
}

// Check is one check by a caller that sends attributes; it is their rules.Request.
type Check struct {
	described.Request

	Domain string
	Cost   int64
	Kind   headgate.Kind
	// Rule, if not nil, is a limit that came with the check, which counts by Key.
	Rule *rules.Rule
	Key  string
}

// Query returns the query for the engine.
func (c *Check) Query(at int64, door engine.Door) engine.Query {
	return engine.Query{Domain: c.Domain, Request: c, Cost: c.Cost, At: at, Kind: c.Kind, Door: door, Rule: c.Rule, Key: c.Key}
}

// Decide asks the engine, and logs its error: the caller receives the verdict of the
// failure policy, whose reason says so.
func (a *Asker) Decide(ctx context.Context, q engine.Query) engine.Verdict {
	v, err := a.Engine.Decide(ctx, q)
	a.Report(ctx, q.Domain, err)
	return v
}

// Report logs err, an error of the engine about a request in a domain, unless it is nil.
func (a *Asker) Report(ctx context.Context, domain string, err error) {
	if err == nil {
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

// Refusal returns the answer of the rule that refused v.
func Refusal(v *engine.Verdict, policies []answer.Policy, dialect answer.Dialect) answer.Refusal {
	on := &v.Rule.OnLimit
	return answer.Refusal{
		Status: on.Status, Body: on.Body, ContentType: on.ContentType, Bodies: on.Bodies, Headers: on.Headers,
		Policies: policies, Dialect: dialect, Denied: v.Rule.List() != nil,
	}
}

// Refuse answers a request over its limit as the rule that refused v says.
func Refuse(w http.ResponseWriter, r *http.Request, v *engine.Verdict, told answer.Refusal) {
	on := &v.Rule.OnLimit
	if on.Action == rules.ShadowBan { // refused, since the store did not answer
		answer.Problem(w, http.StatusServiceUnavailable, "the service is temporarily unavailable")
		return
	}
	answer.Postpone(told.Policies, on.Jitter.Extra)
	answer.Refuse(w, r, told)
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

// Leave refunds a waiting request whose caller has gone, and frees its place in line.
func Leave(ctx context.Context, e *engine.Engine, log *slog.Logger, v *engine.Verdict, at int64) {
	if err := e.Undo(context.WithoutCancel(ctx), v, at); err != nil {
		log.DebugContext(ctx, "queue slot not freed", "err", err)
	}
}
