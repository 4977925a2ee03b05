// Package offenders bans keys that a rule refuses again and again: on_repeat.
//
// Refusals are noted on the path of the request, and counted in the store a moment later,
// off that path. Processes that share a store count together, and the store decides which
// of them starts a ban, so that refusals never lead to two.
//
// A key has two counts next to that of its rule: its refusals, and its bans. The latter
// are written at once with the time of the last ban, so that they expire together, and
// their age says whether that ban is over. Rules that only report who would be banned have
// counts of their own, so that nobody starts with a long ban when the rule is enforced.
package offenders

import (
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/request/client"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/feature"
	"github.com/headgate/headgate/internal/rules/form"
	"github.com/headgate/headgate/internal/rules/rate"
	"github.com/headgate/headgate/store"
)

const (
	shards = 16
	// maxKey is the longest key that is counted, in bytes, ten parts of the greatest length:
	// the ban of a longer one may not fit into the table of bans, and would be the end of
	// others that start at the same time.
	maxKey = 5 << 10
	// defaultMaxKeys is how many refused keys are noted between two flushes.
	defaultMaxKeys = 100_000
)

// Feature is on_repeat, for those who know no feature by name.
func Feature() feature.Feature {
	return feature.Feature{
		Row: row, Read: read, Resets: pardons, Open: func(p feature.Process) feature.Worker { return New(p) },
		Keys: func() form.Mapping { return keys(&feature.Reading{}, new(standard()), &rate.Rate{}) },
	}
}

// Watch counts refusals and starts bans.
type Watch struct {
	process feature.Process
	shards  [shards]shard
	keys    atomic.Int64 // how many notes there are
	stats   stats
	next    time.Time // when Tick next works

	flushing sync.Mutex
	todo     []offence // reused
	ops      []store.Op
	out      []store.Decision
	known    []feature.Ban // by other processes
}

// shard has the refusals that were noted on some of the cores.
type shard struct {
	mu    sync.Mutex
	notes map[offender]*note
	_     [40]byte // padding to separate cache lines
}

// offender is a key of a rule. Refusals by a rule that only observes count separately.
type offender struct {
	scope, key string
	mode       rules.Mode
}

// note is the refusals of an offender since the last flush. It is kept while there are
// any, so that a known key costs no memory.
type note struct {
	rule *rules.Rule
	n    int64
}

// New returns a Watch.
func New(p feature.Process) *Watch {
	if p.MaxKeys <= 0 {
		p.MaxKeys = defaultMaxKeys
	}
	if p.Log == nil {
		p.Log = slog.New(slog.DiscardHandler)
	}
	w := &Watch{process: p}
	for i := range w.shards {
		w.shards[i].notes = map[offender]*note{}
	}
	w.stats.banned = map[banned]int64{}
	return w
}

// Wanted implements feature.Worker.
func (w *Watch) Wanted(rs *rules.Ruleset) bool {
	return slices.ContainsFunc(rs.Rules(), func(r *rules.Rule) bool { return Of(r) != nil })
}

// Refused implements feature.Worker.
func (w *Watch) Refused(rule *rules.Rule, key string, lane uint32, enforced bool) { //nolint:revive // a fact, not a mode
	on := Of(rule)
	if on == nil {
		return
	}
	id := offender{rule.Scope, key, on.Mode}
	if !enforced {
		id.mode = rules.Shadow
	}
	if len(key) > maxKey {
		w.stats.long.Add(1)
		return
	}
	s := &w.shards[lane%shards]
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.notes[id]; n != nil {
		n.rule, n.n = rule, n.n+1 // the rules may have been reloaded
		return
	}
	if w.keys.Add(1) > int64(w.process.MaxKeys) {
		w.keys.Add(-1)
		w.stats.full.Add(1)
		return
	}
	id.key = strings.Clone(key)
	s.notes[id] = &note{rule, 1}
}

// offence is an offender with its refusals since the last flush.
type offence struct {
	offender

	rule *rules.Rule
	n    int64
}

// collect moves the refusals to w.todo. Keys without any are forgotten.
func (w *Watch) collect() {
	w.todo = w.todo[:0]
	for i := range w.shards {
		s := &w.shards[i]
		s.mu.Lock()
		for id, n := range s.notes {
			if n.n == 0 {
				delete(s.notes, id)
				w.keys.Add(-1)
				continue
			}
			w.todo = append(w.todo, offence{id, n.rule, n.n})
			n.n = 0
		}
		s.mu.Unlock()
	}
}

// nobody reports whether key is that of requests without any part of it, or of clients
// whose address is not known, such as one that sends a Forwarded of its own past a proxy.
// They may be anybody, so they are not banned.
func nobody(rule *rules.Rule, key string) bool {
	parts, ok := rules.SplitKey(key)
	for i := range parts {
		unknown := i < len(rule.Key) && rule.Key[i].Kind == rules.ClientIP && parts[i].Value == client.Unknown
		ok = ok && (parts[i].Missing || unknown)
	}
	return ok
}
