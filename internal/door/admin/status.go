package admin

import (
	"bytes"
	"cmp"
	"context"
	"log/slog"
	"math"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/counts/storing"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/observe/metrics"
	"github.com/headgate/headgate/internal/observe/top"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/features"
	"github.com/headgate/headgate/internal/rules/follow"
)

// Status is the answer of GET /v1/status.
type Status struct {
	Version   string         `json:"version"`   // of Headgate
	Go        string         `json:"go"`        // the version of Go that built it
	Started   time.Time      `json:"started"`   // when this process started
	UptimeS   int64          `json:"uptime_s"`  // seconds since then
	Ready     bool           `json:"ready"`     // what /readyz says
	Store     storing.Status `json:"store"`     // where counts are kept
	Rules     RulesStatus    `json:"rules"`     // the active rules
	Candidate bool           `json:"candidate"` // whether a candidate is configured: see GET /v1/candidate
	Regions   bool           `json:"regions"`   // whether other regions are configured: see GET /v1/regions
	Doors     []DoorStatus   `json:"doors"`     // the open doors
	// Upstream is set while the proxy finds out what its upstream can work on.
	Upstream *UpstreamStatus `json:"upstream,omitempty"`
}

// UpstreamStatus is what the proxy knows of its upstream.
type UpstreamStatus struct {
	InFlight  int             `json:"in_flight"`            // requests that wait for the header of its answer
	ServiceMS float64         `json:"service_ms"`           // milliseconds that it takes without load; 0 if not yet known
	Shadow    bool            `json:"shadow"`               // whether nothing is shed
	WouldShed int64           `json:"would_shed,omitempty"` // in shadow mode: requests that would have been shed
	Classes   []UpstreamClass `json:"classes"`              // the highest first
}

// UpstreamClass is a class of requests to the upstream.
type UpstreamClass struct {
	Class string `json:"class"` // its name; default if there are no others
	Limit int    `json:"limit"` // requests in progress up to which one of this class may start
	Shed  uint64 `json:"shed"`  // requests shed since the start
}

func upstreamOf(m *metrics.Observer) *UpstreamStatus {
	u, ok := m.Upstream()
	if !ok {
		return nil
	}
	s := &UpstreamStatus{InFlight: u.InFlight, ServiceMS: math.Round(1e5*u.Service) / 100, Shadow: u.Shadow}
	if u.Shadow {
		s.WouldShed = u.WouldShed
	}
	for _, c := range u.Classes {
		s.Classes = append(s.Classes, UpstreamClass{Class: c.Name, Limit: c.Limit, Shed: c.Shed})
	}
	return s
}

// RulesStatus describes the active rules.
type RulesStatus struct {
	Source        string    `json:"source"`               // files, xds or built_in
	Rules         int       `json:"rules"`                // how many rules there are
	Domains       int       `json:"domains"`              // in how many domains
	Files         int       `json:"files"`                // in how many files
	LoadedAt      time.Time `json:"loaded_at"`            // when they were read
	ReloadsOK     uint64    `json:"reloads_ok"`           // how often rules were read
	ReloadsFailed uint64    `json:"reloads_failed"`       // how often they could not be read
	LastError     string    `json:"last_error,omitempty"` // of the last reload, if it failed
}

// DoorStatus is the address of a door.
type DoorStatus struct {
	Name    string `json:"name"`    // api, grpc, resp, proxy, admin or shared
	Address string `json:"address"` // where it listens
}

func statusOf(source string, r *follow.Reading) RulesStatus {
	s := RulesStatus{Source: source, LoadedAt: r.LoadedAt.UTC(), ReloadsOK: r.Succeeded, ReloadsFailed: r.Failed, LastError: follow.FirstOf(r.Failure)}
	if r.Rules != nil {
		stats := r.Rules.Stats()
		s.Rules, s.Domains, s.Files = stats.Rules, stats.Domains, stats.Files
	}
	return s
}

// reports serves the state and activity of the process.
type reports struct{ *Options }

