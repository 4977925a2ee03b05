package app

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/door/answer"
	"github.com/headgate/headgate/internal/rules"
)

// Status is the answer of GET /v1/status.
type Status struct {
	Version string      `json:"version"`
	Go      string      `json:"go"`
	Started time.Time   `json:"started"`
	UptimeS int64       `json:"uptime_s"`
	Ready   bool        `json:"ready"`
	Store   StoreStatus `json:"store"`
	Rules   RulesStatus `json:"rules"`
	// Candidate says that rules are tried beside the live ones: GET
	// /v1/candidate tells how.
	Candidate bool         `json:"candidate"`
	Doors     []DoorStatus `json:"doors"`
}

// StoreStatus is how the store is.
type StoreStatus struct {
	Kind    string `json:"kind"` // memory or redis
	Healthy bool   `json:"healthy"`
	Circuit string `json:"circuit"` // closed or open
	// Keys and what follows are of the embedded store; beside Redis of the one
	// that stands in for it.
	Keys    int64 `json:"keys"`
	MaxKeys int64 `json:"max_keys"`
	Bytes   int64 `json:"bytes"`
	Evicted int64 `json:"evicted"`
	// DenyCache is of Redis.
	DenyCache DenyCacheStatus `json:"deny_cache"`
	Error     string          `json:"error,omitempty"`
}

// DenyCacheStatus is how many refusals can be remembered, and how often one
// was.
type DenyCacheStatus struct {
	Entries int64  `json:"entries"`
	Hits    uint64 `json:"hits"`
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

// status answers GET /v1/status.
func (a *App) status(w http.ResponseWriter, r *http.Request) {
	if !onlyParameters(w, r) {
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), time.Second)
	defer cancel()
	writeJSON(w, a.statusNow(ctx))
}

func (a *App) statusNow(ctx context.Context) *Status {
	ready := a.readiness(ctx)
	s := &Status{
		Version: versionOf(a.options.Version), Go: goVersion(),
		Started: a.started.UTC(), UptimeS: int64(a.options.Clock().Sub(a.started) / time.Second),
		Ready: ready.Ready(), Store: a.storeStatus(), Rules: a.rulesStatus(), Doors: []DoorStatus{},
		Candidate: a.candidate.comparing != nil,
	}
	if ready.Store != nil {
		s.Store.Healthy, s.Store.Error = false, cmp.Or(s.Store.Error, ready.Store.Error())
	}
	for _, d := range a.doors {
		if d.name != backendDoor {
			s.Doors = append(s.Doors, DoorStatus{d.name, d.listener.Addr().String()})
		}
	}
	return s
}

func (a *App) storeStatus() StoreStatus {
	s := StoreStatus{Kind: "memory", Healthy: true, Circuit: closedCircuit.String()}
	if a.memory != nil {
		m := a.memory.Stats()
		s.Keys, s.MaxKeys, s.Bytes, s.Evicted = m.Keys, a.maxKeys(), m.Bytes, m.Evicted
	}
	if a.safe != nil {
		f := a.safe.Stats()
		s.Kind, s.Circuit, s.Healthy = "redis", f.State.String(), f.State == closedCircuit
		s.DenyCache = DenyCacheStatus{int64(a.options.Config.Store.Redis.DenyCache), f.CacheHits}
		if err := a.storeError.Load(); err != nil && !s.Healthy {
			s.Error = *err
		}
		if err := a.storeHealth.trouble(); err != nil {
			s.Healthy, s.Error = false, err.Error()
		}
	}
	return s
}

func (a *App) rulesStatus() RulesStatus {
	state := a.state.Load()
	stats := state.rules.Stats()
	s := RulesStatus{
		Source: a.options.Config.RulesFrom.String(), Rules: stats.Rules, Domains: stats.Domains, Files: stats.Files,
		LoadedAt: state.loadedAt.UTC(), ReloadsOK: state.succeeded, ReloadsFailed: state.failed,
	}
	if len(a.options.BuiltIn) > 0 {
		s.Source = "built_in"
	}
	if state.failure != nil {
		s.LastError = firstOf(state.failure)
	}
	return s
}

