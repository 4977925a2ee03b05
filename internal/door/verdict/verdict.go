// Package verdict is what doors do with a verdict of the engine: which limits they
// report, how they answer a refusal, and what they log.
package verdict

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/door/answer"
	"github.com/headgate/headgate/internal/request/client"
	"github.com/headgate/headgate/internal/request/described"
	"github.com/headgate/headgate/internal/rules"
)

// Asker is what a door asks the engine by, and what it tells of that.
type Asker struct {
	Engine  *engine.Engine   // Engine decides. Required.
	Clients *client.Resolver // says who a client is, and how addresses are grouped to be counted. Required.
	// Clock is read once per request, or for all that arrive together. Required,
	// unless a door says that the store's clock decides without one.
	Clock   func() time.Time
	Logger  *slog.Logger   // hears of what callers cannot be told. Required.
	Dialect answer.Dialect // that of the header fields
}

// Check is one question of a caller who names attributes, and its rules.Request.
type Check struct {
	described.Request

	Domain string
	Cost   int64
	Kind   headgate.Kind
}

// Query is what c asks the engine.
func (c *Check) Query(at int64, door engine.Door) engine.Query {
	return engine.Query{Domain: c.Domain, Request: c, Cost: c.Cost, At: at, Kind: c.Kind, Door: door}
}

// Decide asks the engine. Its error does not concern the caller, who gets what
// the policy says; the verdict's reason tells.
func (a *Asker) Decide(ctx context.Context, q engine.Query) engine.Verdict {
	v, err := a.Engine.Decide(ctx, q)
	a.Report(ctx, q.Domain, err)
	return v
}

// Report logs an error of the engine about a request in a domain, if it is one.
func (a *Asker) Report(ctx context.Context, domain string, err error) {
	if err == nil {
		return
	}
	level := slog.LevelError
	if errors.Is(err, headgate.ErrUnavailable) {
		level = slog.LevelDebug // whoever watches the store says so once
	}
	a.Logger.Log(ctx, level, "check failed", "domain", domain, "err", err)
}

// Policy returns what r says of its limit, for header fields, and false if the
// client must not learn of it or it does not hold.
func Policy(r *engine.Result, at int64) (answer.Policy, bool) {
	if !r.Enforced || r.Hidden() {
		return answer.Policy{}, false
	}
	return answer.Policy{Name: r.Rule.Name, Limit: r.Rule.Limit, Decision: r.Decision, At: at}, true
}

// Policies appends what results say, each as [Policy] does.
func Policies(dst []answer.Policy, results []engine.Result, at int64) []answer.Policy {
	for i := range results {
		if p, ok := Policy(&results[i], at); ok {
			dst = answer.Append(dst, p)
		}
	}
	return dst
}

// Refusal returns what the rule that refused v answers.
func Refusal(v *engine.Verdict, policies []answer.Policy, dialect answer.Dialect) answer.Refusal {
	on := &v.Rule.OnLimit
	return answer.Refusal{
		Status: on.Status, Body: on.Body, ContentType: on.ContentType, Bodies: on.Bodies, Headers: on.Headers,
		Policies: policies, Dialect: dialect,
	}
}

// Refuse answers a request over its limit as the rule that refused v says.
func Refuse(w http.ResponseWriter, r *http.Request, v *engine.Verdict, told answer.Refusal) {
	on := &v.Rule.OnLimit
	if on.Action == rules.ShadowBan { // refused all the same, as the store did not answer
		answer.Problem(w, http.StatusServiceUnavailable, "the service is temporarily unavailable")
		return
	}
	answer.Postpone(told.Policies, on.Jitter.Extra)
	answer.Refuse(w, r, told)
}

// Lease returns the token of what v holds while its request is in flight; empty
// if it holds nothing.
func (a *Asker) Lease(ctx context.Context, v *engine.Verdict) string {
	token, err := a.Engine.LeaseToken(ctx, v)
	if err != nil && a.Engine.WarnsOfToken(v) {
		a.Logger.WarnContext(ctx, "lease token not created, the lease will expire on its own (logged once a minute)", "err", err)
	}
	return token
}

// Unsettled is why a lease or a reservation was not settled.
type Unsettled uint8

// The reasons.
const (
	Settled    Unsettled = iota // there is none
	NotOurs                     // the token was not given here, or is damaged
	Unanswered                  // the store did not answer, and may when it is tried again
	Broken                      // something that must not happen did
)

// WhyUnsettled returns the reason in err, which it logs if the caller cannot be
// told all of it.
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

// Leave frees the place in the queue of a request whose caller has gone.
func Leave(ctx context.Context, e *engine.Engine, log *slog.Logger, v *engine.Verdict, at int64) {
	if err := e.Undo(context.WithoutCancel(ctx), v, at); err != nil {
		log.DebugContext(ctx, "queue slot not freed", "err", err)
	}
}
