// Package forwardauth is for proxies that ask before they forward a request: nginx with
// auth_request, Traefik with ForwardAuth, Caddy with forward_auth, and compatible ones.
// They describe the request in header fields, forward it on 2xx, and pass on a refusal.
//
// The contract is in docs/forward-auth.md.
package forwardauth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/door"
	"github.com/headgate/headgate/internal/door/answer"
	"github.com/headgate/headgate/internal/door/verdict"
	"github.com/headgate/headgate/internal/request/client"
	"github.com/headgate/headgate/internal/request/httprequest"
	"github.com/headgate/headgate/internal/request/reading"
)

// Options are what the door needs.
type Options struct {
	// Asker decides. Its Logger hears too of proxies that are not set up as they
	// should be.
	verdict.Asker
	Tokens   client.Tokens // verifies the tokens that rules ask for the claims of; nil if there are none
	TellTime bool          // adds the time of the decision to every answer
}

// Handler answers whether the request that a proxy tells of may pass.
type Handler struct {
	options Options
	clients *client.Resolver
	domains atomic.Pointer[domains]
	asked   sync.Pool // of *question
	heard   [topics]door.Seldom
}

// New returns the door.
func New(options Options) *Handler {
	// These proxies write X-Forwarded-For, and let pass the Forwarded that a
	// client has made up.
	h := &Handler{options: options, clients: options.Clients.Reading(client.XForwardedFor)}
	h.asked.New = func() any { return new(question) }
	return h
}

// question is one request that a proxy tells of, and what its limits said.
type question struct {
	httprequest.Request
	settings

	at       time.Time
	policies []answer.Policy
	paths    reading.Set
	warning  string // what is wrong with the answer, although it is one
}

// ServeHTTP answers r, whatever its method. Its body is not read.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q, _ := h.asked.Get().(*question)
	q.at = h.options.Clock()
	if h.options.TellTime {
		answer.TellTime(w.Header(), q.at)
	}
	defer func() {
		clear(q.policies)
		*q = question{policies: q.policies[:0], paths: q.paths}
		h.asked.Put(q)
	}()
	if err := h.read(q, r); err != nil {
		h.misused(w, r, q, err)
		return
	}
	v := h.decide(r.Context(), q)
	defer v.Release()
	h.answer(w, r, q, &v)
}

// read fills q with what r asks.
func (h *Handler) read(q *question, r *http.Request) error {
	if client.TooManyFields(r.Header) {
		return errTooManyFields
	}
	identity := client.Identify(h.options.Tokens, r.Header, q.at)
	trusted := h.clients.Trusts(r.RemoteAddr)
	if trusted {
		if err := q.told(r); err != nil {
			return err
		}
		q.From(h.clients.Resolve(r.RemoteAddr, r.Header), h.clients, identity)
	} else {
		q.Of(r, h.clients, identity)
		h.unbelieved(q, r)
	}
	if err := q.parse(r.URL.RawQuery); err != nil {
		return err
	}
	if !trusted && q.cost > 1 {
		return errCost
	}
	if q.domain != "" {
		return nil
	}
	var err error
	q.domain, err = h.onlyDomain()
	return err
}

var errTooManyFields = fmt.Errorf("the request has more than %d header fields", client.MaxFields)

// errCost is about somebody who could be a web page: it would use up a whole
// budget by a single image.
var errCost = errors.New("the peer is not in trusted_proxies, so cost in the forward-auth URL must be 0 or 1")

// decide asks the engine and notes what the limits said.
func (h *Handler) decide(ctx context.Context, q *question) engine.Verdict {
	at := q.at.UnixMicro()
	v, err := h.options.Engine.Decide(ctx, engine.Query{
		Endless: true,
		Domain:  q.domain, Request: q, Cost: q.cost, At: at, Door: engine.DoorForwardAuth,
	})
	h.options.Report(ctx, q.domain, err)
	q.policies = verdict.Policies(q.policies, v.Results(), at)
	if !v.Known {
		q.warning = fmt.Sprintf("the domain %q has no rules", q.domain)
		if h.heard[aboutDomain].Passes(q.at) {
			h.options.Logger.WarnContext(ctx, "forward-auth request for a domain without rules", "domain", q.domain, "allowed", v.Allowed)
		}
	}
	return v
}

// wait waits for the turn of an admitted request. If the proxy gives up
// before, its place is freed and wait reports false.
func (h *Handler) wait(w http.ResponseWriter, r *http.Request, v *engine.Verdict) bool {
	if stay(w, r, v.Delay) {
		return true
	}
	verdict.Leave(r.Context(), h.options.Engine, h.options.Logger, v, h.options.Clock().UnixMicro())
	return false
}

// stay waits for d, and reports false if the proxy gives up before.
func stay(w http.ResponseWriter, r *http.Request, d time.Duration) bool {
	// The time-outs of a server are for slow callers; here it is us who wait.
	control := http.NewResponseController(w)
	_, _ = control.SetReadDeadline(time.Time{}), control.SetWriteDeadline(time.Time{})
	select {
	case <-time.After(d): //nolint:forbidigo // a queue has to wait
		return true
	case <-r.Context().Done():
		return false
	}
}