// maxKeys is how many keys the embedded store may have.
func (a *App) maxKeys() int64 {
	return cmp.Or(a.options.Config.Store.Memory.MaxKeys, defaultMaxKeys)
}

// defaultMaxKeys is that of store/memory.
const defaultMaxKeys = 1_000_000

// RuleStatus is one of the answer of GET /v1/rules.
type RuleStatus struct {
	Domain       string   `json:"domain"`
	Name         string   `json:"name"`
	File         string   `json:"file"`
	Line         int      `json:"line"`
	Limit        int64    `json:"limit"`
	PeriodMS     int64    `json:"period_ms"`
	Rate         string   `json:"rate"`
	Algorithm    string   `json:"algorithm"`
	Burst        int64    `json:"burst"`
	Unlimited    bool     `json:"unlimited,omitempty"`
	Key          []string `json:"key"`
	Match        string   `json:"match"`
	Mode         string   `json:"mode"`
	Percent      int      `json:"percent"`
	Action       string   `json:"action"`
	OnStoreError string   `json:"on_store_error"`
	Description  string   `json:"description,omitempty"`
}

// listRules answers GET /v1/rules.
func (a *App) listRules(w http.ResponseWriter, r *http.Request) {
	if !onlyParameters(w, r, "domain") {
		return
	}
	domain := r.URL.Query().Get("domain")
	out := struct {
		Rules []RuleStatus `json:"rules"`
	}{[]RuleStatus{}}
	for _, rule := range a.state.Load().rules.Rules() {
		if domain == "" || rule.Domain == domain {
			out.Rules = append(out.Rules, ruleStatus(rule))
		}
	}
	writeJSON(w, out)
}

func ruleStatus(r *rules.Rule) RuleStatus {
	s := RuleStatus{
		Domain: r.Domain, Name: r.Name, File: r.File, Line: r.Line, Rate: rateText(r.Limit),
		Unlimited: r.Limit.IsUnlimited(), Key: []string{}, Match: r.Conditions(), Mode: r.Mode.String(), Percent: r.Percent,
		Action: r.OnLimit.Action.String(), OnStoreError: r.OnStoreError.String(), Description: r.Description,
	}
	if !s.Unlimited {
		s.Limit, s.PeriodMS, s.Burst = r.Limit.N(), r.Limit.Period().Milliseconds(), r.Limit.Capacity()
		s.Algorithm = r.Limit.Algorithm().String()
	}
	for _, k := range r.Key {
		s.Key = append(s.Key, k.String())
	}
	return s
}

// rateText writes a limit as rules do: 5/minute, 300/3h.
func rateText(l headgate.Limit) string {
	if l.IsUnlimited() {
		return "unlimited"
	}
	per := ""
	if c := l.Rule().Calendar; c != headgate.NoCalendar {
		per = c.String()
	}
	switch l.Period() { //nolint:exhaustive // the rest has no word
	case time.Second:
		per = "second"
	case time.Minute:
		per = "minute"
	case time.Hour:
		per = "hour"
	case 24 * time.Hour:
		per = "day"
	case 7 * 24 * time.Hour:
		per = "week"
	}
	if per == "" {
		per = l.Period().String()
		for _, zero := range []string{"m0s", "h0m"} {
			if rest, ok := strings.CutSuffix(per, zero); ok {
				per = rest + zero[:1]
			}
		}
	}
	return strconv.FormatInt(l.N(), 10) + "/" + per
}

func versionOf(v string) string { return cmp.Or(v, "unknown") }

func goVersion() string { return runtime.Version() }

// writeJSON answers with v.
func writeJSON(w http.ResponseWriter, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		answer.Problem(w, http.StatusInternalServerError, "the answer cannot be encoded")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(append(body, '\n'))
}
