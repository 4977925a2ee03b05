// Package httpapi is the HTTP API: POST /v1/check decides about a request, POST
// /v1/explain says why, and /healthz and /readyz report the state of the process.
//
// The contract is in docs/connect/http-api.md.
package httpapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/answer"
	"github.com/headgate/headgate/internal/decide/admission"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/door"
	"github.com/headgate/headgate/internal/door/selfservice"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/inline"
	"github.com/headgate/headgate/internal/transport/membound"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/blocks"
)

// MaxBody is the largest body of a request, in bytes.
const MaxBody = 1 << 20

// Options configure the API.
type Options struct {
	// Asker decides about requests. Without a Clock, the store's clock is used.
	admission.Asker
	Ready func(context.Context) door.Readiness // says whether the process can serve; required
	// RateLimit, if not nil, answers POST /json: Envoy's rate limit service in JSON.
	RateLimit      http.Handler
	WithoutExplain bool // disables POST /v1/explain, which reveals much about the rules
	// ForwardAuth, if not nil, answers /v1/auth for proxies, with any method.
	ForwardAuth http.Handler
	Bodies      *membound.Bound // bounds the memory of all bodies above 16 KiB together; nil means 64 MiB
	Inline      *inline.Limits  // makes rules of limits in checks; nil allows none
	Queue       http.Handler    // if not nil, answers GET /v1/queue/ID: the state of a queued request
	// Blocks says for explanations what this process has of rules in blocks; optional.
	Blocks func() []blocks.Stats
	// Regions are those that share limits; nil for none.
	Regions *rules.Regions
	// LimitsAsked counts requests to /v1/limits; optional.
	LimitsAsked *selfservice.Asked
}

// Handler serves the API.
type Handler struct {
	options    Options
	calls      sync.Pool // of *call
	explaining explaining
	bodies     *answer.Bodies
}

// New returns the API.
func New(options Options) *Handler {
	h := &Handler{options: options, bodies: answer.NewBodies(options.Bodies), explaining: explaining{turn: make(chan struct{}, 1)}}
	h.calls.New = func() any { return new(call) }
	return h
}

// call is the memory of one request, reused for the next.
type call struct {
	in       answer.Body
	body     body
	out      []byte
	policies []answer.Policy
	at       int64 // the time of arrival; 0 if only the store knows
}

// ServeHTTP implements [http.Handler]. It routes by hand, because the mux of net/http
// answers errors in plain text, and this API promises problem+json.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/v1/check":
		h.posted(w, r, (*Handler).check)
	case "/v1/explain":
		if h.options.WithoutExplain {
			answer.Problem(w, http.StatusNotFound, "/v1/explain is disabled: api.explain is off, or the API is open to other machines without a token")
			return
		}
		h.posted(w, r, (*Handler).explain)
	case "/v1/limits":
		h.posted(w, r, (*Handler).limits)
	case "/v1/release", "/v1/renew", "/v1/commit", "/v1/cancel":
		h.posted(w, r, (*Handler).settle)
	case "/v1/reserve":
		h.posted(w, r, (*Handler).reserve)
	case "/v1/report":
		h.posted(w, r, (*Handler).report)
	case "/healthz", "/readyz", "/healthcheck":
		if only(w, r, http.MethodGet, http.MethodHead) {
			h.health(w, r)
		}
	case "/v1/auth":
		if h.options.ForwardAuth == nil {
			answer.Problem(w, http.StatusNotFound, "forward-auth is not enabled")
			return
		}
		h.options.ForwardAuth.ServeHTTP(w, r)
	case "/json":
		h.rateLimit(w, r)
	default:
		if h.options.Queue != nil && strings.HasPrefix(r.URL.Path, "/v1/queue/") {
			if only(w, r, http.MethodGet, http.MethodHead) {
				h.options.Queue.ServeHTTP(w, r)
			}
			return
		}
		answer.Problem(w, http.StatusNotFound, fmt.Sprintf("unknown path %q; to check a request, use POST /v1/check", r.URL.Path))
	}
}

// only reports whether r has one of methods, and answers with 405 if not.
func only(w http.ResponseWriter, r *http.Request, methods ...string) bool {
	if slices.Contains(methods, r.Method) {
		return true
	}
	allow := strings.Join(methods, ", ")
	w.Header().Set("Allow", allow)
	answer.Problem(w, http.StatusMethodNotAllowed, fmt.Sprintf("%s only accepts %s", r.URL.Path, allow))
	return false
}

