package selfservice

import (
	"errors"
	"net/http"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/answer"
	"github.com/headgate/headgate/internal/decide/admission"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/door/httprequest"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/store"
)

// Page answers callers that ask for their own limits. All fields but Asked are required.
type Page struct {
	Engine  *engine.Engine
	Gate    *Gate
	Dialect answer.Dialect // of the header fields, unless the domain has chosen one
	Asked   *Asked         // counts requests; nil for none
}

// Serve answers q, a request for the limits of its sender in a domain, at the given time.
// It returns an error of the store, which the caller does not receive.
func (p *Page) Serve(w http.ResponseWriter, r *http.Request, q *httprequest.Request, domain string, at time.Time) error {
	w.Header().Set("Cache-Control", "no-store")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		answer.Problem(w, http.StatusMethodNotAllowed, "use GET to read your limits")
		p.Asked.count(refused)
		return nil
	}
	if !p.admit(w, q, at) {
		return nil
	}
	defer p.Gate.leave()
	a, err := Of(r.Context(), p.Engine, domain, q, at.UnixMicro())
	refusal := q.Refusal()
	switch {
	case a.deniedBy != nil: // as all its requests
		p.Asked.count(refused)
		Deny(w, r, a.deniedBy)
	case refusal != nil:
		p.Asked.count(refused)
		answer.Unauthorized(w, refusal)
	case errors.Is(err, ErrUnknownDomain):
		p.Asked.count(failed)
		unavailable(w, "no rules are loaded for this service")
	case err != nil:
		p.Asked.count(failed)
		Problem(w, err)
		return err
	default:
		p.Asked.count(told)
		a.Write(w, p.Dialect)
	}
	return nil
}

// admit reports whether q may be answered now. If so, p.Gate must be left; if not, it
// has answered.
func (p *Page) admit(w http.ResponseWriter, q *httprequest.Request, at time.Time) bool {
	if !p.Gate.Admit(w, q, at, "you asked for your limits too often") {
		p.Asked.count(tooOften)
		return false
	}
	if !p.Gate.enter() {
		unavailable(w, "too many callers ask for their limits at once")
		p.Asked.count(busy)
		return false
	}
	return true
}

// Admit reports whether the client of q may get an answer now. If not, it answers 429 with
// detail.
func (g *Gate) Admit(w http.ResponseWriter, q *httprequest.Request, at time.Time, detail string) bool {
	address, _ := q.Attribute(rules.Attribute{Kind: rules.ClientIP})
	wait, ok := g.admit(address, at.UnixMicro())
	if !ok {
		limited := store.Decision{Reason: headgate.ReasonLimited, RetryAfter: wait}
		answer.Headers(w.Header(), answer.None, answer.Policy{Decision: limited})
		answer.Problem(w, http.StatusTooManyRequests, detail)
	}
	return ok
}

// Deny refuses r, whose sender is on a deny list.
func Deny(w http.ResponseWriter, r *http.Request, by *rules.Rule) {
	denied := engine.Verdict{Rule: by, Decision: store.Decision{Reason: store.ReasonBanned, RetryAfter: headgate.Never}}
	httprequest.Refuse(w, r, &admission.Pass{Verdict: denied, Dialect: answer.None})
}

// unavailable answers 503: there is no answer now.
func unavailable(w http.ResponseWriter, detail string) {
	w.Header().Set("Retry-After", "1")
	answer.Problem(w, http.StatusServiceUnavailable, detail)
}
