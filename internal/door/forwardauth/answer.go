package forwardauth

import (
	"errors"
	"io"
	"net/http"
	"strconv"

	"github.com/headgate/headgate/internal/answer"
	"github.com/headgate/headgate/internal/decide/admission"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/door/httprequest"
)

// answer turns the verdict into an answer to the proxy.
func (h *Handler) answer(w http.ResponseWriter, r *http.Request, q *question) {
	ctx, pass := r.Context(), &q.pass
	if !pass.Allowed {
		h.refuse(&refusal{ResponseWriter: w, deny: q.deny}, r, q)
		return
	}
	if err := q.Refusal(); err != nil {
		pass.AnsweredHere(ctx, http.StatusUnauthorized)
		answer.Headers(w.Header(), pass.Dialect, pass.Policies...)
		answer.Unauthorized(w, err)
		return
	}
	answer.Headers(w.Header(), pass.Dialect, pass.Policies...)
	if pass.Delay > 0 {
		patient(w)
	}
	if err := pass.Enter(ctx); err != nil {
		answer.Problem(w, http.StatusServiceUnavailable, err.Error())
		return
	}
	if q.trusted {
		if token := h.options.ReportToken(ctx, &pass.Verdict, q.at.UnixMicro()); token != "" {
			w.Header().Set(reportField, token)
		}
		if soft := pass.Soft(); soft != "" {
			w.Header().Set(admission.SoftField, soft)
		}
	}
	allow(w, q.warning)
}

// reportField contains the token with which the upstream reports its answer, for rules
// with charge_on. The proxy passes it to the upstream, and never to the client.
const reportField = "X-Headgate-Report"

// refuse answers a request over its limit as the rule that refused it says. A shadow ban
// is answered as the client should see it; a proxy that is configured to, such as nginx,
// sends that with the status in X-Headgate-Status.
func (*Handler) refuse(w http.ResponseWriter, r *http.Request, q *question) {
	switch {
	case q.pass.Rule == nil:
		answer.Problem(w, http.StatusServiceUnavailable, q.warning)
	case q.pass.Outcome() == engine.ShadowBanned:
		patient(w)
		answer.Pretend(w, r, q.pass.Pretend(r.Context()))
	default:
		httprequest.Refuse(w, r, &q.pass)
	}
}

// allow allows the request. warning, if any, is for people who try the URL by hand.
func allow(w http.ResponseWriter, warning string) {
	w.Header().Set("Cache-Control", "no-store")
	if warning == "" {
		w.WriteHeader(http.StatusOK)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(http.StatusOK)
	_, _ = io.WriteString(w, "allowed, but: "+warning+"\n")
}

// refusal writes an answer that proxies treat as a refusal, whatever its own status.
type refusal struct {
	http.ResponseWriter
	deny int // the status to send; 0 for the answer's own
}

// statusField contains the status that a refusal should have, for a proxy that asked
// for another one. Other proxies do not get the field: they would pass it on, and a 200
// in it would reveal a ban to the client.
const statusField = "X-Headgate-Status"

func (w *refusal) WriteHeader(status int) {
	sent := status
	switch {
	case w.deny != 0:
		sent = w.deny
	case status < http.StatusMultipleChoices:
		sent = http.StatusTooManyRequests // 2xx would let the request pass
	}
	if w.deny != 0 {
		w.Header().Set(statusField, strconv.Itoa(status))
	}
	w.ResponseWriter.WriteHeader(sent)
}

// misused answers a request that cannot be decided. No proxy treats its statuses as
// permission.
func (h *Handler) misused(w http.ResponseWriter, r *http.Request, q *question, err error) {
	if h.heard[aboutRequest].Passes(q.at) {
		h.options.Logger.WarnContext(r.Context(), "forward-auth request could not be checked", "peer", r.RemoteAddr, "err", err)
	}
	status := http.StatusBadRequest
	if errors.Is(err, errNoRules) {
		status = http.StatusServiceUnavailable
	}
	answer.Problem(w, status, err.Error())
}

// unbelieved notes that an untrusted peer describes a request.
func (h *Handler) unbelieved(q *question, r *http.Request) {
	for _, name := range [...]string{"X-Forwarded-Uri", "X-Original-Uri", "X-Original-Url"} {
		if len(r.Header[name]) > 0 {
			q.warning = "the peer is not in trusted_proxies: " + name + " was ignored and the peer's own request was checked"
			if h.heard[aboutPeer].Passes(q.at) {
				h.options.Logger.WarnContext(r.Context(), "forward-auth request from a peer that is not in trusted_proxies: "+
					"its forwarding headers were ignored", "peer", r.RemoteAddr)
			}
			return
		}
	}
}

// topic is something to warn about once a minute, since it often concerns every request.
type topic uint8

const (
	aboutRequest topic = iota
	aboutPeer
	aboutDomain
	topics
)
