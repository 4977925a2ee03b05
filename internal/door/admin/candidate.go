package admin

import (
	"net/http"
	"time"

	"github.com/headgate/headgate/internal/decide/candidate"
	"github.com/headgate/headgate/internal/door/answer"
	"github.com/headgate/headgate/internal/observe/metrics"
	"github.com/headgate/headgate/internal/observe/top"
	"github.com/headgate/headgate/internal/rules"
)

// The states of a candidate.
const (
	CandidateComparing = "comparing" // decides beside the live rules
	CandidateAbsent    = "absent"    // has no files, or none any more
	CandidateFailed    = "failed"    // has never been read without a mistake
)

// CandidateStatus is the answer of GET /v1/candidate.
type CandidateStatus struct {
	// State is one of those above; Paths are the candidate's files and folders.
	State string   `json:"state"`
	Paths []string `json:"paths"`
	// Since is when the comparison began; null if there is none. From WarmAt on
	// the candidate's counts cover as long as any of its limits looks back;
	// before, it refuses too little. Null if that is never.
	Since  *time.Time `json:"since"`
	WarmAt *time.Time `json:"warm_at"`
	// Requests were compared. NotCompared were not: in a domain that the
	// candidate has no rules for, answered without the store, or refused by a
	// limit of what is in flight.
	Requests     uint64 `json:"requests"`
	Same         uint64 `json:"same"`
	SameAllowed  uint64 `json:"same_allowed"`
	SameRefused  uint64 `json:"same_refused"`
	NewlyRefused uint64 `json:"newly_refused"`
	NewlyAllowed uint64 `json:"newly_allowed"`
	NotCompared  uint64 `json:"not_compared"`
	// By has the rules that are the reason, Samples some of the differences.
	By      []CandidateRule   `json:"by"`
	Samples []CandidateSample `json:"samples"`
	Rules   RulesStatus       `json:"rules"`
	Store   CandidateStore    `json:"store"`
}

// CandidateRule is what one rule changes.
type CandidateRule struct {
	Domain       string `json:"domain"`
	Rule         string `json:"rule"` // the candidate's that refuses or, of what newly passes, the live one that does
	NewlyRefused int64  `json:"newly_refused"`
	NewlyAllowed int64  `json:"newly_allowed"`
	// ErrorBound is how often a key that is not told may have occurred.
	ErrorBound int64    `json:"error_bound"`
	Keys       []TopKey `json:"keys"`
}

// CandidateSample is one difference.
type CandidateSample struct {
	T      time.Time `json:"t"`
	Change string    `json:"change"` // newly_refused or newly_allowed
	Domain string    `json:"domain"`
	Rule   string    `json:"rule"`
	metrics.Key
	Limit int64 `json:"limit"`
	// RetryAfter is that of the refusal; null means never.
	RetryAfter *int64 `json:"retry_after_ms"`
	Door       string `json:"door,omitempty"`
	Method     string `json:"method,omitempty"`
	Path       string `json:"path,omitempty"`
}

// CandidateStore is the memory of its counts.
type CandidateStore struct {
	Keys    int64 `json:"keys"`
	MaxKeys int64 `json:"max_keys"`
	Bytes   int64 `json:"bytes"`
	Evicted int64 `json:"evicted"` // Evicted keys still counted, and were forgotten to make room
}

// candidates says what a candidate would change.
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

// tellComparison adds what the comparison has found.
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
	if after, ok := answer.RetryAfter(s.Decision); ok {
		out.RetryAfter = new(answer.Milliseconds(after))
	}
	return out
}

// memoryOf returns how long the limit that looks back furthest does. It reports
// false if that is longer than a duration can be.
func memoryOf(rs *rules.Ruleset) (time.Duration, bool) {
	var longest time.Duration
	for _, r := range rs.Rules() {
		if r.Limit.IsUnlimited() || r.Limit.N() == 0 {
			continue
		}
		periods := max(float64(r.Limit.Capacity())/float64(r.Limit.N()), 1) // until a bucket is full again
		back := float64(r.Limit.Period()) * periods
		if back > float64(1<<62) {
			return 0, false
		}
		longest = max(longest, time.Duration(back))
	}
	return longest, true
}
