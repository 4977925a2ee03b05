package blocks

import (
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/store"
)

// sealed is what is left of a block that is no longer used.
const sealed = math.MinInt64

// block is what one draw got. All times are in microseconds on the process's clock,
// unless they say otherwise. Apart from left and opened, nothing changes.
type block struct {
	left atomic.Int64 // tokens, or sealed
	_    [56]byte     // what only is read has a cache line of its own

	size     int64 // tokens at the start
	short    bool  // the store gave less than was asked for
	sent     int64 // when the draw was sent
	began    int64 // when it arrived
	deadline int64 // from when on it must not be used
	opened   int64 // when it became the current one, or 0; guarded by line.mu
	low      int64 // what is left when the next draw should begin
	// remaining, resetAt and counts are from the draw's answer: what the store had left,
	// when the limit is reset, and until when the tokens count by the store's clock.
	remaining, resetAt, counts int64
	drawn                      int64 // when the store made the draw, by its clock, or earlier
}

// take takes cost, all or nothing, and returns what is left, or -1.
func (b *block) take(now, cost int64) int64 {
	if now >= b.deadline {
		return -1
	}
	for {
		left := b.left.Load()
		if left < cost {
			return -1
		}
		if b.left.CompareAndSwap(left, left-cost) {
			return left - cost
		}
	}
}

// takeUpTo takes up to cost and returns how much.
func (b *block) takeUpTo(now, cost int64) int64 {
	if now >= b.deadline {
		return 0
	}
	for {
		left := b.left.Load()
		n := min(left, cost)
		if n <= 0 {
			return 0
		}
		if b.left.CompareAndSwap(left, left-n) {
			return n
		}
	}
}

// refund returns n that take took, and reports whether the block still takes it.
func (b *block) refund(n int64) bool {
	for {
		left := b.left.Load()
		if left < 0 {
			return false
		}
		if b.left.CompareAndSwap(left, left+n) {
			return true
		}
	}
}

// over returns from when on the store surely does not count b's tokens. That time began
// when the store answered, so this counts from when the answer arrived. In a bucket, others
// may have taken what was there when b was drawn, so tokens count for as long as it refills.
func (b *block) over(r *store.Rule) int64 {
	if r.Algorithm == store.TokenBucket {
		return b.began + countsFor(r)
	}
	return b.resetAt + b.began - b.sent
}

// has returns how many tokens can be used at now.
func (b *block) has(now int64) int64 {
	if b == nil || now >= b.deadline {
		return 0
	}
	return max(b.left.Load(), 0)
}

// line is what a process has of one key under one limit. Spending needs no lock.
type line struct {
	op       store.Op // its Key, Scope and Limit
	rule     *store.Rule
	hash     uint64
	beat     int64 // the length of a beat in microseconds
	keep     int64 // for how long tokens are kept; see keepOf
	counters *counters

	current atomic.Pointer[block]
	next    atomic.Pointer[block] // drawn ahead
	asked   atomic.Bool           // whether a draw ahead is wanted or in progress
	waiting atomic.Int64          // tokens for requests that wait for a draw
	draws   atomic.Int64          // how many draws were begun, ever
	resting atomic.Int64          // until when no draw begins; see rest
	failing atomic.Int64          // until when no draw begins, because the last had no answer, or a late one
	resetAt atomic.Int64          // when the limit is reset, as of the last draw

	mu      sync.Mutex // guards the following, and changes of the above
	drawing *drawing   // in progress, or nil
	lateIn  int64      // the window (its CountsUntil) that ended while the last draw was on its way, or 0
	gone    bool       // it is no longer in the table, and gets no more blocks
	retired []returned // blocks to give back
	size    int64      // of the next block
	roundup int64      // how long draws take
	pace    int64      // tokens per second, in the last block
	spent   int64      // of blocks that are gone

	// Of the sweeper:
	due, seen, drawsSeen int64 // when it looks next; spent and draws when it last did
	idle, cool           int   // how many looks in a row found nothing, or little
}

// serves reports whether l is for op.
func (l *line) serves(op *store.Op) bool {
	if l.op.Key != op.Key || l.op.Scope != op.Scope {
		return false
	}
	r := op.Rule
	return l.rule == r || l.op.Rule.Equal(op.Rule) && l.op.Rule.Name == op.Rule.Name
}

// spend takes cost from what the process holds, and writes the decision. It reports
// whether it did.
func (l *line) spend(now, cost int64, d *store.Decision) bool {
	return l.hold(now, cost, d) != nil
}

// wants reports, once, that the next draw should begin.
func (l *line) wants(now int64) bool {
	b := l.current.Load()
	return b != nil && b.left.Load() <= b.low && !l.asked.Load() && l.next.Load() == nil &&
		now >= l.resting.Load() && now >= l.failing.Load() && l.asked.CompareAndSwap(false, true)
}