func (d reports) routes() map[string]http.Handler {
	return map[string]http.Handler{
		"GET /v1/status":    asked(d.status),
		"GET /v1/rules":     asked(d.listRules, "domain"),
		"GET /v1/blocks":    asked(d.listBlocks, "domain"),
		"GET /v1/regions":   asked(d.listRegions),
		"GET /v1/live":      d.Extra(asked(d.live)),
		"GET /v1/events":    d.Extra(asked(d.events, "domain", "rule", "outcome", "key", "sample")),
		"GET /v1/top":       asked(d.top, "domain", "rule", "by", "n"),
		"GET /v1/log-level": reply(d.logLevel),
		"PUT /v1/log-level": reply(d.setLogLevel),

		"POST /v1/rules/rollback": asked(d.changeRules(d.RollBack)),
		"POST /v1/rules/accept":   asked(d.changeRules(d.Accept)),
	}
}

// status answers GET /v1/status.
func (d reports) status(_ http.ResponseWriter, r *http.Request) (any, error) {
	ctx, cancel := context.WithTimeout(r.Context(), time.Second)
	defer cancel()
	s := d.Process(ctx)
	source, read := d.Rules()
	s.Go, s.Rules, s.Candidate = runtime.Version(), statusOf(source, &read), d.Candidate != nil
	s.Regions, s.Upstream = d.Among != nil, upstreamOf(d.Metrics)
	s.Started, s.UptimeS = s.Started.UTC(), int64(d.Clock().Sub(s.Started)/time.Second)
	return s, nil
}

// live answers GET /v1/live.
func (d reports) live(w http.ResponseWriter, r *http.Request) (any, error) {
	if !d.Live.Serve(w, r) {
		return nil, problemf(http.StatusServiceUnavailable, "too many live views are open")
	}
	return nil, nil //nolint:nilnil // it has been answered
}

// events answers GET /v1/events.
func (d reports) events(w http.ResponseWriter, r *http.Request) (any, error) {
	q := r.URL.Query()
	f := metrics.Filter{
		Domain: q.Get("domain"), Rule: q.Get("rule"), Outcome: q.Get("outcome"), Key: q.Get("key"), Sample: 1,
	}
	var known []string
	for o := range engine.Outcomes {
		known = append(known, o.String())
	}
	if f.Outcome != "" && !slices.Contains(known, f.Outcome) {
		return nil, wrongParameter("outcome", f.Outcome, known)
	}
	if text := q.Get("sample"); text != "" {
		share, err := strconv.ParseFloat(text, 64)
		if err != nil || !(share > 0 && share <= 1) {
			return nil, wrong("sample is %q, must be a number above 0 and at most 1", text)
		}
		f.Sample = share
	}
	if !d.Events.Serve(w, r, f) {
		return nil, problemf(http.StatusServiceUnavailable, "too many event streams are open")
	}
	return nil, nil //nolint:nilnil // it has been answered
}

// logLevel answers GET /v1/log-level.
func (d reports) logLevel(http.ResponseWriter, *http.Request) (any, error) {
	return map[string]string{"level": levelName(d.LogLevel.Level())}, nil
}

// setLogLevel answers PUT /v1/log-level, whose body is {"level":"debug"}.
func (d reports) setLogLevel(w http.ResponseWriter, r *http.Request) (any, error) {
	body, err := readBody(w, r)
	if err != nil {
		return nil, err
	}
	var want struct {
		Level string `json:"level"`
	}
	if err := decode(bytes.NewReader(body), &want); err != nil {
		return nil, wrong(`the body must be like {"level":"debug"}: %v`, err)
	}
	names := []string{"debug", "info", "warn", "error"}
	for i, level := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError} {
		if names[i] != want.Level {
			continue
		}
		old := d.LogLevel.Level()
		d.LogLevel.Set(level)
		d.Log.Warn("log level changed", "level", want.Level, "was", levelName(old))
		return d.logLevel(w, r)
	}
	return nil, wrongParameter("level", want.Level, names)
}

