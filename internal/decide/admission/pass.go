// Package admission is the life of a request, written once for all doors:
//
//	pass.Begin(ctx, asker, query)  // decided: rules, bans, candidate, observers
//	if !pass.Allowed { … }         // refused, banned, or to be queued: see Outcome
//	err := pass.Enter(ctx)         // waited for its turn; took its slots
//	pass.Answered(ctx, result)     // the header of the answer: what need not count is refunded
//	pass.Settle(ctx, result)       // the end of the answer: its cost is charged, slots are free
//	pass.End()
//
// A door may leave the life at any step; End is all that it owes. Between the steps it does
// what only it knows: it reads requests, passes them on, and writes answers.
//
// Begin decides. If tokens are verified only where rules ask for them, the decision is made
// again once a token turns out to be valid. A request whose key has others waiting in a queue
// takes nothing and waits behind them. From here on, Policies has what header fields tell.
//
// Enter waits as the [Asker] says, and takes the slots of concurrency rules only then,
// because a waiting request is not in progress. If the caller leaves first, what the request
// has taken is refunded. Slots are renewed until Settle or End.
//
// A door that passes requests on settles them by their [Result]. One that answers by itself
// calls AnsweredHere. One that never sees the answer gives its caller a token: see
// [Asker.Lease] and [Asker.ReportToken].
package admission

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"

	"github.com/headgate/headgate/internal/answer"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/rules"
)

// Pass is one request on its way through the limits. The zero Pass has no limits; it may
// be reused after End. Only Lapse may be called concurrently with other methods.
type Pass struct {
	// Verdict is what the limits say so far. It is not Allowed for a request that has to
	// queue behind others.
	engine.Verdict

	Policies []answer.Policy // the limits that callers may see, as they are now
	Dialect  answer.Dialect  // of the header fields of Policies

	asker  *Asker
	query  engine.Query
	ctx    context.Context //nolint:containedctx // of the request, for Refused
	at     int64           // the time of Policies
	again  bool            // observers have counted it before
	hold   *engine.Hold
	behind *engine.Result // the limit whose queue it joins, though it has room
}

// sender is a request whose tokens are verified only when a rule asks for them.
type sender interface {
	Refusal() error // why a token is refused
	Recheck() bool  // reports whether a token has been verified that no rule has seen
}

// Class returns the class of a request under priorities, before it begins.
func (p *Pass) Class(ctx context.Context, a *Asker, q engine.Query, by *rules.Priorities, m *rules.Matches) rules.Class {
	p.asker, p.query, p.ctx = a, q, ctx
	return a.Engine.Rules().Class(by, q.Request, m)
}

// Begin decides about a request.
func (p *Pass) Begin(ctx context.Context, a *Asker, q engine.Query) {
	p.asker, p.query, p.ctx = a, q, ctx
	s, _ := q.Request.(sender)
	err := p.decide(ctx, s)
	if s != nil && (p.Allowed || p.Outcome() != engine.Refused) && s.Recheck() { // what refused it no longer does
		p.Leave(ctx)
		p.Release()
		err = p.decide(ctx, s)
	}
	a.Report(ctx, q.Domain, err)
	p.Dialect = a.Dialect.Or(p.Headers())
	p.keep(q.At)
}

// BeginAgain decides again about a request that was refused before, by its claims; see
// [engine.Engine.Again]. With an error, it has taken nothing.
func (p *Pass) BeginAgain(ctx context.Context, a *Asker, domain string, claims []engine.Claim, at int64) (err error) {
	p.asker, p.query, p.ctx, p.again = a, engine.Query{Domain: domain, At: at}, ctx, true
	p.Verdict, err = a.Engine.Again(ctx, domain, claims, at)
	if err != nil {
		p.Leave(ctx)
	} else {
		p.keep(at)
	}
	return err
}

