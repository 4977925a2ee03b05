package failsafe

import (
	"hash/maphash"
	"math"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/store"
)

const (
	ways         = 4  // how many entries one place in the table has
	stripes      = 64 // how many locks the table has, a power of two
	maxCachedOps = 8  // the largest Do that uses the cache
)

// refusal is one entry. It stores 128 bits of a hash of the key with random seeds, so
// that clients cannot produce collisions.
type refusal struct {
	h1, h2 uint64
	limit  uint64 // hash of the limit's numbers and the kind
	zone   *time.Location
	// passed means that this is not a refusal, but the store's answer about a limit
	// that would have let the request pass when another limit refused it.
	passed    bool
	shed      bool // it is refused with ReasonHeadroom
	cost      int64
	remaining int64 // as answered by the store
	// Times in nanoseconds since the Store was created: when the answer expires, when
	// the request may pass, and when the state is that of an unused key.
	until, retryAt, resetAt int64
}

// stripe guards every 64th place.
type stripe struct {
	mu      sync.Mutex
	changes uint64 // how often one of its keys was given budget
	hits    atomic.Uint64
	_       [64 - 24]byte // one cache line each
}

// place is the position of an op, and its stripe's changes at the time of the call.
type place struct {
	h1, h2  uint64
	limit   uint64
	changes uint64
}

// refusedCache is the deny cache: a table of sets of four.
type refusedCache struct {
	maxAge  int64
	seed1   maphash.Seed
	seed2   maphash.Seed
	mask    uint64
	entries []refusal
	stripes [stripes]stripe
}

func newDenied(o DenyCache) *refusedCache {
	sets := 1
	for sets*ways < o.Entries {
		sets *= 2
	}
	return &refusedCache{
		maxAge: int64(o.MaxAge), seed1: maphash.MakeSeed(), seed2: maphash.MakeSeed(),
		mask: uint64(sets - 1), entries: make([]refusal, sets*ways),
	}
}

// place finds where op belongs.
func (d *refusedCache) place(op *store.Op) place {
	r := op.Rule
	kinds := uint64(op.Kind) | uint64(r.Algorithm)<<8 | uint64(r.Anchor)<<16 | uint64(r.Edge)<<24 |
		uint64(r.Calendar)<<32 | uint64(r.Buckets)<<40
	scope, mark := op.Space()
	return place{
		h1:    mix(maphash.String(d.seed1, scope)^mark, maphash.String(d.seed1, op.Key)),
		h2:    mix(maphash.String(d.seed2, scope)^mark, maphash.String(d.seed2, op.Key)),
		limit: mix(mix(mix(kinds, uint64(r.Limit)), uint64(r.Period)), uint64(r.Burst)|uint64(op.Leave)<<41), // a class has refusals of its own
	}
}

// mix combines two numbers; it is not symmetric.
func mix(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a^0x9e3779b97f4a7c15, b+0xd6e8feb86659fd93)
	return hi ^ lo ^ bits.RotateLeft64(a, 17)
}

func (d *refusedCache) stripe(p *place) *stripe { return &d.stripes[p.h1&d.mask%stripes] }

func (d *refusedCache) set(p *place) []refusal {
	i := (p.h1 & d.mask) * ways
	return d.entries[i : i+ways]
}

// remembers reports whether a refusal of op allows conclusions about the next. A slot
// may become free at any time.
func remembers(op *store.Op) bool {
	return op.Cost > 0 && op.Share == nil && (op.Kind == store.KindTake || op.Kind == store.KindTakeUpTo || op.Kind == store.KindDraw) &&
		!op.Rule.CountRefused && op.Rule.Algorithm < store.Concurrency
}

// gives reports whether op may let a refused key pass earlier.
func gives(op *store.Op) bool {
	return op.Kind == store.KindRefund || op.Kind == store.KindGrant || op.Kind == store.KindReset || op.Kind == store.KindCharge
}

// lookup answers op if it is known to be refused or, if passed is set, what the store has
// answered when op was allowed and another limit in the same call refused. It must be
// called before the store, because it stores in p what learn needs.
func (d *refusedCache) lookup(p *place, op *store.Op, passed bool, now int64) (store.Decision, bool) { //nolint:revive // a fact about the group
	if !remembers(op) {
		return store.Decision{}, false
	}
	s := d.stripe(p)
	s.mu.Lock()
	defer s.mu.Unlock()
	p.changes = s.changes
	set := d.set(p)
	var found *refusal
	for i := range set {
		e := &set[i]
		switch {
		case now >= e.until || !e.is(p, op):
		case e.passed:
			if passed && op.Cost == e.cost && found == nil {
				found = e
			}
		case !e.answers(op):
		case op.Kind != store.KindDraw && op.Cost > op.Rule.Most() && e.cost <= op.Rule.Most():
			// Refused forever: only the store may say so.
		default:
			return e.decision(op, now), true
		}
	}
	if found == nil {
		return store.Decision{}, false
	}
	return found.decision(op, now), true
}