// levelName returns the level's name in configuration.
func levelName(l slog.Level) string {
	switch {
	case l < slog.LevelInfo:
		return "debug"
	case l < slog.LevelWarn:
		return "info"
	case l < slog.LevelError:
		return "warn"
	}
	return "error"
}

const (
	defaultTop = 20
	// maxTop limits the keys listed for each rule, maxTopRules the rules.
	maxTop      = 2 * top.Counters
	maxTopRules = 100
)

// TopRules is the answer of GET /v1/top.
type TopRules struct {
	Rules []TopRule `json:"rules"` // most requests first
}

// TopRule lists the most frequent keys of one rule.
type TopRule struct {
	Domain     string   `json:"domain"`
	Rule       string   `json:"rule"`
	By         string   `json:"by"`          // what is counted: refused or active
	ErrorBound int64    `json:"error_bound"` // how often a key not listed may have occurred
	Total      int64    `json:"total"`       // the count of all keys
	Sampled    int64    `json:"sampled"`     // the estimated part of Total
	Keys       []TopKey `json:"keys"`        // in descending order
}

// TopKey is one key.
type TopKey struct {
	metrics.Key
	Count int64   `json:"count"` // at most Error too high, never too low; if estimated, right on average
	Error int64   `json:"error"` // how much Count may be too high
	Share float64 `json:"share"` // of Total, from 0 to 1
}

// top answers GET /v1/top.
func (d reports) top(_ http.ResponseWriter, r *http.Request) (any, error) {
	q := r.URL.Query()
	by, ok := top.ParseBy(cmp.Or(q.Get("by"), top.Refused.String()))
	if !ok {
		return nil, wrongParameter("by", q.Get("by"), []string{top.Refused.String(), top.Active.String()})
	}
	n, err := numberParameter(r, defaultTop, 1, maxTop)
	if err != nil {
		return nil, err
	}
	rs := d.Engine.Rules()
	list, err := rulesNamed(rs, q.Get("domain"), q.Get("rule"))
	lists := listsNamed(rs, q.Get("domain"), q.Get("rule"))
	if err != nil && len(lists) == 0 {
		return nil, err
	}
	return d.topOf(append(list, lists...), by, n), nil
}

// rulesNamed returns the rules with this domain and name. An empty string matches
// any. It returns a problem if there is no such domain or rule.
func rulesNamed(rs *rules.Ruleset, domain, name string) (list []*rules.Rule, err error) {
	if domain != "" && !slices.Contains(rs.Domains(), domain) {
		return nil, problemf(http.StatusNotFound, "unknown domain %q%s", domain, nearestOf(domain, rs.Domains()))
	}
	var known []string
	for _, r := range rs.Rules() {
		if domain != "" && r.Domain != domain {
			continue
		}
		known = append(known, r.Name)
		if name == "" || r.Name == name {
			list = append(list, r)
		}
	}
	if name != "" && len(list) == 0 {
		return nil, problemf(http.StatusNotFound, "unknown rule %q%s", name, nearestOf(name, known))
	}
	return list, nil
}

func (d reports) topOf(list []*rules.Rule, by top.By, n int) *TopRules {
	out := &TopRules{Rules: []TopRule{}}
	now := d.Clock()
	for _, r := range list {
		t, ok := d.Metrics.Top(r, by, now, n)
		if !ok || t.Total == 0 {
			continue
		}
		out.Rules = append(out.Rules, TopRule{
			Domain: r.Domain, Rule: r.Name, By: by.String(),
			ErrorBound: t.Bound, Total: t.Total, Sampled: t.Sampled, Keys: d.topKeys(t.Keys, t.Total),
		})
	}
	slices.SortStableFunc(out.Rules, func(a, b TopRule) int { return cmp.Compare(b.Total, a.Total) })
	out.Rules = out.Rules[:min(len(out.Rules), maxTopRules)]
	return out
}

