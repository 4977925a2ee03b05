// Package metrics counts decisions by rule and by door, for Prometheus, live views and
// streams of single decisions.
//
// Counting is on the path of every request. It allocates nothing and takes no global
// lock: each rule has its own counters, several for different cores, which are
// resolved when the rules are loaded. The number of series depends on the rules, not
// on the traffic; series by descriptor values are limited.
package metrics

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/observe/top"
	"github.com/headgate/headgate/internal/rules"
)

// DefaultMaxRules is the default of Options.MaxRules.
const DefaultMaxRules = 2000

const (
	maxTracked = 1000    // rules whose keys are counted at a time: about 20 MB if all are busy
	maxCells   = 1 << 16 // limits the counters of all rules, 128 bytes each
	maxShards  = 64      // counters per rule
	timeEvery  = 1000    // microseconds between timed decisions on a core
	// exactPerSlot is how many results in a slot of time are added to the top keys on
	// each core; of further ones, one in sampleOf.
	exactPerSlot = 64
	slotBits     = 10 // 1.024 ms
	sampleOf     = 16
)

// Options configure an Observer.
type Options struct {
	MaxRules int                  // rules with their own series; others share one per domain; 0 is DefaultMaxRules
	Elapsed  func() time.Duration // a monotonic clock. Required.
	Watchers []Watcher            // see decisions one by one
	// Lacking, if not nil, is called for a rule if the first LackingAfter requests that
	// it counts after SetRules all lack the same parts of its key; bit i stands for
	// r.Key[i]. It is called on the path of a request.
	Lacking func(r *rules.Rule, parts uint64)
	Log     *slog.Logger // receives warnings, unless it is nil
}

// Watcher sees decisions one by one.
type Watcher interface {
	// Watching reports whether it wants to see decisions. It is called for every
	// decision.
	Watching() bool
	// See is called on the path of the request and must not block.
	See(ctx context.Context, s *Seen)
}

// Seen is one decision. It is valid until See returns.
type Seen struct {
	Domain string
	Door   engine.Door
	// At is the time of the request in microseconds since the epoch, Elapsed the
	// latency of the decision, 0 if it was not timed.
	At      int64
	Elapsed time.Duration
	Outcome engine.Outcome // of the request
	Counted bool           // the request took from a limit, rather than peeked or refunded
	Parts   []Part         // one, or one for each Envoy descriptor
	Err     error          // what went wrong
	Rules   *rules.Ruleset // by which it was decided
}

// Part is one part of a request.
type Part struct {
	Request rules.Request
	Results []engine.Result
}

// Observer is an engine.Observer that counts. Make it with New.
type Observer struct {
	options  Options
	shards   int
	counters []shard
	table    atomic.Pointer[table]
	tracked  atomic.Int64
	valued   atomic.Int64 // values with series, of all rules
	timing   durations
	shed     shed
	upstream atomic.Pointer[func() Upstream]

	mu      sync.Mutex // guards SetRules, Prune and what follows
	retired map[ruleName]*retired
	series  int // rules with their own series
	was     totals
}

var _ engine.Observer = (*Observer)(nil)

// shard has the counters of one core that are not of a rule.
type shard struct {
	requests [engine.Doors][engine.Outcomes]atomic.Uint64
	unknown  [2]atomic.Uint64 // requests in unknown domains: allowed, refused
	budget   atomic.Uint64    // a slot of time, and how much of it is used
	timed    atomic.Int64     // when a decision was last timed
	_        [64]byte         // padding to separate cache lines
}

// New returns an Observer without rules.
func New(o Options) *Observer {
	if o.MaxRules <= 0 {
		o.MaxRules = DefaultMaxRules
	}
	shards := 1
	for shards < runtime.GOMAXPROCS(0) && shards < maxShards {
		shards *= 2
	}
	m := &Observer{options: o, shards: shards, counters: make([]shard, shards), retired: map[ruleName]*retired{}}
	m.timing = newDurations()
	m.table.Store(&table{})
	return m
}

// Start is for [engine.WithStart]: it measures one decision in [timeEvery] on a core, and all
// while somebody watches.
func (m *Observer) Start(at int64, number uint32) (start int64) {
	l := m.shardOf(number)
	if since := at - l.timed.Load(); since < 0 || since >= timeEvery {
		l.timed.Store(at)
	} else if !m.watched() {
		return 0
	}
	return max(int64(m.options.Elapsed()), 1)
}

func (m *Observer) shardOf(number uint32) *shard { return &m.counters[int(number)&(len(m.counters)-1)] }

// watched reports whether a Watcher wants to see decisions.
func (m *Observer) watched() bool {
	for _, w := range m.options.Watchers {
		if w.Watching() {
			return true
		}
	}
	return false
}