// answer writes the decision for a cost that was taken from b.
func (l *line) answer(b *block, now, cost, left int64, d *store.Decision) {
	r := l.rule
	d.Allowed, d.Reason, d.Limit = true, store.ReasonOK, r.Most()
	d.Remaining, d.Granted = min(left+b.remaining, r.Most()), cost
	d.RetryAfter, d.ResetAfter = 0, micros(max(b.resetAt-now, 0))
	d.Delay, d.Lease, d.CountsUntil = 0, 0, b.counts
	if r.Algorithm == store.TokenBucket && left > 0 {
		// The tokens of a block drain one after the other; those left are the last.
		d.CountsUntil -= int64(uint64(left*r.Token)/uint64(r.Leak)) * r.Tick
	}
}

// advance makes the block that was drawn ahead the current one. It returns nil if there
// is none.
func (l *line) advance(now int64) *block {
	if l.next.Load() == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.next.Load()
	if b == nil {
		return l.current.Load() // another caller was faster
	}
	l.retire(l.current.Load(), now)
	l.open(b, now)
	l.next.Store(nil)
	return b
}

// open makes b the current block. mu must be held.
func (l *line) open(b *block, now int64) {
	b.opened = max(now, 1)
	l.current.Store(b)
}

// retire ends b; what is left of it will be given back. mu must be held.
func (l *line) retire(b *block, now int64) {
	if b == nil {
		return
	}
	left := b.left.Swap(sealed)
	if left < 0 {
		return
	}
	l.spent += b.size - left
	l.counters.admitted.Add(b.size - left)
	l.counters.held.Add(-b.size)
	l.resize(b, left, now)
	if left == 0 {
		return
	}
	op, ok := l.refund(b, left)
	if !ok {
		l.counters.expired.Add(left)
		return
	}
	l.counters.returned.Add(left)
	l.counters.returning.Add(left)
	l.retired = append(l.retired, returned{op: op, of: l, until: b.over(l.rule), sent: b.sent})
}

// returned is what is left of a block, on its way back.
type returned struct {
	op    store.Op
	of    *line
	sent  int64 // when it was drawn, or earlier, on the process's clock
	until int64 // when it ends to count anyway
}

// arrived ends the way of r: it counts no longer, apart from what has drained from a bucket
// since it was drawn, which is not given back.
func (r *returned) arrived(now int64) {
	r.of.counters.returning.Add(-r.op.Cost)
	if rule := r.of.rule; rule.Algorithm == store.TokenBucket {
		drained := float64(now-r.sent+rule.Tick) / float64(rule.Tick) * float64(rule.Leak) / float64(rule.Token)
		r.of.counters.stuck.add(r.of, int64(min(drained+1, float64(r.op.Cost))), now, r.until)
	}
}

// lost ends the way of r, which may count as long as if it had been used.
func (r *returned) lost(now int64) {
	r.of.counters.returning.Add(-r.op.Cost)
	r.of.counters.stuck.add(r.of, r.op.Cost, now, r.until)
}

// refund returns the op that gives back what is left of b: in a single op, because two
// could return tokens of others. A bucket gets back at most what cannot have drained
// since the draw, even if nothing else was taken.
func (l *line) refund(b *block, left int64) (store.Op, bool) {
	op := l.op
	op.Kind, op.Cost, op.CountsUntil = store.KindRefund, left, b.counts
	if r := l.rule; r.Algorithm == store.TokenBucket {
		drains := int64(uint64(left*r.Token) / uint64(r.Leak))
		op.CountsUntil = (b.drawn/r.Tick + drains) * r.Tick
	}
	return op, op.CountsUntil > 0
}

// drop ends all blocks without giving them back, because the state that they were
// charged to is gone. mu must not be held.
func (l *line) drop(now int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range [...]*block{l.current.Swap(nil), l.next.Swap(nil)} {
		if b == nil {
			continue
		}
		if left := b.left.Swap(sealed); left >= 0 {
			l.spent += b.size - left
			l.counters.admitted.Add(b.size - left)
			l.counters.held.Add(-b.size)
			l.counters.expired.Add(left)
			l.counters.stuck.add(l, left, now, b.over(l.rule)) // it may have been drawn after the reset
		}
	}
	if l.drawing != nil {
		l.drawing.void = true
	}
}

// end retires all blocks, for good.
func (l *line) end(now int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gone = true
	l.retire(l.current.Swap(nil), now)
	l.retire(l.next.Swap(nil), now)
}

// refunds returns what is to be given back, and forgets it.
func (l *line) refunds() []returned {
	l.mu.Lock()
	defer l.mu.Unlock()
	ops := l.retired
	l.retired = nil
	return ops
}

func micros(us int64) time.Duration { return time.Duration(us) * time.Microsecond }

// newLine returns the line for op, which keeps a copy of its key.
func newLine(op *store.Op, hash uint64, c *counters) *line {
	r := op.Rule
	l := &line{
		op:   store.Op{Key: strings.Clone(op.Key), Scope: strings.Clone(op.Scope), Rule: op.Rule},
		rule: r, hash: hash, beat: beatOf(r), keep: keepOf(r), counters: c, size: hotAfter,
	}
	c.keys.Add(1)
	return l
}
