package app

import (
	"errors"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/internal/decide/candidate"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/observe/metrics"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/store/memory"
)

// candidateState is what belongs to the rules that are tried beside the live
// ones. All of it is nil or empty without a candidate.
type candidateState struct {
	comparing *candidate.Candidate
	store     *memory.Store
	files     atomic.Pointer[candidateFiles]

	mu   sync.Mutex // of what reads the files
	seen [32]byte   // the fingerprint of those of the last attempt
	// loaded is the fingerprint of those in use, live that of the live rules
	// that they are compared with.
	loaded, live [32]byte
}

// candidateFiles says how reading them went. It is never changed, only
// replaced.
type candidateFiles struct {
	reading

	absent bool // there are no files, or no more
}

// openCandidate begins to compare, if there is a candidate, and returns what
// the engine has to know. Mistakes in its files are no reason not to serve.
func (a *App) openCandidate() []engine.Option {
	if len(a.options.Config.Candidate.Rules) == 0 {
		return nil
	}
	c := &a.candidate
	// The counts of a candidate are in memory wherever the live ones are, and
	// nobody restores them.
	o := []memory.Option{memory.WithClock(a.options.Clock)}
	if n := a.options.Config.Candidate.MaxKeys; n > 0 {
		o = append(o, memory.WithMaxKeys(int(n)))
	}
	c.store = memory.New(o...)
	a.cleanup = append(a.cleanup, func() { _ = c.store.Close() })
	a.every(sweepInterval, func() { c.store.Sweep(a.options.Clock()) })
	c.comparing = candidate.New(c.store)
	c.files.Store(&candidateFiles{})
	c.live = a.seen
	a.reloadCandidate()
	a.register(a.candidateCollector())
	return []engine.Option{engine.WithObserver(engine.Both(a.metrics, c.comparing))}
}

// followEngine makes what operators say about single keys hold for the
// candidate.
func (a *App) followEngine() {
	if a.candidate.comparing != nil {
		a.candidate.comparing.Follow(a.engine)
	}
}

// reloadCandidate reads its files and compares by them. If anything is wrong
// with them the old ones stay.
func (a *App) reloadCandidate() {
	if a.candidate.comparing == nil {
		return
	}
	a.candidate.mu.Lock()
	defer a.candidate.mu.Unlock()
	a.readCandidate()
}

// reloadCandidateIfChanged reloads if the files are not those of the last
// attempt.
func (a *App) reloadCandidateIfChanged() {
	c := &a.candidate
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen != a.filesOf(a.options.Config.Candidate.Rules).Fingerprint() {
		a.readCandidate()
	}
}

// readCandidate needs a.candidate.mu to be held.
func (a *App) readCandidate() {
	c, paths := &a.candidate, a.options.Config.Candidate.Rules
	now, next := a.options.Clock(), *c.files.Load()
	c.seen = a.filesOf(paths).Fingerprint()
	var rs *rules.Ruleset
	var err error
	if noneExist(paths) {
		rs = new(rules.Ruleset)
	} else {
		rs, err = a.options.Config.RuleOptions.Load(paths...)
	}
	if err != nil {
		next.failure, next.failedAt = err, now
		next.failed++
		c.files.Store(&next)
		if next.rules == nil || next.absent {
			a.log.Error("candidate not loaded, nothing is compared", "err", firstOf(err))
		} else {
			a.log.Error("candidate not reloaded, the old one goes on being compared", "err", firstOf(err))
		}
		return
	}
	again, was := next.succeeded > 0 && c.seen == c.loaded, next
	next.rules, next.absent, next.failure = rs, len(rs.Domains()) == 0, nil
	next.succeeded++
	c.loaded = c.seen
	if !again {
		next.loadedAt = now
		c.comparing.SetRules(rs, now)
	}
	c.files.Store(&next)
	if next.absent {
		if was.absent && was.failure == nil {
			return // it has been said
		}
		a.log.Warn("there is no candidate, nothing is compared", "candidate", paths)
		return
	}
	a.warn(rs)
	stats := rs.Stats()
	a.log.Info("candidate loaded, requests are compared", "rules", stats.Rules, "domains", stats.Domains, "files", stats.Files)
}

// noneExist reports whether none of the files and folders is there, as after
// they have been moved to where the live rules are.
func noneExist(paths []string) bool {
	for _, path := range paths {
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			return false
		}
	}
	return true
}

// compareAnew begins a new comparison since the live rules have changed.
func (a *App) compareAnew() {
	c := &a.candidate
	if c.comparing == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if a.plane == nil && a.seen == c.live {
		return // they were only read again
	}
	c.live = a.seen
	c.comparing.Reset(a.options.Clock())
}

// candidateCollector tells what the candidate would change.
func (a *App) candidateCollector() prometheus.Collector {
	c := &metrics.Asked{}
	decisions := c.Counter("headgate_candidate_decisions_total",
		"Requests, by what the candidate rules would change.", "change")
	rulesOf := c.Gauge("headgate_candidate_rules", "Rules of the candidate, 0 while there is none.")
	reloads := c.Counter("headgate_candidate_reloads_total", "Times that the candidate was read, the first included.", "result")
	good := c.Gauge("headgate_candidate_reload_last_successful", "0 if the last attempt failed.")
	keys := c.Gauge("headgate_candidate_keys", "Keys that the candidate counts, in this process's memory.")
	evicted := c.Counter("headgate_candidate_evicted_total", "Keys that it forgot to make room although they still counted.")
	c.Ask(func(out chan<- prometheus.Metric) {
		for change, n := range a.candidate.comparing.Totals() {
			decisions(out, float64(n), candidate.Change(change).String())
		}
		f, s := a.candidate.files.Load(), a.candidate.store.Stats()
		n := 0
		if f.rules != nil {
			n = f.rules.Stats().Rules
		}
		rulesOf(out, float64(n))
		reloads(out, float64(f.succeeded), "success")
		reloads(out, float64(f.failed), "failure")
		good(out, oneIf(f.failure == nil))
		keys(out, float64(s.Keys))
		evicted(out, float64(s.EvictedInDebt))
	})
	return c
}