// Refused implements [client.Sender]: a request that is refused whatever its tokens say is
// no reason to fetch keys.
func (p *Pass) Refused() bool { return p.asker.Engine.RefusesAnyway(p.ctx, p.query) }

// decide asks the limits.
func (p *Pass) decide(ctx context.Context, s sender) (err error) {
	a := p.asker
	if p.query.Waits && a.Queue != nil {
		if q := a.Queue(); q != nil && a.Engine.Rules().HasQueues() && (s == nil || s.Refusal() == nil) {
			return p.askInLine(ctx, q)
		}
	}
	p.Verdict, err = a.Engine.Decide(ctx, p.query)
	return err
}

// keep notes the answers of the limits at a time, and renews the slots that they gave.
func (p *Pass) keep(at int64) {
	p.setPolicies(at)
	if p.Allowed && p.HasLeases() {
		p.hold = p.asker.Engine.Hold(p.ctx, &p.Verdict, engine.HoldOptions{Clock: p.asker.Clock, Failed: p.asker.leaseFailed})
	}
}

// setPolicies sets Policies to what the limits say at a time.
func (p *Pass) setPolicies(at int64) {
	p.at, p.Policies = at, Policies(p.Policies[:0], p.Results(), at)
}

// now returns the time in microseconds since the Unix epoch.
func (p *Pass) now() int64 { return p.asker.Clock().UnixMicro() }

// ErrRefused means that a request was refused when its turn came: its verdict says why.
var ErrRefused = errors.New("refused when its turn came")

// Enter waits for the turn of an allowed request, and then takes its slots. With
// ErrRefused, none was free, and the verdict is a refusal. Any other error is that of
// Asker.Wait. In both cases, what the request took is refunded.
func (p *Pass) Enter(ctx context.Context) error {
	if p.Delay > 0 && p.asker.Wait != nil {
		if err := p.asker.Wait(ctx, p.Delay, false); err != nil {
			p.Leave(ctx)
			return err
		}
	}
	p.at += p.Delay.Microseconds()
	if !p.Defers() {
		return nil
	}
	e, q := p.asker.Engine, p.query
	q.At = p.now()
	p.asker.Report(ctx, q.Domain, e.Enter(ctx, &p.Verdict, q.At))
	p.keep(q.At)
	if p.Allowed {
		return nil
	}
	if !p.again {
		e.ReportTake(ctx, q, p.Verdict)
	}
	return ErrRefused
}

// Leave refunds a request that was allowed but will not run, and frees its place in line.
func (p *Pass) Leave(ctx context.Context) {
	if !p.Allowed {
		return
	}
	if err := p.asker.Engine.Refund(context.WithoutCancel(ctx), &p.Verdict, p.now()); err != nil {
		p.asker.Logger.DebugContext(ctx, "queue slot not freed", "err", err)
	}
}

// SoftField tells an upstream which rules mark the request. What others send in it must not
// reach an upstream.
const SoftField = "X-Headgate-Soft"

// Soft returns the value of [SoftField]: the names of the rules that mark the request, or
// an empty text.
func (p *Pass) Soft() string {
	if p.Marked == 0 {
		return ""
	}
	var space [4]string
	return strings.Join(p.Marks(space[:0]), ", ")
}

// Refusal returns the answer of the rule that refused.
func (p *Pass) Refusal() answer.Refusal {
	on := &p.Rule.OnLimit
	return answer.Refusal{
		Status: on.Status, Stated: on.Stated, Body: on.Body, ContentType: on.ContentType, Bodies: on.Bodies, Headers: on.Headers,
		Policies: p.Policies, Dialect: p.Dialect, OnDenyList: p.Rule.List() != nil,
	}
}

