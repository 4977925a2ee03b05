package httplimit

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/answer"
	"github.com/headgate/headgate/internal/decide/checks"
	"github.com/headgate/headgate/store"
)

// Gate is the core of the middleware of [New], for frameworks with another kind of
// middleware, such as ginlimit, echolimit and fiberlimit. They call [Gate.Enter] before
// the handler, give it the context of [Pass.Mark], call [Pass.Answered] when its answer has
// a header, [Pass.Leave] after it, and defer [Pass.End].
type Gate struct {
	config
	limits checks.Limits[*http.Request]
}

// NewGate returns a gate. It takes the arguments of [New], and panics like it.
func NewGate(limiter *headgate.Limiter, limit headgate.Limit, options ...Option) *Gate {
	g, err := build(limiter, limit, options, (*store.Caller).Claim)
	if err != nil {
		panic(err) //nolint:forbidigo // like http.ServeMux.Handle: a bug in the program; see Validate
	}
	return g
}

// Pass is what an admitted request has taken.
type Pass struct {
	gate *Gate
	ctx  context.Context //nolint:containedctx // it lives as long as the request
	r    *http.Request
	ticket
	leases  []*store.Lease // held until End
	told    answer.Written // the header fields that Enter has set
	marks   []string       // the names of the limits that mark it
	settled bool           // by Answered
}

// Enter decides about r. If it is allowed, Enter waits for its turn, sets the header
// fields of w and reports true. Otherwise it answers the request on w and reports
// false.
//
// ctx, for net/http r.Context(), limits store calls and waiting. Options read Method,
// Host, URL, Header, RemoteAddr and Context of r, so a framework without an
// *http.Request only has to set these. r must not change until Enter has reported
// false, or Leave was called.
func (g *Gate) Enter(ctx context.Context, w http.ResponseWriter, r *http.Request) (Pass, bool) {
	p := Pass{gate: g, ctx: ctx, r: r, ticket: g.take(ctx, r)}
	if !p.decision.Allowed {
		g.reject(w, r, &p.ticket)
		return p, false
	}
	if !p.await(w) {
		return p, false
	}
	p.leases = g.limits.Keep(p.ops, p.decisionOf)
	p.told = answer.Write(w.Header(), g.dialect.answers(), p.policies...)
	return p, true
}

// await waits for the turn of p and then takes its slots of headgate.Concurrent. It
// reports false, and has answered, if the client leaves first or there is no slot.
func (p *Pass) await(w http.ResponseWriter) bool {
	g := p.gate
	if delay := p.delay(); delay > 0 && g.limits.Limiter.Caller().Sleep(p.ctx, delay) != nil {
		p.giveBack()
		answer.Problem(w, http.StatusServiceUnavailable, "The request was interrupted while it waited for its turn.")
		return false
	}
	decision, err := g.limits.Enter(p.ctx, p.ops, p.decisionOf, p.giveBack)
	if g.report(p.r, err); !decision.Allowed {
		p.decision = headgate.Decision(decision)
		g.reject(w, p.r, &p.ticket)
		return false
	}
	p.marks, err = g.limits.Mark(p.ctx, p.ops, p.decisionOf)
	g.report(p.r, err)
	return true
}

// Mark returns ctx for the handler, with the names of the limits that mark the request; see
// [Soft]. It reports false, and returns ctx, if there are none.
func (p *Pass) Mark(ctx context.Context) (context.Context, bool) {
	return checks.WithMarks(ctx, p.marks)
}

// Soft returns the names of the limits that mark a request which the middleware has passed
// on, from its context: it uses more of them than [SoftAt] says, or is over a limit with
// [OnlyMark]. Without a mark it returns nil.
//
//	if marks := httplimit.Soft(r.Context()); len(marks) > 0 {
//		cheap(w, r)
//		return
//	}
func Soft(ctx context.Context) []string { return checks.Marks(ctx) }

func (t *ticket) decisionOf(i int) *store.Decision { return &t.policies[i].Decision }

// Refunds reports whether the gate has a [RefundIf] or a [ChargeOn]. Without them, Leave
// does nothing, and Answered does not need the status.
func (g *Gate) Refunds() bool { return len(g.refund) > 0 || g.chargeOn != nil }

// Answered says which answer the handler gives: its status, or 0 if it is unknown, and
// its header. If [ChargeOn] does not count it, the cost of the request is refunded, and
// the fields about limits in header are brought up to date. If the handler has set such
// fields too, as a reverse proxy does, each gets one value: the handler's members of
// RateLimit and RateLimit-Policy stay in front, others are replaced. Call it before the
// header is sent, or as soon as possible after. Only the first call has an effect. If
// there is none, or the context of the request was canceled before, the request counts.
func (p *Pass) Answered(status int, header http.Header) {
	g := p.gate
	if g == nil || p.settled {
		return
	}
	p.settled = true
	refund := g.chargeOn != nil && status != 0 && !errors.Is(p.ctx.Err(), context.Canceled) && !g.chargeOn(status, header)
	if refund {
		p.giveBack()
		p.told.Update(header, g.dialect.answers(), p.policies...)
		return
	}
	p.told.Settle(header, g.dialect.answers(), p.policies...)
}