// is reports whether e is about op, which belongs at p.
func (e *refusal) is(p *place, op *store.Op) bool {
	return e.h1 == p.h1 && e.h2 == p.h2 && e.limit == p.limit && e.zone == op.Rule.Zone
}

// answers reports whether e says when op may pass. It must be for the same key and
// limit, and the same cost, unless they are draws, which are refused where 1 is. If a
// whole window ends at once, a larger cost passes no earlier.
func (e *refusal) answers(op *store.Op) bool {
	return op.Cost == e.cost || op.Kind == store.KindDraw || op.Cost > e.cost && op.Leave == 0 && op.Rule.Algorithm == store.FixedWindow
}

func (e *refusal) decision(op *store.Op, now int64) store.Decision {
	d := store.Decision{
		Allowed: e.passed, Reason: store.ReasonCached, Limit: op.Rule.Most(), Remaining: e.remaining,
		ResetAfter: time.Duration(max(e.resetAt-now, 0)),
	}
	if e.passed {
		return d
	}
	if e.shed {
		d.Reason = store.ReasonHeadroom
	}
	d.RetryAfter = store.Never
	if e.retryAt != math.MaxInt64 {
		d.RetryAfter = time.Duration(e.retryAt - now)
	}
	return d
}

// forget drops all refusals of a key. Refusals from calls that are still in progress
// are not remembered either.
func (d *refusedCache) forget(p *place) {
	s := d.stripe(p)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changes++
	set := d.set(p)
	for i := range set {
		if set[i].h1 == p.h1 && set[i].h2 == p.h2 {
			set[i] = refusal{}
		}
	}
}

// remember keeps an answer. Its times count from the start of the call, not from the
// answer, so that nothing is refused for longer than it should be.
func (d *refusedCache) remember(p *place, op *store.Op, answer store.Decision, start int64) {
	e := refusal{
		h1: p.h1, h2: p.h2, limit: p.limit, zone: op.Rule.Zone,
		cost: op.Cost, remaining: answer.Remaining,
		retryAt: after(start, answer.RetryAfter), resetAt: after(start, answer.ResetAfter),
		passed: answer.Allowed, shed: answer.Reason == store.ReasonHeadroom,
	}
	e.until = min(e.retryAt, start+d.maxAge)
	if e.passed {
		e.until = start + d.maxAge
		if e.resetAt > start { // otherwise the key is unused, and stays so
			e.until = min(e.until, e.resetAt)
		}
	}
	s := d.stripe(p)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changes != p.changes {
		return
	}
	set := d.set(p)
	worst := &set[0]
	for i := range set {
		old := &set[i]
		if old.passed == e.passed && old.is(p, op) && (e.passed || old.answers(op)) {
			if !e.passed && old.until > start && old.cost < e.cost {
				return // the existing entry covers smaller costs too
			}
			worst = old
			break
		}
		if old.until < worst.until {
			worst = old
		}
	}
	*worst = e
}

// after returns start + d, without overflow.
func after(start int64, d time.Duration) int64 {
	if int64(d) > math.MaxInt64-start {
		return math.MaxInt64
	}
	return start + int64(d)
}

// answer fills in known and, if the cache alone can answer a Do, out. If one of several
// limits refuses, it can answer if the others are known as well.
func (d *refusedCache) answer(known []place, ops []store.Op, out []store.Decision, mode store.Mode, now int64) bool {
	refused, answered := 0, 0
	cacheable := len(ops) > 0
	for i := range ops {
		known[i] = d.place(&ops[i])
		cacheable = cacheable && remembers(&ops[i])
		answer, ok := d.lookup(&known[i], &ops[i], cacheable && mode == store.AllOrNothing, now)
		if ok {
			answered++
			if !answer.Allowed {
				refused++
			}
		}
		out[i] = answer
	}
	if !cacheable || answered < len(ops) || refused == 0 {
		return false
	}
	for i := range known {
		if !out[i].Allowed {
			d.hit(&known[i])
		}
	}
	return true
}

// again reports whether another op has the same key as op i.
func again(known []place, i int) bool {
	for j := range known {
		if j != i && known[j].h1 == known[i].h1 && known[j].h2 == known[i].h2 {
			return true
		}
	}
	return false
}

func (d *refusedCache) hit(p *place) { d.stripe(p).hits.Add(1) }

func (d *refusedCache) hits() uint64 {
	var n uint64
	for i := range d.stripes {
		n += d.stripes[i].hits.Load()
	}
	return n
}

// Forget drops all refusals in the deny cache, including those of calls in progress.
// Call it when another process has given keys budget.
func (s *Store) Forget() {
	if s.denied != nil {
		s.denied.forgetAll()
	}
}

func (d *refusedCache) forgetAll() {
	sets := len(d.entries) / ways
	for i := range d.stripes {
		s := &d.stripes[i]
		s.mu.Lock()
		s.changes++
		for set := i; set < sets; set += stripes {
			clear(d.entries[set*ways : (set+1)*ways])
		}
		s.mu.Unlock()
	}
}
