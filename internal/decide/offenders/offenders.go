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
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/request/client"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/store"
)

// FlushInterval is how often to call [Watch.Tick] in a server.
const FlushInterval = 100 * time.Millisecond

const (
	shards = 16
	// maxKey is the longest key that is counted, in bytes, ten parts of the greatest length:
	// the ban of a longer one may not fit into the table of bans, and would be the end of
	// others that start at the same time.
	maxKey = 5 << 10
	// DefaultMaxKeys is the default of Options.MaxKeys.
	DefaultMaxKeys = 100_000
)

// Options configure a Watch. Store, Ban and Clock are required.
type Options struct {
	Store store.Store // the engine's
	// Ban starts bans, and returns those that it has started: all of them, unless there is
	// an error. Bans in shadow mode are not passed on.
	Ban   func(ctx context.Context, list []Ban) (started []Ban, err error)
	Clock func() time.Time
	// Follow also passes on bans that other processes have started, once this one sees a
	// refusal of the key: for processes that do not learn of bans in another way. They are
	// neither reported nor counted as bans of this process.
	Follow bool
	// Started, if not nil, is called for each ban, in shadow mode too.
	Started func(Ban)
	Logger  *slog.Logger // receives failures; nil for none
	MaxKeys int          // the largest number of refused keys between two flushes; 0 is DefaultMaxKeys
}

// Ban is the ban of a key of a rule, or in shadow mode what would be one.
type Ban struct {
	Rule        *rules.Rule
	Key         string
	Mode        rules.Mode
	Number      int64 // of the key's ban, from 1 on
	From, Until time.Time
}

// Watch counts refusals and starts bans. It implements engine.Refusals.
type Watch struct {
	options Options
	shards  [shards]shard
	keys    atomic.Int64 // how many notes there are
	stats   stats
	next    time.Time // when Tick next works

	flushing sync.Mutex
	todo     []offence // reused
	ops      []store.Op
	out      []store.Decision
	known    []Ban // by other processes
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
func New(o Options) *Watch {
	if o.MaxKeys <= 0 {
		o.MaxKeys = DefaultMaxKeys
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	w := &Watch{options: o}
	for i := range w.shards {
		w.shards[i].notes = map[offender]*note{}
	}
	w.stats.banned = map[Banned]int64{}
	return w
}

// Refused implements engine.Refusals.
func (w *Watch) Refused(rule *rules.Rule, key string, lane uint32, enforced bool) { //nolint:revive // a fact, not a mode
	id := offender{rule.Scope, key, rule.OnRepeat.Mode}
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
	if w.keys.Add(1) > int64(w.options.MaxKeys) {
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
