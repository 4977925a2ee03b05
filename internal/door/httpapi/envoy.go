package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/headgate/headgate/internal/door/answer"
)

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
