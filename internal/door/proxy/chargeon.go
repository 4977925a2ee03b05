package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"

	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/door/verdict"
	"github.com/headgate/headgate/internal/rules"
)

// grpcStatus is the field or trailer with the code of a gRPC answer.
const grpcStatus = "Grpc-Status"

// charge returns whether the answer counts under a rule with charge_on; see
// engine.CostByAnswer. An answer that may still tell is CostPending until o.over.
func (o *outcome) charge(c *rules.ChargeOn) (int64, engine.CostKnowledge) {
	a := rules.Answer{Open: !o.over}
	switch res := o.answer; {
	case res != nil:
		a.Status, a.Header, a.Code = res.StatusCode, res.Header, rules.CodeIn(costText(res, grpcStatus))
	case unreached(o.fault):
		a.Status, _ = failure(o.fault)
	default:
		return 0, engine.CostAborted
	}
	return engine.CostByAnswer(c, &a)
}

// unreached reports whether the upstream did not receive a request that failed with err.
func unreached(err error) bool {
	_, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
	return untrusted || isDial(err)
}

// failure returns the answer to a request that the upstream did not answer because of
// err.
func failure(err error) (status int, detail string) {
	switch {
	case errors.Is(err, ErrUpstreamFull):
		return http.StatusServiceUnavailable, "overloaded: too many connections to the upstream"
	case isTimeout(err):
		return http.StatusGatewayTimeout, "the upstream did not answer in time"
	}
	return http.StatusBadGateway, "the upstream cannot be reached"
}

// settleHeader settles rules with charge_on as soon as the header of the answer is
// there, or it is known that the upstream was not reached. The client's rate-limit
// headers then show what remains.
func (p *Proxy) settleHeader(ctx context.Context, x *exchange) {
	if x.outlast == nil || x.outlast.costs == nil || !x.outlast.costs.HasChargeOn() {
		return
	}
	v, o := x.outlast.costs, outcome{answer: x.answer, fault: x.fault}
	p.settled(ctx, v, func(c *rules.CostAfter) (int64, engine.CostKnowledge) {
		if c.On == nil || o.answer == nil && !unreached(o.fault) {
			return 0, engine.CostPending
		}
		return o.charge(c.On)
	})
	x.policies = verdict.Policies(x.policies[:0], v.Results(), x.at.UnixMicro())
}

// settleOwn settles rules with charge_on for a request that Headgate answers itself.
func (p *Proxy) settleOwn(ctx context.Context, x *exchange, v *engine.Verdict, status int) {
	if !v.HasChargeOn() {
		return
	}
	err := p.options.Engine.SettleAnswer(context.WithoutCancel(ctx), v, p.options.Clock().UnixMicro(), rules.Answer{Status: status})
	p.logUnsettled(ctx, err)
	x.policies = verdict.Policies(x.policies[:0], v.Results(), x.at.UnixMicro())
}
