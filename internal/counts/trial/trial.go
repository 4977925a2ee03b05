// Package trial tries candidate rules: it reads their files, decides the same requests
// as the live rules, and reports the differences.
package trial

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/internal/base/lifetime"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/counts/storing"
	"github.com/headgate/headgate/internal/observe/candidate"
	"github.com/headgate/headgate/internal/observe/metrics"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/follow"
	"github.com/headgate/headgate/internal/rules/rulefile"
	"github.com/headgate/headgate/store/memory"
)

// Options configure a Trial. All are required.
type Options struct {
	Config *config.Config
	Clock  func() time.Time
	Logger *slog.Logger
	Life   *lifetime.Lifetime
	Warn   func(*rules.Ruleset) // logs warnings about rules
	Live   [32]byte             // the fingerprint of the live rules
}

// Trial is the candidate of a process.
type Trial struct {
	Comparing *candidate.Candidate // counts what the candidate would change

	options Options
	store   *memory.Store
	reading atomic.Pointer[reading]

	mu   sync.Mutex // guards reading the files
	seen [32]byte   // the fingerprint at the last attempt
	// loaded is the fingerprint of the candidate rules in use, live of the live rules
	// that they are compared with.
	loaded, live [32]byte
	tables       rulefile.Tables
}

// reading is the result of reading the files. It is replaced, never changed.
type reading struct {
	follow.Reading

	absent bool // the files do not exist
}

// Open starts a comparison. Errors in the files do not prevent serving.
func Open(o Options) *Trial {
	// A candidate's counts are always in memory and are not restored.
	t := &Trial{options: o, store: memory.New(memory.WithClock(o.Clock)), live: o.Live}
	o.Life.OnEnd(func() { _ = t.store.Close() })
	o.Life.Every(storing.SweepInterval, func() { t.store.Sweep(o.Clock()) })
	t.Comparing = candidate.New(t.store)
	t.reading.Store(&reading{})
	t.Reload()
	return t
}

// Files returns the candidate's files.
func (t *Trial) Files() follow.Files {
	options := t.options.Config.RuleOptions
	options.Tables = &t.tables
	return follow.Files{Paths: t.options.Config.Candidate.Rules, Options: options}
}

// Reading returns which rules are tried and the result of reading them. Rules without a
// domain count as none.
func (t *Trial) Reading() follow.Reading { return t.reading.Load().Reading }

// Store returns the number of keys and the largest possible number.
func (t *Trial) Store() (stats memory.Stats, maxKeys int64) {
	return t.store.Stats(), storing.DefaultMaxKeys
}

// Reload reads the files and compares with them. If they have errors, the old rules
// stay.
func (t *Trial) Reload() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.read()
}

// ReloadIfChanged reloads if the files have changed since the last attempt, or if somebody
// asked for it.
func (t *Trial) ReloadIfChanged(o follow.Occasion) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if o.Asked || t.Files().Changed(t.seen) {
		t.read()
	}
}

// Restart starts a new comparison unless the fingerprint of the live rules is
// unchanged. Without a fingerprint they count as changed.
func (t *Trial) Restart(live *[32]byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if live != nil {
		if *live == t.live {
			return // the same rules were read again
		}
		t.live = *live
	}
	t.Comparing.Reset(t.options.Clock())
}

// read requires t.mu to be held.
func (t *Trial) read() {
	log, files := t.options.Logger, t.Files()
	now, next := t.options.Clock(), *t.reading.Load()
	t.seen = files.Fingerprint()
	var rs *rules.Ruleset
	var err error
	if noneExist(files.Paths) {
		rs = new(rules.Ruleset)
	} else {
		rs, err = files.Options.Load(files.Paths...)
	}
	if err != nil {
		next.Failure, next.FailedAt = err, now
		next.Failed++
		t.reading.Store(&next)
		if next.Rules == nil || next.absent {
			log.Error("candidate not loaded: nothing is compared", "err", follow.FirstOf(err))
		} else {
			log.Error("candidate not reloaded: still comparing the previous one", "err", follow.FirstOf(err))
		}
		return
	}
	loaded := files.Loaded(t.seen)
	again, was := next.Succeeded > 0 && loaded == t.loaded, next
	next.Rules, next.absent, next.Failure = rs, len(rs.Domains()) == 0, nil
	next.Succeeded++
	t.loaded = loaded
	if !again {
		next.LoadedAt = now
		t.Comparing.SetRules(rs, now)
	}
	t.reading.Store(&next)
	if next.absent {
		if was.absent && was.Failure == nil {
			return // already logged
		}
		log.Warn("no candidate: nothing is compared", "candidate", files.Paths)
		return
	}
	t.options.Warn(rs)
	stats := rs.Stats()
	log.Info("candidate loaded: comparing requests", "rules", stats.Rules, "domains", stats.Domains, "files", stats.Files)
}

// noneExist reports whether none of the files and folders exist, for example because
// they were moved to the live rules.
func noneExist(paths []string) bool {
	return !slices.ContainsFunc(paths, func(path string) bool {
		_, err := os.Stat(path)
		return !errors.Is(err, fs.ErrNotExist)
	})
}

// Collector returns the metrics of the candidate.
func (t *Trial) Collector() prometheus.Collector {
	c := &metrics.Asked{}
	decisions := c.Counter("headgate_candidate_decisions_total",
		"Requests, by what the candidate rules would change: same_allowed, same_refused, newly_refused, newly_allowed or not_compared.", "change")
	rulesOf := c.Gauge("headgate_candidate_rules", "Rules in the candidate; 0 if there is none.")
	reloads := c.Counter("headgate_candidate_reloads_total", "Times that the candidate was read, including the first, by result: success or failure.", "result")
	good := c.Gauge("headgate_candidate_reload_last_successful", "1 if the last read of the candidate succeeded, 0 if it failed.")
	keys := c.Gauge("headgate_candidate_keys", "Keys counted for the candidate, in this process's memory.")
	evicted := c.Counter("headgate_candidate_evicted_total", "Keys counted for the candidate that were evicted while they still counted.")
	c.Ask(func(out chan<- prometheus.Metric) {
		for change, n := range t.Comparing.Totals() {
			decisions(out, float64(n), candidate.Change(change).String())
		}
		f, s := t.reading.Load(), t.store.Stats()
		n := 0
		if f.Rules != nil {
			n = f.Rules.Stats().Rules
		}
		rulesOf(out, float64(n))
		reloads(out, float64(f.Succeeded), "success")
		reloads(out, float64(f.Failed), "failure")
		good(out, metrics.OneIf(f.Failure == nil))
		keys(out, float64(s.Keys))
		evicted(out, float64(s.EvictedInDebt))
	})
	return c
}
