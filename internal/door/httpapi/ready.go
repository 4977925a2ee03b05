package httpapi

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/headgate/headgate/internal/answer"
	"github.com/headgate/headgate/internal/door"
)

func reason(r *door.Readiness) string {
	switch {
	case r.Draining:
		return "draining"
	case r.Rules.Waiting:
		return "waiting for rules from the control plane"
	case r.Store != nil && !r.StoreMayFail:
		return "the store does not answer"
	}
	return "ok"
}

// health answers GET /healthz, GET /readyz (as JSON with ?verbose) and GET
// /healthcheck. The last answers as envoyproxy/ratelimit does, whose deployments use
// it to probe both liveness and readiness.
func (h *Handler) health(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/healthz" {
		text(w, http.StatusOK, "ok\n")
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), time.Second)
	defer cancel()
	state := h.options.Ready(ctx)
	status, said := http.StatusOK, reason(&state)+"\n"
	if !state.Ready() {
		status = http.StatusServiceUnavailable
	} else if r.URL.Path == "/healthcheck" {
		said = "OK"
	}
	query := r.URL.Query()
	verbose, err := strconv.ParseBool(query.Get("verbose"))
	if r.URL.Path != "/readyz" || !query.Has("verbose") || !verbose && err == nil {
		text(w, status, said)
		return
	}
	body, err := json.Marshal(view(&state))
	if err != nil {
		answer.Problem(w, http.StatusInternalServerError, "the state could not be encoded")
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	write(w, status, append(body, '\n'))
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

// IsProbe reports whether r is a health probe that asks for no details. A query on
// /readyz asks for details.
func IsProbe(r *http.Request) bool {
	switch r.URL.Path {
	case "/healthz", "/healthcheck":
		return true
	case "/readyz":
		return r.URL.RawQuery == ""
	}
	return false
}

// rateLimit answers /json with any method, as envoyproxy/ratelimit does: only the body
// matters.
func (h *Handler) rateLimit(w http.ResponseWriter, r *http.Request) {
	if h.options.RateLimit == nil {
		answer.Problem(w, http.StatusNotFound, "Envoy's rate limit service is not enabled")
		return
	}
	h.options.RateLimit.ServeHTTP(w, r)
}
