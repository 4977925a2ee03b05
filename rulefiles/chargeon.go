package rulefiles

import (
	"cmp"
	"context"
	"errors"
	"net/http"

	"github.com/headgate/headgate/internal/answer"
	"github.com/headgate/headgate/internal/decide/checks"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/door/verdict"
	"github.com/headgate/headgate/internal/rules"
)

// grpcStatus is the field or trailer with the code of a gRPC answer.
const grpcStatus = "Grpc-Status"

// charged is a request that rules with charge_on have charged, until its answer settles
// it.
type charged struct {
	rules   *Rules
	ctx     context.Context //nolint:containedctx // of the request
	verdict *engine.Verdict
	w       http.ResponseWriter
	dialect answer.Dialect
	told    answer.Told
	at      int64 // when it was decided
	status  int   // of the answer; 0 if nobody saw it
}

// serve passes the request to next and settles it by the answer.
func (c *charged) serve(request *http.Request, next http.Handler) {
	defer c.end() // also if next panics
	watched := answer.Watch(c.w, c.answered)
	next.ServeHTTP(watched, request)
	watched.End()
}

// answered settles what the header of the answer tells, before it is sent.
func (c *charged) answered(status int) {
	if errors.Is(c.ctx.Err(), context.Canceled) {
		return // the client has hung up before
	}
	c.status = status
	c.settle(false)
	c.told.Update(c.w.Header(), c.dialect, verdict.Policies(nil, c.verdict.Results(), c.at)...)
}

// end settles the rest, after the answer has ended.
func (c *charged) end() { c.settle(true) }

func (c *charged) settle(over bool) {
	header := c.w.Header()
	a := rules.Answer{Status: c.status, Header: header, Code: codeOf(header), Open: !over}
	c.rules.settle(c.ctx, func(ctx context.Context, at int64) error {
		return c.rules.engine.SettleCosts(ctx, c.verdict, at, func(cost *rules.CostAfter) (int64, engine.CostKnowledge) {
			switch {
			case cost.On == nil:
				return 0, engine.CostPending
			case c.status == 0:
				return 0, engine.CostAborted
			}
			return engine.CostByAnswer(cost.On, &a)
		})
	})
}

// settle settles charges, even if the client is gone.
func (r *Rules) settle(ctx context.Context, by func(ctx context.Context, at int64) error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), checks.RefundTimeout)
	defer cancel()
	if err := by(ctx, r.limiter.Now().UnixMicro()); err != nil {
		r.log.DebugContext(ctx, "request not given back, its charge stays", "domain", r.domain, "err", err)
	}
}

// settlePretended settles a request that is answered as if it had passed, and returns
// the policies to tell.
func (r *Rules) settlePretended(ctx context.Context, v *engine.Verdict, as answer.Refusal) []answer.Policy {
	if !v.HasChargeOn() {
		return as.Policies
	}
	r.settle(ctx, func(ctx context.Context, at int64) error {
		return r.engine.SettleAnswer(ctx, v, at, rules.Answer{Status: as.Status})
	})
	if len(as.Policies) == 0 {
		return nil
	}
	return verdict.Policies(as.Policies[:0], v.Results(), as.Policies[0].At)
}

// codeOf returns the gRPC code in a header or trailer.
func codeOf(header http.Header) rules.Code {
	return rules.CodeIn(cmp.Or(header.Get(grpcStatus), header.Get(http.TrailerPrefix+grpcStatus)))
}