// Leave refunds the cost of the request if [RefundIf] includes its status; 0 means that
// the status is unknown, as for a hijacked connection. A request whose context was
// canceled gets no refund, since its client hung up before the answer. Call Leave at
// most once.
func (p *Pass) Leave(status int) {
	if slices.Contains(p.gate.refund, status) && !errors.Is(p.ctx.Err(), context.Canceled) {
		p.giveBack()
	}
}

// Holds reports whether the request holds slots of headgate.Concurrent until End. A
// framework that streams answers after its handler has returned must call End for
// these when the stream is done.
func (p *Pass) Holds() bool { return len(p.leases) > 0 }

// End releases the slots of headgate.Concurrent. Call it when the request is over, also
// if its handler panicked: defer it. Further calls do nothing. After it, Answered has no
// effect.
func (p *Pass) End() {
	p.settled = true
	if len(p.leases) > 0 {
		checks.Release(p.ctx, p.leases, func(err error) { p.gate.report(p.r, err) })
		p.leases = nil
	}
}

// ticket is what one request has taken.
type ticket struct {
	at       time.Time
	ops      []store.Op
	policies []answer.Policy
	decision headgate.Decision // the tightest
}

// take takes everything that r needs, or nothing.
func (g *Gate) take(ctx context.Context, r *http.Request) ticket {
	t := ticket{at: g.limits.Limiter.Caller().Now(), ops: make([]store.Op, len(g.limits.Ops)), policies: make([]answer.Policy, len(g.limits.Ops))}
	copy(t.ops, g.limits.Ops)
	g.limits.About(r, t.ops)
	decisions := make([]store.Decision, len(t.ops))
	tightest, err := g.limits.AllowAll(ctx, t.ops, decisions)
	g.report(r, err)
	t.decision = headgate.Decision(tightest)
	for i := range decisions {
		limit := headgate.LimitOf(t.ops[i].Rule)
		t.policies[i] = answer.Policy{Name: g.limits.NameOf(i, limit), Limit: limit, At: t.at.UnixMicro(), Decision: decisions[i]}
	}
	return t
}

// reject answers r, which was refused.
func (g *Gate) reject(w http.ResponseWriter, r *http.Request, t *ticket) {
	if g.onLimit == nil {
		answer.Refuse(w, r, answer.Refusal{Policies: t.policies, Dialect: g.dialect.answers()})
		return
	}
	answer.Headers(w.Header(), g.dialect.answers(), t.policies...)
	g.onLimit.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), refusedKey{}, t.decision)))
}

type refusedKey struct{}

// Refused returns the decision about the request of an [OnLimit] handler, the tightest
// if there are several limits. It reports false for any other context.
func Refused(ctx context.Context) (headgate.Decision, bool) {
	d, ok := ctx.Value(refusedKey{}).(headgate.Decision)
	return d, ok
}

// delay returns how long the request has to wait for its turn.
func (t *ticket) delay() (longest time.Duration) {
	for i := range t.policies {
		longest = max(longest, t.policies[i].Decision.Delay)
	}
	return longest
}

// refund refunds what p has taken, less what has been refilled since.
func (p *Pass) giveBack() {
	decisions := make([]store.Decision, len(p.ops))
	for i := range decisions {
		decisions[i] = p.policies[i].Decision
	}
	// Refund also if the client is gone, but do not delay the answer for long.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), checks.RefundTimeout)
	defer cancel()
	p.gate.report(p.r, p.gate.limits.Limiter.Caller().Refund(ctx, p.ops, decisions, p.gate.limits.Limiter.Caller().Now().Sub(p.at)))
	for i := range decisions {
		p.policies[i].Decision = decisions[i]
	}
}

func (g *Gate) report(r *http.Request, err error) {
	if err != nil && g.onError != nil {
		g.onError(r, err)
	}
}

// New returns middleware that allows requests within limit, counted by [ByIP] unless an
// option says otherwise, and refuses others with 429, or with 503 if the store could
// not answer (headgate.FailClosed).
//
// Requests to a leaky bucket wait for their turn. If the client leaves first, its slot
// is freed.
//
// New panics if its arguments are invalid, and the middleware if its handler is nil.
// If limits come from configuration, call [Validate] first.
func New(limiter *headgate.Limiter, limit headgate.Limit, options ...Option) func(http.Handler) http.Handler {
	gate := NewGate(limiter, limit, options...)
	return func(next http.Handler) http.Handler {
		if next == nil {
			panic("httplimit: the handler is nil") //nolint:forbidigo // as New does
		}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			pass, ok := gate.Enter(r.Context(), w, r)
			if !ok {
				return
			}
			s := &serving{pass: pass}
			s.Watched = *answer.Watch(w, s.answered)
			defer s.pass.End()
			if ctx, marked := s.pass.Mark(r.Context()); marked {
				r = r.WithContext(ctx)
			}
			next.ServeHTTP(s, r)
			s.pass.Leave(s.End())
		})
	}
}

// serving is an admitted request and its answer.
type serving struct {
	answer.Watched
	pass Pass
}

func (s *serving) answered(status int) { s.pass.Answered(status, s.Header()) }
