package rulefiles

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/answer"
	"github.com/headgate/headgate/internal/decide/admission"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/door/described"
	"github.com/headgate/headgate/internal/door/httprequest"
	"github.com/headgate/headgate/internal/request/client"
	"github.com/headgate/headgate/internal/rules"
)

// Verdict is the answer to a request under all limits that apply to it. The zero
// Verdict is a refusal.
type Verdict struct {
	// Decision is that of Rule: whether the request is allowed, and if not, when to
	// retry. Delay is the longest of all limits that apply; the caller has to wait.
	// It is {Allowed: true, Reason: headgate.ReasonNoLimit} if no limit applies.
	Decision headgate.Decision
	// Rule is the name of the rule that refused or, if allowed, the tightest one.
	Rule string
	// Outcome is the name in the server's metrics: allowed, delayed, shadow_refused
	// (by a rule in shadow mode), marked (see Soft), refused, queued, or shadow_banned,
	// which clients must not find out.
	Outcome string
	// Soft has the names of the rules that mark the request: it is allowed, and uses more
	// than the soft part of their limit, or is over a limit with on_limit: pass.
	Soft []string
}

// Soft returns the names of the rules that mark a request that [Rules.Middleware] has
// passed on, from its context. Without a mark it returns nil.
func Soft(ctx context.Context) []string {
	names, _ := ctx.Value(softKey{}).([]string)
	return slices.Clone(names)
}

type softKey struct{}

// Decide decides about r and charges it. Rules see its method, URL, header fields,
// cookies and client, not its body. Decide does not answer the request: see
// [Rules.Middleware] for that.
//
// An error that wraps headgate.ErrUnavailable means that the store could not answer;
// the Verdict is then what on_store_error says.
func (r *Rules) Decide(ctx context.Context, request *http.Request) (Verdict, error) {
	var q httprequest.Request
	q.SetRequest(request, r.clients, client.Identity{})
	return r.decide(ctx, &q, 1)
}

// DecideAttributes is Decide for anything that is not an HTTP request. Attributes are
// named as in rules: method, path, host, client_ip, header:NAME, query:NAME,
// cookie:NAME, jwt:CLAIM, or any other name. Rules multiply cost, which is usually 1;
// 0 charges nothing. The error names an invalid attribute or cost; the Verdict is a
// refusal then.
func (r *Rules) DecideAttributes(ctx context.Context, attributes map[string]string, cost int64) (Verdict, error) {
	if len(attributes) > described.MaxAttributes {
		return Verdict{}, fmt.Errorf("rulefiles: %d attributes, at most %d are allowed", len(attributes), described.MaxAttributes)
	}
	var q described.Request
	for name, value := range attributes {
		a, err := rules.ParseAttribute(name)
		if err != nil {
			return Verdict{}, fmt.Errorf("rulefiles: attribute %q: %w", name, err)
		}
		if must := q.Add(a, value, r.clients); must != "" {
			return Verdict{}, fmt.Errorf("rulefiles: attribute %q %s", name, must)
		}
	}
	return r.decide(ctx, &q, min(cost, described.MaxCost))
}

// decide is for callers that do not say when the request ends.
func (r *Rules) decide(ctx context.Context, request rules.Request, cost int64) (Verdict, error) {
	v, err := r.engine.Decide(ctx, engine.Query{
		Domain: r.domain, Part: engine.Part{Request: request, Cost: cost}, At: r.limiter.Caller().Now().UnixMicro(), Endless: true,
	})
	defer v.Release()
	told := Verdict{Decision: headgate.Decision(v.Decision), Outcome: v.Outcome().String(), Soft: v.Marks(nil)}
	told.Decision.Delay = v.Delay
	if v.Rule != nil {
		told.Rule = v.Rule.Name
	}
	return told, err
}

// Middleware passes requests to next as the rules allow, and answers the others like
// the server's proxy: 429 with Retry-After and a problem+json body, or what on_limit
// says. Answers of next get the header fields about limits. Requests that have to
// wait for their turn wait here; if the client leaves first, the slot is freed.
//
// Rules with charge_on count by the answer of next, and a cost from_response is what
// its header or trailer says. An answer that nobody saw counts,
// unless on_abort says otherwise: that of a handler that panics or takes over the
// connection, and every answer to a client that hung up before.
//
// Rules see the URL as it is here: put Middleware in front of handlers that change
// it, such as http.StripPrefix. It panics if next is nil.
func (r *Rules) Middleware(next http.Handler) http.Handler {
	if next == nil {
		panic("rulefiles: the handler is nil") //nolint:forbidigo // like httplimit: a bug in the program
	}
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if client.TooManyFields(request.Header) {
			answer.Problem(w, http.StatusBadRequest, fmt.Sprintf("the request has more than %d header fields", client.MaxFields))
			return
		}
		r.serve(w, request, next)
	})
}

// serve decides about a request and passes it to next or refuses it.
func (r *Rules) serve(w http.ResponseWriter, request *http.Request, next http.Handler) {
	x := exchange{w: w, request: request}
	x.q.SetRequest(request, r.clients, client.Identity{})
	ctx, pass := request.Context(), &x.pass
	pass.Begin(ctx, &r.asker, engine.Query{Domain: r.domain, Part: engine.Part{Request: &x.q, Cost: 1}, At: r.limiter.Caller().Now().UnixMicro(), Waits: true})
	defer pass.End() // also if next panics
	if !pass.Allowed {
		refuse(w, request, pass)
		return
	}
	switch err := pass.Enter(ctx); {
	case errors.Is(err, admission.ErrRefused):
		refuse(w, request, pass)
		return
	case err != nil:
		answer.Headers(w.Header(), pass.Dialect, pass.Policies...)
		answer.Problem(w, http.StatusServiceUnavailable, "interrupted while waiting for its turn")
		return
	}
	x.serve(next)
}

// refuse answers a request over its limit as the rule that refused it says.
func refuse(w http.ResponseWriter, request *http.Request, pass *admission.Pass) {
	switch {
	case pass.Rule == nil: // for example a clock before 1970
		answer.Problem(w, http.StatusServiceUnavailable, "rate limits cannot be checked")
	case pass.Outcome() == engine.ShadowBanned:
		answer.Pretend(w, request, pass.Pretend(request.Context()))
	default:
		httprequest.Refuse(w, request, pass)
	}
}

// report logs an error of the store, as a warning at most once a minute.
func (r *Rules) report(ctx context.Context, err error) {
	if err == nil {
		return
	}
	level, last, now := slog.LevelDebug, r.told.Load(), r.limiter.Caller().Now().Unix()
	if (last == 0 || now-last >= 60) && r.told.CompareAndSwap(last, now) {
		level = slog.LevelWarn
	}
	r.log.Log(ctx, level, "check failed, the on_store_error of each rule applies", "domain", r.domain, "err", err)
}
