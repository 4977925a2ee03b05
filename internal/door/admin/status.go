package admin

import (
	"context"
	"net/http"
	"runtime"
	"time"

	"github.com/headgate/headgate/internal/decide/storing"
	"github.com/headgate/headgate/internal/rules/follow"
)

// Status is the answer of GET /v1/status.
type Status struct {
	Version string         `json:"version"`
	Go      string         `json:"go"`
	Started time.Time      `json:"started"`
	UptimeS int64          `json:"uptime_s"`
	Ready   bool           `json:"ready"`
	Store   storing.Status `json:"store"`
	Rules   RulesStatus    `json:"rules"`
	// Candidate says that rules are tried beside the live ones: GET
	// /v1/candidate tells how.
	Candidate bool         `json:"candidate"`
	Doors     []DoorStatus `json:"doors"`
}

// RulesStatus says which rules are in force.
type RulesStatus struct {
	Source        string    `json:"source"` // files, xds or built_in
	Rules         int       `json:"rules"`
	Domains       int       `json:"domains"`
	Files         int       `json:"files"`
	LoadedAt      time.Time `json:"loaded_at"`
	ReloadsOK     uint64    `json:"reloads_ok"`
	ReloadsFailed uint64    `json:"reloads_failed"`
	// LastError is what was wrong the last time, if it was.
	LastError string `json:"last_error,omitempty"`
}

// DoorStatus is where a door listens.
type DoorStatus struct {
	Name    string `json:"name"`
	Address string `json:"address"`
}

func statusOf(source string, r *follow.Reading) RulesStatus {
	s := RulesStatus{Source: source, LoadedAt: r.LoadedAt.UTC(), ReloadsOK: r.Succeeded, ReloadsFailed: r.Failed, LastError: follow.FirstOf(r.Failure)}
	if r.Rules != nil {
		stats := r.Rules.Stats()
		s.Rules, s.Domains, s.Files = stats.Rules, stats.Domains, stats.Files
	}
	return s
}

// reports says how the process is and what it does.
type reports struct{ *Options }

func (d reports) routes() map[string]http.Handler {
	return map[string]http.Handler{
		"GET /v1/status":    http.HandlerFunc(d.status),
		"GET /v1/rules":     http.HandlerFunc(d.listRules),
		"GET /v1/live":      d.Extra(http.HandlerFunc(d.live)),
		"GET /v1/events":    d.Extra(http.HandlerFunc(d.events)),
		"GET /v1/top":       http.HandlerFunc(d.top),
		"GET /v1/log-level": http.HandlerFunc(d.logLevel),
		"PUT /v1/log-level": http.HandlerFunc(d.setLogLevel),

		"POST /v1/rules/rollback": d.changeRules(d.RollBack),
		"POST /v1/rules/accept":   d.changeRules(d.Accept),
	}
}

// status answers GET /v1/status.
func (d reports) status(w http.ResponseWriter, r *http.Request) {
	if !onlyParameters(w, r) {
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), time.Second)
	defer cancel()
	s := d.Process(ctx)
	source, read := d.Rules()
	s.Go, s.Rules, s.Candidate = runtime.Version(), statusOf(source, &read), d.Candidate != nil
	s.Started, s.UptimeS = s.Started.UTC(), int64(d.Clock().Sub(s.Started)/time.Second)
	writeJSON(w, s)
}
