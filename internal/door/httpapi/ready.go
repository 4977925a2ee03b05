package httpapi

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/headgate/headgate/internal/door"
	"github.com/headgate/headgate/internal/door/answer"
)

func reason(r *door.Readiness) string {
	switch {
	case r.Draining:
		return "draining"
	case r.Rules.Waiting:
		return "waiting for the rules of the control plane"
	case r.Store != nil && !r.StoreMayFail:
		return "the store does not answer"
	}
	return "ok"
}

// ready answers GET /readyz, with ?verbose in JSON.
func (h *Handler) ready(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), time.Second)
	defer cancel()
	state := h.options.Ready(ctx)
	status := http.StatusOK
	if !state.Ready() {
		status = http.StatusServiceUnavailable
	}
	query := r.URL.Query()
	verbose, err := strconv.ParseBool(query.Get("verbose"))
	if query.Has("verbose") && (verbose || err != nil) {
		body, err := json.Marshal(view(&state))
		if err != nil {
			answer.Problem(w, http.StatusInternalServerError, "the state cannot be encoded")
			return
		}
		w.Header().Set("Cache-Control", "no-store")
		write(w, status, append(body, '\n'))
		return
	}
	text(w, status, reason(&state)+"\n")
}

type readyView struct {
	Ready    bool            `json:"ready"`
	Draining bool            `json:"draining"`
	Store    string          `json:"store"`
	Rules    door.RulesState `json:"rules"`
}

func view(r *door.Readiness) readyView {
	v := readyView{Ready: r.Ready(), Draining: r.Draining, Store: "ok", Rules: r.Rules}
	if r.Store != nil {
		v.Store = r.Store.Error()
	}
	return v
}

// IsProbe reports whether r asks only whether this process is well: of /readyz a
// query asks for details.
func IsProbe(r *http.Request) bool {
	switch r.URL.Path {
	case "/healthz", "/healthcheck":
		return true
	case "/readyz":
		return r.URL.RawQuery == ""
	}
	return false
}

// rateLimit answers /json as envoyproxy/ratelimit does, which takes every method:
// what counts is the body.
func (h *Handler) rateLimit(w http.ResponseWriter, r *http.Request) {
	if h.options.RateLimit == nil {
		answer.Problem(w, http.StatusNotFound, "the rate limit service of Envoy is not open here")
		return
	}
	h.options.RateLimit.ServeHTTP(w, r)
}

// healthcheck answers GET /healthcheck in the words of envoyproxy/ratelimit,
// by which its deployments probe both life and readiness.
func (h *Handler) healthcheck(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), time.Second)
	defer cancel()
	state := h.options.Ready(ctx)
	if !state.Ready() {
		text(w, http.StatusServiceUnavailable, reason(&state)+"\n")
		return
	}
	text(w, http.StatusOK, "OK")
}