// Pretend returns the answer to a request under a shadow ban, after as long as the rule
// says that one takes. The limits that the client sees count that answer.
func (p *Pass) Pretend(ctx context.Context) answer.Refusal {
	latency := p.Rule.OnLimit.Latency.Pick(rand.Int64N)
	if left := latency - sinceMicro(p.query.At, p.now()); latency > 0 && left > 0 {
		_ = p.asker.Wait(ctx, left, true) // if it is cut short, the answer is still the same
	}
	p.AnsweredHere(ctx, p.Rule.OnLimit.Status)
	return p.Refusal()
}

// Waits returns the result of the limit in whose queue the request has to wait, if its
// Outcome is Queued; or nil.
func (p *Pass) Waits() *engine.Result {
	if p.behind != nil {
		return p.behind
	}
	return p.Refuser()
}

// Holds reports whether the request has slots.
func (p *Pass) Holds() bool { return p.hold != nil }

// Lapse lets the slots expire, because nothing will say when the request ends.
func (p *Pass) Lapse() { p.hold.Lapse() }

// End releases what the request still holds, and makes p the zero Pass. Verdict stays valid
// without its Results.
func (p *Pass) End() {
	p.hold.End()
	p.Release()
	clear(p.Policies)
	*p = Pass{Policies: p.Policies[:0]}
}

// AnsweredHere settles rules with charge_on for a request that a door answers itself.
func (p *Pass) AnsweredHere(ctx context.Context, status int) {
	if p.HasChargeOn() {
		p.settled(ctx, func(ctx context.Context, at int64) error {
			return p.asker.Engine.SettleAnswer(ctx, &p.Verdict, at, rules.Answer{Status: status})
		})
		p.setPolicies(p.at)
	}
}

// Answered settles rules with charge_on as soon as the header of the answer is there, or it
// is known that there is none. Policies then has what remains.
func (p *Pass) Answered(ctx context.Context, r *Result) {
	if p.HasChargeOn() {
		p.settleBy(ctx, func(c *rules.CostAfter) (int64, engine.CostKnowledge) {
			if c.On == nil || r.From != Upstream && r.From != Unreached {
				return 0, engine.CostPending
			}
			return r.charge(c.On, true)
		})
		p.setPolicies(p.at)
	}
}

// Settle charges what an answer that has ended cost, instead of the estimate, and releases
// the slots. A cost that can no longer be known is what the rule says, so a client gains
// nothing by hanging up, reading slowly or not finishing its body.
func (p *Pass) Settle(ctx context.Context, r *Result) {
	if p.HasCostAfter() {
		p.settleBy(ctx, func(c *rules.CostAfter) (int64, engine.CostKnowledge) {
			if c.On != nil {
				return r.charge(c.On, false)
			}
			cost, known := r.cost(c)
			if known == engine.CostEstimated && r.text(c.Header) != "" {
				p.asker.Logger.DebugContext(ctx, "upstream cost is not a whole number", "header", c.Header, "value", r.text(c.Header))
			}
			return cost, known
		})
	}
	if p.hold != nil && p.asker.Linger != nil && !r.Ended && r.From != Unreached && (r.Broken || r.From == TimedOut) {
		p.asker.Linger(p.hold) // the upstream may continue with the part that it has
		p.hold = nil
	}
	p.hold.End()
}

func (p *Pass) settleBy(ctx context.Context, costOf func(*rules.CostAfter) (int64, engine.CostKnowledge)) {
	p.settled(ctx, func(ctx context.Context, at int64) error {
		return p.asker.Engine.SettleCosts(ctx, &p.Verdict, at, costOf)
	})
}

// settled settles costs, even if the client is gone.
func (p *Pass) settled(ctx context.Context, by func(ctx context.Context, at int64) error) {
	ctx = context.WithoutCancel(ctx)
	if p.asker.Patience > 0 {
		bounded, cancel := context.WithTimeout(ctx, p.asker.Patience)
		defer cancel()
		ctx = bounded
	}
	if err := by(ctx, p.now()); err != nil {
		p.asker.Logger.DebugContext(ctx, "cost not settled, estimate kept", "domain", p.query.Domain, "err", err)
	}
}
