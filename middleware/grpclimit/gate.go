package grpclimit

import (
	"context"
	"slices"
	"sync"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/decide/checks"
	"github.com/headgate/headgate/store"
)

// admit takes everything that c needs or nothing, and waits if [Wait] allows it. The
// slots have to be ended with the call. The error is a gRPC status.
func (g *gate) admit(c *Call) (places, error) {
	if len(g.only) > 0 && !slices.Contains(g.only, c.Method) {
		return places{}, nil
	}
	c.client = g.client
	ops := slices.Clone(g.limits.Ops)
	g.limits.About(c, ops)
	left, decisions := g.maxWait, make([]store.Decision, len(ops))
	for {
		asked := g.limits.Limiter.Caller().Now()
		tightest, err := g.limits.AllowAll(c.Context, ops, decisions)
		if err != nil && g.onError != nil {
			g.onError(c.Context, err)
		}
		if tightest.Allowed {
			return g.turn(c.Context, ops, decisions, asked)
		}
		wait := tightest.RetryAfter
		if wait > left || wait <= 0 || tooLate(c.Context, wait) {
			return places{}, g.refusal(ops, decisions)
		}
		left -= wait
		if err := g.limits.Limiter.Caller().Sleep(c.Context, wait); err != nil {
			return places{}, status.FromContextError(err).Err()
		}
	}
}

// turn waits for the turn of a call in a leaky bucket and then takes its slots. If the
// caller leaves, everything is refunded.
func (g *gate) turn(ctx context.Context, ops []store.Op, decisions []store.Decision, asked time.Time) (places, error) {
	var delay time.Duration
	for _, d := range decisions {
		delay = max(delay, d.Delay)
	}
	undo := func() {
		own, cancel := context.WithTimeout(context.WithoutCancel(ctx), checks.RefundTimeout)
		defer cancel()
		if e := g.limits.Limiter.Caller().Refund(own, ops, decisions, g.limits.Limiter.Caller().Now().Sub(asked)); e != nil && g.onError != nil {
			g.onError(ctx, e)
		}
	}
	if delay > 0 {
		if err := g.limits.Limiter.Caller().Sleep(ctx, delay); err != nil {
			undo()
			return places{}, status.FromContextError(err).Err()
		}
	}
	tightest, err := g.limits.Enter(ctx, ops, func(i int) *store.Decision { return &decisions[i] }, undo)
	if err != nil && g.onError != nil {
		g.onError(ctx, err)
	}
	if !tightest.Allowed {
		return places{}, g.refusal(ops, decisions)
	}
	marks, err := g.limits.Mark(ctx, ops, func(i int) *store.Decision { return &decisions[i] })
	if err != nil && g.onError != nil {
		g.onError(ctx, err)
	}
	held := g.hold(ctx, ops, decisions)
	held.marks = marks
	if len(g.chargeOn) > 0 {
		held.charge = &charge{undo: undo}
	}
	return held, nil
}

// tooLate reports whether the caller's deadline is before the end of wait.
func tooLate(ctx context.Context, wait time.Duration) bool {
	deadline, ok := ctx.Deadline()
	return ok && time.Until(deadline) < wait //nolint:forbidigo // a context's deadline is on the real clock
}

// refusal returns the error for a refused call.
func (g *gate) refusal(ops []store.Op, decisions []store.Decision) error {
	quota := &errdetails.QuotaFailure{}
	code, message, after := codes.ResourceExhausted, "rate limit exceeded", time.Duration(0)
	for i, d := range decisions {
		if d.Allowed {
			continue
		}
		name := g.limits.NameOf(i, headgate.LimitOf(ops[i].Rule))
		quota.Violations = append(quota.Violations, &errdetails.QuotaFailure_Violation{
			Subject: "limit:" + name, Description: ops[i].Rule.String(),
		})
		if d.Reason == headgate.ReasonFailClosed {
			code, message = codes.Unavailable, "rate limits cannot be checked"
		}
		after = max(after, d.RetryAfter)
	}
	var details []protoadapt.MessageV1
	switch {
	case decisions[store.Tightest(decisions)].Reason == headgate.ReasonHeadroom:
		code, message = codes.Unavailable, "what is left is kept for more important calls"
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(after)}, &errdetails.ErrorInfo{Reason: "HEADROOM", Domain: "headgate"})
	case code == codes.Unavailable:
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(max(after, time.Second))})
	case after == headgate.Never:
		message = "the call costs more than its limit ever allows"
		details = append(details, quota)
	default:
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(after)}, quota)
	}
	s := status.New(code, message)
	if detailed, err := s.WithDetails(details...); err == nil {
		s = detailed
	}
	return s.Err()
}

// RetryAfter returns when a call may be tried again, from the google.rpc.RetryInfo of
// its error. It reports false for any other error.
func RetryAfter(err error) (time.Duration, bool) {
	s, ok := status.FromError(err)
	if !ok || err == nil {
		return 0, false
	}
	for _, detail := range s.Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok {
			return info.GetRetryDelay().AsDuration(), true
		}
	}
	return 0, false
}

// places is what a call has taken: the leases for headgate.Concurrent, which it holds
// until its end, and what it is charged until its status is known.
type places struct {
	gate   *gate
	ctx    context.Context //nolint:containedctx // of the call, whose values the release keeps
	leases []*store.Lease
	charge *charge  // nil without ChargeOn
	marks  []string // the names of the limits that mark the call
}

// Soft returns the names of the limits that mark a call which an interceptor has passed on,
// from the context of its handler, or of the interceptors behind it: the call uses more of
// them than [SoftAt] says, or is over a limit with [OnlyMark]. Without a mark it returns nil.
func Soft(ctx context.Context) []string { return checks.Marks(ctx) }

// marked is a stream whose call limits mark.
type marked struct {
	grpc.ServerStream
	ctx context.Context //nolint:containedctx // it is the context of the stream
}

// Context implements grpc.ServerStream.
func (m *marked) Context() context.Context { return m.ctx }

// charge is what a call has taken, until its status settles it.
type charge struct {
	once sync.Once // a stream of a client may end twice
	undo func()
}

// answered refunds the call if [ChargeOn] does not count the status that err stands for.
func (p *places) answered(err error) {
	if p.charge == nil {
		return
	}
	p.charge.once.Do(func() {
		// What the caller has not waited for counts, at a server.
		if (p.gate.client || p.ctx.Err() == nil) && !slices.Contains(p.gate.chargeOn, codeOf(err)) {
			p.charge.undo()
		}
	})
}

// codeOf returns the status that grpc answers a call with whose handler returned err.
func codeOf(err error) codes.Code {
	if s, ok := status.FromError(err); ok {
		return s.Code()
	}
	return status.FromContextError(err).Code()
}

// hold keeps the leases among decisions.
func (g *gate) hold(ctx context.Context, ops []store.Op, decisions []store.Decision) places {
	return places{gate: g, ctx: ctx, leases: g.limits.Keep(ops, func(i int) *store.Decision { return &decisions[i] })}
}

// end releases the leases. Further calls do nothing.
func (p *places) end() {
	checks.Release(p.ctx, p.leases, func(err error) {
		if p.gate.onError != nil {
			p.gate.onError(p.ctx, err)
		}
	})
}
