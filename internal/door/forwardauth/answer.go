package forwardauth

import (
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"

	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/door/answer"
	"github.com/headgate/headgate/internal/door/verdict"
)

// answer turns the verdict into what the proxy goes by.
func (h *Handler) answer(w http.ResponseWriter, r *http.Request, q *question, v *engine.Verdict) {
	dialect := h.options.Dialect.Or(v.Headers())
	if !v.Allowed {
		refuse(&refusal{ResponseWriter: w, deny: q.deny}, r, q, v, dialect)
		return
	}
	answer.Headers(w.Header(), dialect, q.policies...)
	if err := q.Refusal(); err != nil {
		answer.Unauthorized(w, err)
		return
	}
	if v.Delay > 0 && !h.wait(w, r, v) {
		answer.Problem(w, http.StatusServiceUnavailable, "interrupted while waiting for its turn")
		return
	}
	allow(w, q.warning)
}

// refuse answers a request over its limit as the rule that refused it says.
func refuse(w http.ResponseWriter, r *http.Request, q *question, v *engine.Verdict, dialect answer.Dialect) {
	if v.Rule == nil {
		answer.Problem(w, http.StatusServiceUnavailable, q.warning)
		return
	}
	told := verdict.Refusal(v, q.policies, dialect)
	if v.Outcome() == engine.ShadowBanned {
		pretend(w, r, v, told)
		return
	}
	verdict.Refuse(w, r, v, told)
}

// pretend answers a request over the limit of a rule of which clients must
// not learn. The answer is what its client should see; a proxy that knows how,
// as nginx does, sends it with the status that X-Headgate-Status tells.
func pretend(w http.ResponseWriter, r *http.Request, v *engine.Verdict, told answer.Refusal) {
	if latency := v.Rule.OnLimit.Latency.Pick(rand.Int64N); latency > 0 {
		_ = stay(w, r, latency) // cut short, there is nobody to answer
	}
	answer.Pretend(w, r, told)
}

// allow lets the request pass; warning, if there is one, is for the eyes of
// whoever tries the address by hand.
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

// refusal writes an answer that a proxy takes for a refusal, whatever status
// it should have had.
type refusal struct {
	http.ResponseWriter
	deny int // 0 for the status itself
}

// statusField tells a proxy that has asked for another status which one a
// refusal should have. Others pass the field on to their clients, whom a status
// of 200 would tell of a ban.
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

// misused answers a request that cannot be decided. The statuses are none that
// a proxy takes for a yes.
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

// unbelieved notes that a peer that is not trusted tells of a request.
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

// topic is something to warn of, once a minute: it is about every request, or
// about none.
type topic uint8

const (
	aboutRequest topic = iota
	aboutPeer
	aboutDomain
	topics
)
