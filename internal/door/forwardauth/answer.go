package forwardauth

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"

	"github.com/headgate/headgate/internal/answer"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/door/verdict"
	"github.com/headgate/headgate/internal/rules"
)

// answer turns the verdict into an answer to the proxy.
func (h *Handler) answer(w http.ResponseWriter, r *http.Request, q *question, v *engine.Verdict) {
	dialect := h.options.Dialect.Or(v.Headers())
	if !v.Allowed {
		h.refuse(&refusal{ResponseWriter: w, deny: q.deny}, r, q, v, dialect)
		return
	}
	if err := q.Refusal(); err != nil {
		h.settleOwn(r, q, v, http.StatusUnauthorized)
		answer.Headers(w.Header(), dialect, q.policies...)
		answer.Unauthorized(w, err)
		return
	}
	answer.Headers(w.Header(), dialect, q.policies...)
	if v.Delay > 0 && !h.wait(w, r, v) {
		answer.Problem(w, http.StatusServiceUnavailable, "interrupted while waiting for its turn")
		return
	}
	if q.trusted {
		if token := h.options.ReportToken(r.Context(), v, q.at.UnixMicro()); token != "" {
			w.Header().Set(reportField, token)
		}
	}
	allow(w, q.warning)
}

// reportField contains the token with which the upstream reports its answer, for rules
// with charge_on. The proxy passes it to the upstream, and never to the client.
const reportField = "X-Headgate-Report"

// settleOwn settles rules with charge_on for a request that we answer ourselves.
func (h *Handler) settleOwn(r *http.Request, q *question, v *engine.Verdict, status int) {
	if !v.HasChargeOn() {
		return
	}
	ctx := context.WithoutCancel(r.Context())
	if err := h.options.Engine.SettleAnswer(ctx, v, h.options.Clock().UnixMicro(), rules.Answer{Status: status}); err != nil {
		h.options.Logger.DebugContext(ctx, "request not given back", "err", err)
	}
	q.policies = verdict.Policies(q.policies[:0], v.Results(), q.at.UnixMicro())
}

// refuse answers a request over its limit as the rule that refused it says.
func (h *Handler) refuse(w http.ResponseWriter, r *http.Request, q *question, v *engine.Verdict, dialect answer.Dialect) {
	if v.Rule == nil {
		answer.Problem(w, http.StatusServiceUnavailable, q.warning)
		return
	}
	if v.Outcome() == engine.ShadowBanned {
		h.settleOwn(r, q, v, v.Rule.OnLimit.Status)
	}
	told := verdict.Refusal(v, q.policies, dialect)
	if v.Outcome() == engine.ShadowBanned {
		pretend(w, r, v, told)
		return
	}
	verdict.Refuse(w, r, v, told)
}

// pretend answers a request that is shadow banned. The answer is the one that the
// client should see; a proxy that is configured to, such as nginx, sends it with the
// status in X-Headgate-Status.
func pretend(w http.ResponseWriter, r *http.Request, v *engine.Verdict, told answer.Refusal) {
	if latency := v.Rule.OnLimit.Latency.Pick(rand.Int64N); latency > 0 {
		_ = stay(w, r, latency) // if it is cut short, the proxy has gone
	}
	answer.Pretend(w, r, told)
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
