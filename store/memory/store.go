package memory

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/algorithm"
	"github.com/headgate/headgate/store"
)

// Store is a store.Store in this process's memory. Create it with [New].
type Store struct {
	shards   []shard
	hints    []hint // of each shard
	secret   secret
	maxKeys  int64
	maxBytes int64
	// mostWaiting is how many new keys wait next to a full shard.
	mostWaiting int
	closed      atomic.Bool
	// slow keeps requests off the fast path: the store is closed or records key times.
	slow   atomic.Bool
	clock  clock
	slack  int64      // 0 with a clock that the caller provided
	saving sync.Mutex // held by SaveFile
	huge   hugePages
	_      [64]byte // keeps the following fields, which change, off these cache lines
	keys   atomic.Int64
	bytes  atomic.Int64
	hand   atomic.Uint32 // the shard at which the next search for memory starts
}

var _ store.Direct = (*Store)(nil)

// New returns an empty store.
func New(options ...Option) *Store {
	o := settings{maxKeys: defaultMaxKeys}
	for _, option := range options {
		option(&o)
	}
	s := &Store{
		shards: make([]shard, o.shards()), secret: newSecret(),
		maxKeys: o.maxKeys, maxBytes: o.bytes(),
	}
	s.clock.injected = o.clock
	s.clock.start(o.system)
	if o.clock == nil {
		s.slack = mostSlack
	}
	s.slow.Store(o.keyTimes)
	s.prepare()
	if o.keyTimes {
		s.recordTimes()
	}
	return s
}

func (s *Store) prepare() {
	each := int(s.maxKeys / int64(len(s.shards)))
	s.hints = make([]hint, len(s.shards))
	rests := make([]rest, len(s.shards))
	s.mostWaiting = min(max(each/32, leastWaiting), mostWaiting)
	for i := range s.shards {
		s.shards[i].rest = &rests[i]
		s.shards[i].index = i
		s.shards[i].ranking.most = min(max(each/8, leastRanked), mostRanked)
		s.shards[i].ranking.reset()
	}
}

// Do executes ops in order; see [store.Store]. With AllOrNothing no other caller sees
// an intermediate state.
func (s *Store) Do(_ context.Context, b *store.Batch) {
	switch {
	case !store.Single(b):
		b.Each(s.do)
	case b.Ops[0].Kind == store.KindTimes:
		b.Groups[0].Err = s.readTimes(b)
	default:
		b.Groups[0].Err = s.take(&b.Ops[0], &b.Out[0])
	}
}

// take executes one op.
func (s *Store) take(op *store.Op, d *store.Decision) (err error) {
	r := op.Rule.AsBucket()
	if r == nil || op.Kind != store.KindTake || op.Leave != 0 || op.Share != nil || op.Cost <= 0 || s.slow.Load() {
		*d, err = s.takeAny(op)
		return err
	}
	scope, mark := op.Space()
	id := s.secret.identify(scope, op.Key, mark)
	now, slack := op.At, int64(0)
	if now == 0 {
		now, slack = s.now(id), s.slack
	}
	*d = store.Decision{} // the caller's slice may hold an earlier answer
	s.takeOne(id, r, inRange(now), op.Cost, slack, d)
	return nil
}

// TakeN executes Op{Key: key, Rule: rule, Cost: n} without copying an Op, which costs
// as much as the decision; see [store.Direct].
func (s *Store) TakeN(_ context.Context, key string, rule *store.Rule, n int64) (d store.Decision, err error) {
	r := rule.AsBucket()
	if r == nil || n <= 0 || s.slow.Load() {
		return s.takeAnyN(key, rule, n)
	}
	scope, mark := r.Space()
	id := s.secret.identify(scope, key, mark)
	now := inRange(s.now(id))
	s.takeOne(id, r, now, n, s.slack, &d)
	return d, nil
}

// takeAnyN is TakeN for every limit and cost. It is not inlined, which would reserve
// stack space that TakeN rarely needs.
//
//go:noinline
func (s *Store) takeAnyN(key string, rule *store.Rule, n int64) (store.Decision, error) {
	if rule == nil {
		rule = store.Unset()
	}
	d, err := s.takeAny(&store.Op{Key: key, Rule: rule, Cost: n})
	switch {
	case err == nil:
	case errors.Is(err, store.ErrUnavailable):
		d = store.Decision{Allowed: true, Reason: store.ReasonFailOpen, Limit: rule.Most(), Granted: n}
	default:
		d = store.Decision{Reason: store.ReasonFailClosed, Limit: rule.Most()}
	}
	return d, err
}

