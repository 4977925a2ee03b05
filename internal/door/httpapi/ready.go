package httpapi

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/headgate/headgate/internal/door/answer"
)

// Readiness is what GET /readyz tells. The process is ready if it is not
// draining, has its rules and reaches its store, where it cannot do without.
type Readiness struct {
	// Draining is true once the process has been asked to stop.
	Draining bool
	// Store is nil if the store answers.
	Store error
	// StoreMayFail is true for a store that many processes share. When it is
	// gone each rule says what happens, which is no reason to take this
	// process, and with it all others, away from its callers.
	StoreMayFail bool
	// Rules are those in force.
	Rules RulesState
}

// RulesState says which rules are in force and how the last reload went.
type RulesState struct {
	Domains, Rules, Files int
	// LoadedAt is when the rules in force were read.
	LoadedAt time.Time
	// FailedAt and Failure are of the last reload if it failed; the rules in
	// force are then older ones.
	FailedAt time.Time
	Failure  string
	// Waiting is true as long as the first rules of a control plane have not
	// come.
	Waiting bool
	// Succeeded and Failed count the times that rules were read.
	Succeeded, Failed uint64
}

// Ready reports whether requests should be sent here.
func (r *Readiness) Ready() bool {
	return !r.Draining && !r.Rules.Waiting && (r.Store == nil || r.StoreMayFail)
}

func (r *Readiness) reason() string {
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
		body, err := json.Marshal(state.view())
		if err != nil {
			answer.Problem(w, http.StatusInternalServerError, "the state cannot be encoded")
			return
		}
		w.Header().Set("Cache-Control", "no-store")
		write(w, status, append(body, '\n'))
		return
	}
	text(w, status, state.reason()+"\n")
}

type readyView struct {
	Ready    bool      `json:"ready"`
	Draining bool      `json:"draining"`
	Store    string    `json:"store"`
	Rules    rulesView `json:"rules"`
}

type rulesView struct {
	Domains    int          `json:"domains"`
	Rules      int          `json:"rules"`
	Files      int          `json:"files"`
	LoadedAt   time.Time    `json:"loaded_at"`
	Succeeded  uint64       `json:"loads_succeeded,omitempty"`
	Failed     uint64       `json:"loads_failed,omitempty"`
	Waiting    bool         `json:"waiting,omitempty"`
	LastFailed *failureView `json:"last_failed_reload,omitempty"`
}

type failureView struct {
	At    time.Time `json:"at"`
	Error string    `json:"error"`
}

func (r *Readiness) view() readyView {
	v := readyView{Ready: r.Ready(), Draining: r.Draining, Store: "ok"}
	if r.Store != nil {
		v.Store = r.Store.Error()
	}
	v.Rules = rulesView{
		Domains: r.Rules.Domains, Rules: r.Rules.Rules, Files: r.Rules.Files, LoadedAt: r.Rules.LoadedAt,
		Succeeded: r.Rules.Succeeded, Failed: r.Rules.Failed, Waiting: r.Rules.Waiting,
	}
	if r.Rules.Failure != "" {
		v.Rules.LastFailed = &failureView{At: r.Rules.FailedAt, Error: r.Rules.Failure}
	}
	return v
}
