// Package trial tries the rules of a candidate: it reads their files, has them
// decide about what the live rules decide about, and reports the differences.
package trial

import (
	"cmp"
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
	"github.com/headgate/headgate/internal/decide/candidate"
	"github.com/headgate/headgate/internal/decide/storing"
	"github.com/headgate/headgate/internal/observe/metrics"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/follow"
	"github.com/headgate/headgate/store/memory"
)

// Options are what a Trial is made from. All are required.
type Options struct {
	Config *config.Config
	Clock  func() time.Time
	Logger *slog.Logger
	Life   *lifetime.Lifetime
	Warn   func(*rules.Ruleset) // logs what is odd about rules
	Live   [32]byte             // the fingerprint of the live rules
}

// Trial is the candidate of a process.
type Trial struct {
	Comparing *candidate.Candidate // counts what the candidate would change

	options Options
	store   *memory.Store
	reading atomic.Pointer[reading]

	mu   sync.Mutex // of what reads the files
	seen [32]byte   // the fingerprint of those of the last attempt
	// loaded is the fingerprint of those in use, live that of the live rules that
	// they are compared with.
	loaded, live [32]byte
}

// reading says how reading them went. It is never changed, only replaced.
type reading struct {
	follow.Reading

	absent bool // there are no files, or no more
}

// Open begins to compare. Mistakes in the files are no reason not to serve.
func Open(o Options) *Trial {
	// The counts of a candidate are in memory wherever the live ones are, and
	// they are not restored.
	about := []memory.Option{memory.WithClock(o.Clock)}
	if n := o.Config.Candidate.MaxKeys; n > 0 {
		about = append(about, memory.WithMaxKeys(int(n)))
	}
	t := &Trial{options: o, store: memory.New(about...), live: o.Live}
	o.Life.OnEnd(func() { _ = t.store.Close() })
	o.Life.Every(storing.SweepInterval, func() { t.store.Sweep(o.Clock()) })
	t.Comparing = candidate.New(t.store)
	t.reading.Store(&reading{})
	t.Reload()
	return t
}

// Files are those of the candidate.
func (t *Trial) Files() follow.Files {
	return follow.Files{Paths: t.options.Config.Candidate.Rules, Options: t.options.Config.RuleOptions}
}

// Reading says which rules are tried and how reading them went. Rules without a
// domain are none.
func (t *Trial) Reading() follow.Reading { return t.reading.Load().Reading }

// Store returns how many keys there are, and how many there may be.
func (t *Trial) Store() (stats memory.Stats, maxKeys int64) {
	return t.store.Stats(), cmp.Or(t.options.Config.Candidate.MaxKeys, storing.DefaultMaxKeys)
}

// Reload reads the files and compares by them. If anything is wrong with them the
// old ones stay.
func (t *Trial) Reload() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.read()
}

// ReloadIfChanged reloads if the files are not those of the last attempt.
func (t *Trial) ReloadIfChanged() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.seen != t.Files().Fingerprint() {
		t.read()
	}
}

// Restart begins a new comparison unless the live rules are those that it began
// with, which their fingerprint tells; without one they are not.
func (t *Trial) Restart(live *[32]byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if live != nil {
		if *live == t.live {
			return // they were only read again
		}
		t.live = *live
	}
	t.Comparing.Reset(t.options.Clock())
}

// read needs t.mu to be held.
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
	again, was := next.Succeeded > 0 && t.seen == t.loaded, next
	next.Rules, next.absent, next.Failure = rs, len(rs.Domains()) == 0, nil
	next.Succeeded++
	t.loaded = t.seen
	if !again {
		next.LoadedAt = now
		t.Comparing.SetRules(rs, now)
	}
	t.reading.Store(&next)
	if next.absent {
		if was.absent && was.Failure == nil {
			return // it has been said
		}
		log.Warn("no candidate: nothing is compared", "candidate", files.Paths)
		return
	}
	t.options.Warn(rs)
	stats := rs.Stats()
	log.Info("candidate loaded: comparing requests", "rules", stats.Rules, "domains", stats.Domains, "files", stats.Files)
}

// noneExist reports whether none of the files and folders is there, as after
// they have been moved to where the live rules are.
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
		"Requests, by what the candidate rules would change.", "change")
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