// takeAny is take for every kind and algorithm.
func (s *Store) takeAny(op *store.Op) (store.Decision, error) {
	if err := s.check(op); err != nil {
		return store.Decision{}, err
	}
	now := op.At
	if now == 0 {
		now = s.clock.now()
	}
	now = inRange(now)
	scope, mark := op.Space()
	d := s.execute(op, s.secret.identify(scope, op.Key, mark), now)
	if s.bytes.Load() > s.maxBytes {
		s.reclaim(now)
	}
	return d, nil
}

// execute executes one op that check has accepted.
func (s *Store) execute(op *store.Op, id identity, now int64) store.Decision {
	r := op.Rule
	if r.Unlimited {
		var st algorithm.State
		return algorithm.Step(r, &st, now, algorithm.RequestOf(op)).Decision
	}
	if share := op.Shared(); share != nil {
		return s.executeShared(op, share, id, now)
	}
	h := s.lock(s.shardIndex(id), now)
	d := h.step(s, id, r, now, algorithm.RequestOf(op))
	h.mu.Unlock()
	return d
}

// inRange returns the nearest time that a step accepts and a slot can hold: from 1970
// to 2112.
func inRange(now int64) int64 { return min(max(now, 0), timeMask) }

// check returns why op cannot be executed.
func (s *Store) check(op *store.Op) error {
	switch {
	case s.closed.Load():
		return store.ErrClosed
	case op.Kind >= store.KindTimes: // which is read alone
		return fmt.Errorf("memory: unknown %s", op.Kind)
	}
	return op.Validate()
}

// shardIndex returns the index of id's shard.
func (s *Store) shardIndex(id identity) uint64 { return id.extra & uint64(len(s.shards)-1) }

func (s *Store) shard(id identity) *shard { return &s.shards[s.shardIndex(id)] }

// now returns the clock's time, and prefetches id's slot.
func (s *Store) now(id identity) int64 {
	return s.clock.nowFetching(s.hints[s.shardIndex(id)].home(id.tag))
}

// takeKey counts one more key; it returns false if the store is full.
func (s *Store) takeKey() bool {
	if s.keys.Add(1) <= s.maxKeys {
		return true
	}
	s.keys.Add(-1)
	return false
}

// Close removes all counts. Save those that must survive first.
func (s *Store) Close() error {
	if s.closed.Swap(true) {
		return store.ErrClosed
	}
	s.slow.Store(true)
	for i := range s.shards {
		h := s.lock(uint64(i), 0)
		h.setTable(s, table{})
		h.times = nil
		h.lists, h.waiting = lists{}, nil
		h.ranking.reset()
		h.mu.Unlock()
	}
	return nil
}

// Sweep removes all keys that are fresh at now, returns how many there were, and
// shrinks tables that have become much too large. It blocks one shard at a time, for
// microseconds. It is optional: call it at intervals to get memory back before new keys
// need it.
func (s *Store) Sweep(now time.Time) int {
	swept := 0
	for i := range s.shards {
		h := s.lock(uint64(i), now.UnixMicro())
		swept += h.sweep(s, now.UnixMicro())
		h.shrink(s)
		h.tidy(s)
		h.mu.Unlock()
	}
	return swept
}

// Stats are counters of a Store.
type Stats struct {
	Keys    int64 // keys in the tables, at most WithMaxKeys
	Waiting int64 // newcomers without space in the tables
	Bytes   int64 // the memory of tables and lists
	// Evicted is how many keys were evicted to make space, and EvictedInDebt how many
	// of these still counted.
	Evicted, EvictedInDebt int64
	Swept                  int64 // how many were removed because they were fresh
}

// Stats returns the counters. It takes each shard's lock in turn.
func (s *Store) Stats() Stats {
	t := Stats{Bytes: s.bytes.Load()}
	for i := range s.shards {
		h := s.lock(uint64(i), 0)
		t.Keys += int64(h.count)
		for j := range h.waiting {
			if h.waiting[j].tag != 0 {
				t.Waiting++
			}
		}
		t.Evicted += h.counts.evicted
		t.EvictedInDebt += h.counts.evictedInDebt
		t.Swept += h.counts.swept
		h.mu.Unlock()
	}
	return t
}
