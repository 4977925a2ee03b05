// Package forwardauth is for proxies that ask before they forward a request: nginx with
// auth_request, Traefik with ForwardAuth, Caddy with forward_auth, and compatible ones.
// They describe the request in header fields, forward it on 2xx, and pass on a refusal.
//
// The contract is in docs/connect/forward-auth.md.
package forwardauth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/answer"
	"github.com/headgate/headgate/internal/decide/admission"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/door"
	"github.com/headgate/headgate/internal/door/httprequest"
	"github.com/headgate/headgate/internal/request/client"
	"github.com/headgate/headgate/internal/request/reading"
)

// Options configure a Handler.
type Options struct {
	// Asker decides. Its Logger receives warnings about misconfigured proxies too.
	admission.Asker
	Tokens   client.Tokens // verifies the tokens whose claims rules use; nil if none do
	TellTime bool          // adds the time of the decision to every answer
}

// Handler decides whether the request that a proxy describes is allowed.
type Handler struct {
	options Options
	clients *client.Resolver
	domains atomic.Pointer[domains]
	asked   sync.Pool // of *question
	heard   [topics]door.Seldom
}

// New returns the door.
func New(options Options) *Handler {
	// These proxies write X-Forwarded-For, but pass on a Forwarded that the client
	// has made up.
	h := &Handler{options: options, clients: options.Clients.Reading(client.XForwardedFor)}
	h.options.Wait = wait
	h.asked.New = func() any { return new(question) }
	return h
}

// question is a request that a proxy describes and the results of its limits.
type question struct {
	httprequest.Request
	settings

	at      time.Time
	pass    admission.Pass
	paths   reading.Set
	trusted bool   // described by a trusted proxy
	warning string // why an allowed request may not have been checked as intended
}

// ServeHTTP answers r, whatever its method. Its body is not read.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q, _ := h.asked.Get().(*question)
	q.at = h.options.Clock()
	if h.options.TellTime {
		answer.TellTime(w.Header(), q.at)
	}
	defer func() {
		q.pass.End()
		*q = question{pass: q.pass, paths: q.paths}
		h.asked.Put(q)
	}()
	if err := h.read(q, r); err != nil {
		h.misused(w, r, q, err)
		return
	}
	if h.options.Tokens != nil {
		q.SentBy(&q.pass)
	}
	h.decide(r.Context(), q)
	h.answer(w, r, q)
}

// read fills q from r.
func (h *Handler) read(q *question, r *http.Request) error {
	if client.TooManyFields(r.Header) {
		return errTooManyFields
	}
	identity := client.Identify(h.options.Tokens, r.Header, q.at)
	trusted := h.clients.Trusts(r.RemoteAddr)
	if q.trusted = trusted; trusted {
		if err := q.readOriginal(r); err != nil {
			return err
		}
		q.SetClient(h.clients.Resolve(r.RemoteAddr, r.Header), h.clients, identity)
		q.Described = true
	} else {
		q.SetRequest(r, h.clients, identity)
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

// errCost protects against untrusted peers such as the browser of a web page, which
// could use up a budget with a single image.
var errCost = errors.New("the peer is not in trusted_proxies, so cost in the forward-auth URL must be 0 or 1")

// decide asks the limits. Nobody will say when the request ends.
func (h *Handler) decide(ctx context.Context, q *question) {
	q.pass.Begin(ctx, &h.options.Asker, engine.Query{
		Domain: q.domain, Part: engine.Part{Request: q, Cost: q.cost}, At: q.at.UnixMicro(), Door: engine.DoorForwardAuth, Endless: true,
	})
	if !q.pass.Known {
		q.warning = fmt.Sprintf("the domain %q has no rules", q.domain)
		if h.heard[aboutDomain].Passes(q.at) {
			h.options.Logger.WarnContext(ctx, "forward-auth request for a domain without rules", "domain", q.domain, "allowed", q.pass.Allowed)
		}
	}
}

// patient ends the server's timeouts for slow callers: the delay is ours.
func patient(w http.ResponseWriter) {
	control := http.NewResponseController(w)
	_, _ = control.SetReadDeadline(time.Time{}), control.SetWriteDeadline(time.Time{})
}

// wait waits for d. It returns an error if the proxy gives up before then.
func wait(ctx context.Context, d time.Duration, _ bool) error {
	select {
	case <-time.After(d): //nolint:forbidigo // real waiting
		return nil
	case <-ctx.Done():
		return errors.New("interrupted while waiting for its turn")
	}
}
