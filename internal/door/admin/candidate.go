package admin

import (
	"net/http"
	"time"

	"github.com/headgate/headgate/internal/answer"
	"github.com/headgate/headgate/internal/observe/candidate"
	"github.com/headgate/headgate/internal/observe/metrics"
	"github.com/headgate/headgate/internal/observe/top"
	"github.com/headgate/headgate/internal/rules"
)

// The states of a candidate.
const (
	CandidateComparing = "comparing" // runs alongside the live rules
	CandidateAbsent    = "absent"    // has no files (any more)
	CandidateFailed    = "failed"    // has never been read without errors
)

// CandidateStatus is the answer of GET /v1/candidate.
type CandidateStatus struct {
	State        string            `json:"state"`         // comparing, absent (no files) or failed (never read without errors)
	Paths        []string          `json:"paths"`         // the candidate's files and folders
	Since        *time.Time        `json:"since"`         // when the comparison started; null if there is none
	WarmAt       *time.Time        `json:"warm_at"`       // from when on its counts reach back as far as its longest limit; before, it refuses too little. null if never
	Requests     uint64            `json:"requests"`      // how many requests were compared
	Same         uint64            `json:"same"`          // how many of them both rules answered in the same way
	SameAllowed  uint64            `json:"same_allowed"`  // how many both allowed
	SameRefused  uint64            `json:"same_refused"`  // how many both refused
	NewlyRefused uint64            `json:"newly_refused"` // how many only the candidate refused
	NewlyAllowed uint64            `json:"newly_allowed"` // how many only the live rules refused
	NotCompared  uint64            `json:"not_compared"`  // others: in a domain without candidate rules, answered without the store, or refused by a concurrency limit
	By           []CandidateRule   `json:"by"`            // the rules that cause differences
	Samples      []CandidateSample `json:"samples"`       // some of the differences
	Rules        RulesStatus       `json:"rules"`         // the state of the candidate's files
	Store        CandidateStore    `json:"store"`         // the store of the candidate's counts
}

// CandidateRule counts the differences that one rule causes.
type CandidateRule struct {
	Domain       string   `json:"domain"`
	Rule         string   `json:"rule"`          // the candidate's if newly refused, the live one if newly allowed
	NewlyRefused int64    `json:"newly_refused"` // requests that only the candidate refuses
	NewlyAllowed int64    `json:"newly_allowed"` // requests that only the live rules refuse
	ErrorBound   int64    `json:"error_bound"`   // how often a key not in Keys may have occurred
	Keys         []TopKey `json:"keys"`          // the keys with most differences
}

// CandidateSample is one difference.
type CandidateSample struct {
	T      time.Time `json:"t"`      // when
	Change string    `json:"change"` // newly_refused or newly_allowed
	Domain string    `json:"domain"`
	Rule   string    `json:"rule"`
	metrics.Key
	Limit      int64  `json:"limit"`            // the limit that refuses
	RetryAfter *int64 `json:"retry_after_ms"`   // of the refusal; null means never
	Door       string `json:"door,omitempty"`   // the door that the request came to
	Method     string `json:"method,omitempty"` // the method of the request
	Path       string `json:"path,omitempty"`   // the path of the request; absent if operators must not see it
}

// CandidateStore describes the store of the candidate's counts.
type CandidateStore struct {
	Keys    int64 `json:"keys"`     // keys in it
	MaxKeys int64 `json:"max_keys"` // how many keys fit
	Bytes   int64 `json:"bytes"`    // the memory that its keys take
	Evicted int64 `json:"evicted"`  // keys forgotten to free memory although they still counted
}

// candidates reports what the candidate rules would change.
type candidates struct{ *Options }

func (c candidates) routes() map[string]http.Handler {
	return map[string]http.Handler{
		"GET /v1/candidate":        asked(c.get, "n"),
		"POST /v1/candidate/reset": asked(c.reset),
	}
}

var errNoCandidate = problemf(http.StatusNotFound, "no candidate is configured: set candidate in the configuration, or pass --candidate")

// get answers GET /v1/candidate.
func (c candidates) get(_ http.ResponseWriter, r *http.Request) (any, error) {
	if c.Candidate == nil {
		return nil, errNoCandidate
	}
	n, err := numberParameter(r, defaultTop, 0, top.Counters)
	if err != nil {
		return nil, err
	}
	return c.status(n), nil
}

