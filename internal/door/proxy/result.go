package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"

	"github.com/headgate/headgate/internal/decide/admission"
	"github.com/headgate/headgate/internal/queue"
	"github.com/headgate/headgate/internal/rules"
)

// grpcStatus is the field or trailer with the code of a gRPC answer.
const grpcStatus = "Grpc-Status"

// resultOf returns what is known of the answer to a request: res, or why the upstream did
// not answer.
func resultOf(res *http.Response, fault error) *admission.Result {
	status, _ := failure(fault)
	switch {
	case res != nil:
		return &admission.Result{From: admission.Upstream, Status: res.StatusCode, Header: res.Header, Trailer: res.Trailer}
	case fault == nil:
		return &admission.Result{}
	case unreached(fault):
		return &admission.Result{From: admission.Unreached, Status: status}
	case isTimeout(fault):
		return &admission.Result{From: admission.TimedOut, Status: status}
	}
	return &admission.Result{From: admission.Failed, Status: status}
}

// fails reports whether an answer is an error of the upstream: a 5xx or, of a gRPC call, a status
// that means the same and ends the answer in its header. After a message it is in the trailer,
// and not seen.
func fails(res *http.Response) bool {
	if res.StatusCode >= http.StatusInternalServerError {
		return true
	}
	switch rules.CodeIn(res.Header.Get(grpcStatus)) {
	case rules.Unknown, rules.DeadlineExceeded, rules.ResourceExhausted, rules.Internal, rules.Unavailable, rules.DataLoss:
		return true
	default:
		return false
	}
}

// unreached reports whether the upstream did not receive a request that failed with err.
func unreached(err error) bool {
	_, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
	op, ok := errors.AsType[*net.OpError](err)
	return untrusted || ok && op.Op == "dial" || errors.Is(err, ErrUpstreamFull)
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
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

// chargeByHeader settles rules with charge_on as soon as the header of the answer is
// there, or it is known that the upstream was not reached. The client's rate-limit
// headers then show what remains.
func chargeByHeader(ctx context.Context, x *exchange) {
	if x.pass.HasChargeOn() {
		x.pass.Answered(ctx, resultOf(x.answer, x.fault))
	}
}

// Outcome returns what [Proxy.Deliver] learned of an answer.
func (*Proxy) Outcome(told queue.Answer, err error) *admission.Result {
	r := resultOf(told.Response, err)
	r.Ended, r.Gone = told.Ended, errors.Is(err, context.Canceled)
	return r
}

// unknownCost reports whether a rule of e needs a cost that is not in the header of
// res, but may be in its trailer.
func (p *Proxy) unknownCost(e *queue.Entry, res *http.Response) bool {
	rs, r := p.options.Engine.Rules(), resultOf(res, nil)
	for _, claim := range e.Claims {
		if rule := rs.Rule(e.Domain, claim.Rule); rule != nil && rule.CostAfter != nil && !r.Tells(rule.CostAfter) {
			return true
		}
	}
	return false
}