// topKeys converts keys. total is the count that their shares refer to.
func (o *Options) topKeys(list []top.Count, total int64) []TopKey {
	told := []TopKey{}
	for _, k := range list {
		told = append(told, TopKey{Key: o.Keys.Of(k.Key), Count: k.Count, Error: k.Error, Share: float64(k.Count) / float64(total)})
	}
	return told
}

// RuleStatus is one rule in the answer of GET /v1/rules.
type RuleStatus struct {
	Domain       string   `json:"domain"`
	Name         string   `json:"name"`
	File         string   `json:"file"`
	Line         int      `json:"line"`
	Limit        int64    `json:"limit"`     // how many in a period
	PeriodMS     int64    `json:"period_ms"` // the period
	Rate         string   `json:"rate"`
	Algorithm    string   `json:"algorithm"`
	Burst        int64    `json:"burst"`               // how many at once
	Unlimited    bool     `json:"unlimited,omitempty"` // it limits nothing
	Key          []string `json:"key"`                 // what it counts by
	Match        string   `json:"match"`               // which requests it applies to, in words
	Mode         string   `json:"mode"`                // enforce or shadow
	Percent      int      `json:"percent"`             // the share of keys that it applies to
	Action       string   `json:"action"`              // what happens to a request over the limit
	OnStoreError string   `json:"on_store_error"`      // what happens if the store does not answer: allow, deny or local
	features.Told
	Description string `json:"description,omitempty"` // what the rule file says about it
}

// listRules answers GET /v1/rules.
func (d reports) listRules(_ http.ResponseWriter, r *http.Request) (any, error) {
	domain := r.URL.Query().Get("domain")
	out := struct {
		Rules []RuleStatus `json:"rules"`
		Lists []ListStatus `json:"lists,omitempty"`
	}{Rules: []RuleStatus{}, Lists: d.listsOf(domain)}
	for _, rule := range d.Engine.Rules().Rules() {
		if domain == "" || rule.Domain == domain {
			out.Rules = append(out.Rules, ruleStatus(rule))
		}
	}
	return out, nil
}

func ruleStatus(r *rules.Rule) RuleStatus {
	s := RuleStatus{
		Domain: r.Domain, Name: r.Name, File: r.File, Line: r.Line, Rate: rateText(r.Limit),
		Unlimited: r.Limit.Rule().Unlimited, Key: []string{}, Match: r.Conditions(), Mode: r.Mode.String(), Percent: r.Percent,
		Action: r.OnLimit.Action.String(), OnStoreError: r.OnStoreError.String(), Told: features.Tell(r), Description: r.Description,
	}
	if !s.Unlimited {
		s.Limit, s.PeriodMS, s.Burst = r.Limit.N(), r.Limit.Period().Milliseconds(), r.Limit.Burst()
		s.Algorithm = r.Limit.Algorithm().String()
	}
	for _, k := range r.Key {
		s.Key = append(s.Key, k.String())
	}
	return s
}

// rateText writes a limit as rules do: 5/minute, 300/3h.
func rateText(l headgate.Limit) string {
	if l.Algorithm() == headgate.Concurrency {
		l = headgate.Per(l.N(), l.Period())
	}
	rate, _, _ := strings.Cut(l.String(), " ")
	return rate
}

// RulesChange is the answer of POST /v1/rules/rollback and /v1/rules/accept.
type RulesChange struct {
	Rules   int `json:"rules"`   // how many rules are active now
	Domains int `json:"domains"` // in how many domains
}

// changeRules answers a request with an empty body that overrides the rule files.
func (d reports) changeRules(change func() error) reply {
	return func(w http.ResponseWriter, r *http.Request) (any, error) {
		if err := emptyBody(w, r); err != nil {
			return nil, err
		}
		if err := change(); err != nil {
			return nil, &problem{http.StatusConflict, err.Error()}
		}
		stats := d.Engine.Rules().Stats()
		return RulesChange{Rules: stats.Rules, Domains: stats.Domains}, nil
	}
}
