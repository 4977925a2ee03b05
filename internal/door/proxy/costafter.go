package proxy

import (
	"context"
	"errors"
	"net"
	"net/http"

	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/queue"
	"github.com/headgate/headgate/internal/rules"
)

// costText returns the cost that an answer reports, from its header or its trailer,
// which only arrives at its end.
func costText(res *http.Response, field string) string {
	if text := res.Header.Get(field); text != "" {
		return text
	}
	return res.Trailer.Get(field)
}

// tellsAll reports whether the header of res contains all costs of v.
func tellsAll(v *engine.Verdict, res *http.Response) bool {
	results := v.Results()
	for i := range results {
		if c := results[i].Rule.CostAfter; c != nil && !inHeader(c, res) {
			return false
		}
	}
	return true
}

// inHeader reports whether the header of res contains the cost.
func inHeader(c *rules.CostAfter, res *http.Response) bool {
	if c.On != nil {
		_, known := (&outcome{answer: res}).charge(c.On)
		return known != engine.CostPending
	}
	_, ok := c.Cost(res.Header.Get(c.Header))
	return ok
}

// unknownCost reports whether a rule of e needs a cost that is not in the header of
// res, but may be in its trailer.
func (p *Proxy) unknownCost(e *queue.Entry, res *http.Response) bool {
	rs := p.options.Engine.Rules()
	for _, claim := range e.Claims {
		if rule := rs.Rule(e.Domain, claim.Rule); rule != nil && rule.CostAfter != nil && !inHeader(rule.CostAfter, res) {
			return true
		}
	}
	return false
}

// settleCosts charges the cost that the upstream reported instead of the estimate,
// after the response has ended. A cost that can no longer be known is what the rule
// says, so a client gains nothing by hanging up, reading slowly or not finishing its
// body.
func (p *Proxy) settleCosts(ctx context.Context, x *exchange, v *engine.Verdict) {
	o := outcome{answer: x.answer, fault: x.fault, broken: x.upload.broken() != nil, ended: x.outlast.ended}
	o.gone = x.outlast.isGone()
	p.settleOutcome(ctx, v, &o)
}

// SettleDelivery charges the cost of a request that [Proxy.Deliver] sent.
func (p *Proxy) SettleDelivery(ctx context.Context, v *engine.Verdict, told queue.Answer, err error) {
	if v.HasCostAfter() {
		p.settleOutcome(ctx, v, &outcome{answer: told.Response, fault: err, ended: told.Ended, gone: errors.Is(err, context.Canceled)})
	}
}

func (p *Proxy) settleOutcome(ctx context.Context, v *engine.Verdict, o *outcome) {
	o.over = true
	p.settled(ctx, v, func(c *rules.CostAfter) (int64, engine.CostKnowledge) {
		if c.On != nil {
			return o.charge(c.On)
		}
		cost, known := o.costOf(c)
		if known == engine.CostEstimated && o.answer != nil && costText(o.answer, c.Header) != "" {
			p.options.Logger.DebugContext(ctx, "upstream cost is not a whole number", "header", c.Header, "value", costText(o.answer, c.Header))
		}
		return cost, known
	})
}

// settled settles the costs of v, even if the client is gone.
func (p *Proxy) settled(ctx context.Context, v *engine.Verdict, costOf func(*rules.CostAfter) (int64, engine.CostKnowledge)) {
	p.logUnsettled(ctx, p.options.Engine.SettleCosts(context.WithoutCancel(ctx), v, p.options.Clock().UnixMicro(), costOf))
}

func (p *Proxy) logUnsettled(ctx context.Context, err error) {
	if err != nil {
		p.options.Logger.DebugContext(ctx, "cost not settled, estimate kept", "err", err)
	}
}

// outcome is the result of a request to the upstream.
type outcome struct {
	answer *http.Response // nil if there is none
	fault  error          // why there is none
	broken bool           // the client did not send all of the body
	gone   bool           // the client has left, or this process stops
	ended  bool           // the answer was complete
	over   bool           // nothing more of the answer will come
}

// costOf returns the cost, if it is known, and how well.
func (o *outcome) costOf(c *rules.CostAfter) (int64, engine.CostKnowledge) {
	if res := o.answer; res != nil {
		if res.StatusCode >= http.StatusInternalServerError && c.CancelErrors && !o.broken {
			return 0, engine.CostKnown
		}
		if cost, ok := c.Cost(costText(res, c.Header)); ok {
			return cost, engine.CostKnown
		}
		if !o.ended && (o.gone || o.broken) { // otherwise the upstream broke off
			return 0, engine.CostAborted
		}
		return 0, engine.CostEstimated
	}
	switch {
	case !isDial(o.fault) && (o.broken || o.gone || o.fault == nil || isTimeout(o.fault)):
		return 0, engine.CostAborted // the upstream worked on it, or may have
	case c.CancelErrors:
		return 0, engine.CostKnown
	}
	return 0, engine.CostEstimated
}

// isDial reports whether err means that the upstream was not reached.
func isDial(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial" || errors.Is(err, ErrUpstreamFull)
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}