// reset answers POST /v1/candidate/reset. Its body is empty or {}.
func (c candidates) reset(w http.ResponseWriter, r *http.Request) (any, error) {
	if c.Candidate == nil {
		return nil, errNoCandidate
	}
	if err := emptyBody(w, r); err != nil {
		return nil, err
	}
	c.Candidate.Comparing.Reset(c.Clock())
	c.Log.Info("candidate comparison reset")
	return c.status(0), nil
}

func (c candidates) status(n int) *CandidateStatus {
	read := c.Candidate.Reading()
	store, maxKeys := c.Candidate.Store()
	s := &CandidateStatus{
		State: CandidateComparing, Paths: c.Candidate.Files().Paths, By: []CandidateRule{}, Samples: []CandidateSample{},
		Rules: statusOf("files", &read),
		Store: CandidateStore{Keys: store.Keys, MaxKeys: maxKeys, Bytes: store.Bytes, Evicted: store.EvictedInDebt},
	}
	switch rs := read.Rules; {
	case rs == nil:
		s.State = CandidateFailed
	case len(rs.Domains()) == 0:
		s.State = CandidateAbsent
	default:
		if longest, ok := memoryOf(rs); ok {
			s.WarmAt = new(read.LoadedAt.Add(longest).UTC())
		}
	}
	if r, ok := c.Candidate.Comparing.Report(n); ok {
		c.tellComparison(s, &r)
	}
	return s
}

// tellComparison adds the results of the comparison to s.
func (c candidates) tellComparison(s *CandidateStatus, r *candidate.Report) {
	s.Since = new(r.Since.UTC())
	s.SameAllowed, s.SameRefused = r.Counts[candidate.SameAllowed], r.Counts[candidate.SameRefused]
	s.NewlyRefused, s.NewlyAllowed = r.Counts[candidate.NewlyRefused], r.Counts[candidate.NewlyAllowed]
	s.NotCompared = r.Counts[candidate.NotCompared]
	s.Same = s.SameAllowed + s.SameRefused
	s.Requests = s.Same + s.NewlyRefused + s.NewlyAllowed
	for i := range r.By {
		by := &r.By[i]
		told := CandidateRule{Domain: by.Domain, Rule: by.Rule, ErrorBound: by.Keys.Bound, Keys: c.topKeys(by.Keys.Keys, by.Keys.Total)}
		if by.Change == candidate.NewlyRefused {
			told.NewlyRefused = by.Keys.Total
		} else {
			told.NewlyAllowed = by.Keys.Total
		}
		s.By = append(s.By, told)
	}
	for i := range r.Samples {
		s.Samples = append(s.Samples, c.candidateSample(&r.Samples[i]))
	}
}

func (c candidates) candidateSample(s *candidate.Sample) CandidateSample {
	out := CandidateSample{
		T: s.At, Change: s.Change.String(), Domain: s.Domain, Rule: s.Rule, Key: c.Keys.Of(s.Key),
		Limit: s.Decision.Limit, Door: s.Door.String(), Method: s.Method, Path: s.Path,
	}
	if c.Keys.HidesPath(c.Engine.Rules(), s.Domain) || c.Keys.HidesPath(c.Candidate.Comparing.Rules(), s.Domain) {
		out.Path = ""
	}
	if after, ok := answer.RetryAfter(s.Decision); ok {
		out.RetryAfter = new(answer.Milliseconds(after))
	}
	return out
}

// memoryOf returns how far back the limits of rs look at most. It reports false if
// that does not fit into a duration.
func memoryOf(rs *rules.Ruleset) (time.Duration, bool) {
	var longest time.Duration
	for _, r := range rs.Rules() {
		if r.Limit.Rule().Unlimited || r.Limit.N() == 0 {
			continue
		}
		periods := max(float64(r.Limit.Burst())/float64(r.Limit.N()), 1) // until a bucket is full again
		back := float64(r.Limit.Period()) * periods
		if back > float64(1<<62) {
			return 0, false
		}
		longest = max(longest, time.Duration(back))
	}
	return longest, true
}