// Observe implements engine.Observer.
func (m *Observer) Observe(ctx context.Context, d *engine.Decided) {
	q, v, counted := d.Query, d.Verdict, d.Takes()
	if counted {
		l := m.shardOf(d.Shard)
		l.count(q.Door, v.Outcome(), v.Known)
		m.results(l, d)
	}
	var elapsed time.Duration
	if d.Start != 0 {
		elapsed = m.options.Elapsed() - time.Duration(d.Start)
		m.timing.observe(q.Door, elapsed)
		elapsed = max(elapsed, 1)
	}
	if !m.watched() {
		return
	}
	s := Seen{Domain: q.Domain, Door: q.Door, At: q.At, Elapsed: elapsed, Outcome: v.Outcome(), Counted: counted, Err: d.Err, Rules: d.Rules}
	results := v.Results()
	for i := range d.Parts {
		n := 0
		for n < len(results) && int(results[n].Part) == i {
			n++
		}
		s.Parts = append(s.Parts, Part{d.Parts[i].Request, results[:n:n]})
		results = results[n:]
	}
	for _, w := range m.options.Watchers {
		if w.Watching() {
			w.See(ctx, &s)
		}
	}
}

// Refunded is for [engine.WithRefunded].
func (m *Observer) Refunded(rule *rules.Rule) {
	cells := m.table.Load().of(rule).cells
	cells[rand.IntN(len(cells))].counts[refunded].Add(1) //nolint:gosec // spreads the load, no secret
}

// count counts a request.
func (l *shard) count(d engine.Door, o engine.Outcome, known bool) {
	if d < engine.Doors && o < engine.Outcomes {
		l.requests[d][o].Add(1)
	}
	switch {
	case known:
	case o == engine.Allowed:
		l.unknown[0].Add(1)
	default:
		l.unknown[1].Add(1)
	}
}

// results counts the results of all rules of a request.
func (m *Observer) results(l *shard, d *engine.Decided) {
	t, at, results := m.table.Load(), d.Query.At, d.Verdict.Results()
	m.shed.count(d)
	for i := range results {
		r := &results[i]
		p := &d.Parts[r.Part]
		if !p.Takes() {
			continue
		}
		outcome := r.Outcome()
		c := t.of(r.Rule)
		c.count(d.Shard, r, outcome)
		m.missing(c, d.Shard, r)
		if v := c.values.Load(); v != nil {
			m.countValue(v, r.Rule, p.Request, outcome)
		}
		if r.Key == "" || c.shared {
			continue
		}
		if weight := l.weight(at); weight > 0 {
			m.addTop(c, r.Key, at, weight, outcome)
		}
	}
}

// weight returns how often a result counts among the top keys: 1 while there are few
// results, otherwise 0 or sampleOf at random. This limits the time spent, and counts
// are right on average.
func (l *shard) weight(at int64) int64 {
	slot, used := uint64(at)>>slotBits<<16, l.budget.Load()
	switch {
	case used&^0xffff != slot:
		l.budget.Store(slot | 1)
	case used&0xffff < exactPerSlot:
		l.budget.Add(1)
	case rand.Uint32()%sampleOf != 0: //nolint:gosec // a sample, not a secret
		return 0
	default:
		return sampleOf
	}
	return 1
}

// addTop counts a key.
func (m *Observer) addTop(c *ruleCounts, key string, at, weight int64, o engine.Outcome) {
	t := c.top.Load()
	if t == nil {
		if m.tracked.Load() >= maxTracked {
			return
		}
		t = top.NewTracker()
		if !c.top.CompareAndSwap(nil, t) {
			t = c.top.Load()
		} else {
			m.tracked.Add(1)
		}
		if t == nil { // just removed
			return
		}
	}
	t.Add(key, at, weight, o.Refuses())
}

// Debug is a Watcher that logs every request at level debug.
type Debug struct {
	Log   *slog.Logger
	Level *slog.LevelVar
	Key   func(key string) string // returns a key as it may be logged
}

// Watching implements Watcher.
func (d *Debug) Watching() bool { return d.Level.Level() <= slog.LevelDebug }

// See implements Watcher.
func (d *Debug) See(ctx context.Context, s *Seen) {
	attributes := []slog.Attr{
		slog.String("door", s.Door.String()), slog.String("domain", s.Domain), slog.String("outcome", s.Outcome.String()),
		slog.Duration("duration", s.Elapsed),
	}
	// Only the deciding rule, or else the first, to keep the line short.
	if r := telling(s); r != nil {
		attributes = append(attributes, slog.String("rule", r.Rule.Name), slog.String("key", d.Key(r.Key)),
			slog.Int64("remaining", r.Decision.Remaining), slog.String("reason", r.Decision.Reason.String()))
	}
	d.Log.LogAttrs(ctx, slog.LevelDebug, "request", attributes...)
}

// telling returns the first result with the outcome of s, or else the first.
func telling(s *Seen) *engine.Result {
	var first *engine.Result
	for i := range s.Parts {
		for j := range s.Parts[i].Results {
			r := &s.Parts[i].Results[j]
			if r.Outcome() == s.Outcome {
				return r
			}
			if first == nil {
				first = r
			}
		}
	}
	return first
}