// posted reads the body of a POST and calls serve.
func (h *Handler) posted(w http.ResponseWriter, r *http.Request, serve func(*Handler, http.ResponseWriter, *http.Request, *call)) {
	if !only(w, r, http.MethodPost) {
		return
	}
	c, _ := h.calls.Get().(*call)
	defer func() {
		h.release(c)
		h.calls.Put(c)
	}()
	c.at = 0
	if h.options.Clock != nil {
		c.at = h.options.Clock().UnixMicro()
	}
	if err := h.bodies.Read(&c.in, w, r, MaxBody); err != nil {
		c.in.Release() // before the client has read the refusal
		answer.Unread(w, r, err)
		return
	}
	serve(h, w, r, c)
}

func text(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}

// check answers POST /v1/check.
func (h *Handler) check(w http.ResponseWriter, r *http.Request, c *call) {
	if err := c.body.parse(string(c.in.Bytes), h.options.Clients, h.options.Inline); err != nil {
		status := http.StatusBadRequest
		if errors.Is(err, inline.ErrDenied) {
			status = http.StatusForbidden
		}
		answer.Problem(w, status, err.Error())
		return
	}
	if c.body.batch {
		h.batch(w, r, c)
		return
	}
	v := h.options.Decide(r.Context(), c.body.checks[0].Query(c.at, engine.DoorAPI))
	defer v.Release()
	more := h.tokens(r.Context(), c, &v)
	if c.body.checks[0].Kind == store.KindPeek {
		more = h.keyTimes(r.Context(), c, &v)
	}
	h.answer(w, c, &v, more)
}

// keyTimes returns when the key of a peek was created and last changed, as far as the
// store records it.
func (h *Handler) keyTimes(ctx context.Context, c *call, v *engine.Verdict) [2]later {
	text := func(at time.Time) string {
		if at.IsZero() {
			return ""
		}
		return at.UTC().Format("2006-01-02T15:04:05.000Z07:00")
	}
	t, _ := h.options.Engine.KeyTimes(ctx, v, c.at) // without them the answer is still right
	return [2]later{{"created_at", text(t.Created)}, {"changed_at", text(t.Changed)}}
}

// tokens returns the tokens that a caller needs after a check.
func (h *Handler) tokens(ctx context.Context, c *call, v *engine.Verdict) [2]later {
	tokens := [2]later{{name: "lease", token: h.options.Lease(ctx, v)}}
	if v.HasChargeOn() {
		tokens[1] = later{"report", h.options.ReportToken(ctx, v, c.now())}
	}
	return tokens
}

// later is a token that a caller needs later, or another text in an answer, with its name.
type later struct{ name, token string }

// answer answers with v and the tokens that there are.
func (h *Handler) answer(w http.ResponseWriter, c *call, v *engine.Verdict, t [2]later) {
	c.policies = admission.Policies(c.policies[:0], v.Results(), c.at)
	answer.Headers(w.Header(), h.options.Dialect.Or(v.Headers()), c.policies...)
	status := http.StatusOK
	if !v.Allowed {
		status = http.StatusTooManyRequests
	}
	c.out = append(appendTokens(appendVerdict(c.out[:0], v), t), '\n')
	write(w, status, c.out)
}

// batch answers each check separately, in order.
func (h *Handler) batch(w http.ResponseWriter, r *http.Request, c *call) {
	c.out = append(c.out[:0], `{"results":[`...)
	checks := c.body.checks
	h.options.DecideBatch(r.Context(), len(checks),
		func(i int) engine.Query { return checks[i].Query(c.at, engine.DoorAPI) },
		func(i int, v *engine.Verdict) {
			if i > 0 {
				c.out = append(c.out, ',')
			}
			c.out = appendTokens(appendVerdict(c.out, v), h.tokens(r.Context(), c, v))
		})
	c.out = append(c.out, "]}\n"...)
	c.in.Release() // the client may be slow to read
	c.body.release()
	write(w, http.StatusOK, c.out)
}

//nolint:gochecknoglobals // an immutable header value, allocated once
var contentTypeJSON = []string{"application/json"}

// write answers in JSON. It sets no Cache-Control, since caches keep no answer to a
// POST without permission (RFC 9110, 9.3.3), and every field has a cost.
func write(w http.ResponseWriter, status int, body []byte) {
	h := w.Header()
	h["Content-Type"] = contentTypeJSON
	w.WriteHeader(status)
	_, _ = w.Write(body) // a caller that went away has no use for the error
}

// keptMemory is the largest answer whose memory is kept for the next request.
const keptMemory = 64 << 10

// release frees the memory of a very large request.
func (h *Handler) release(c *call) {
	c.in.Release()
	if cap(c.out) > keptMemory {
		c.out = nil
	}
	c.body.release()
}
