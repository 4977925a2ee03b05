package memory

import (
	"math"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/headgate/headgate/algorithm"
	"github.com/headgate/headgate/store"
)

// hot is the bucket of a key so busy that processors wait for each other at its shard's
// lock. Requests are admitted by taking a ticket, with one atomic addition, and refused
// without writing anything.
//
// A shard has at most one. While it is open, what the table has of the key is out of date;
// before the shard is locked for anything else, it is closed and put back into the table.
//
// Opening issues tickets for all tokens that are available at that time, last. Because a
// bucket drains by the same amount whatever is in it, the one at last with what has been
// taken since is the bucket at any later time too, until the one without that would be
// empty. So all answers are those of [algorithm.Take], in the order of the tickets. Only
// requests whose clock is behind that of an earlier one are judged by their own time
// instead of the later one, which is never in their favor.
type hot struct {
	// The first line is written when the bucket is opened and closed, under mu. A reader
	// that finds seq unchanged afterwards has read fields that belong together.
	seq               atomic.Uint64 // the generation, times two, and hotClosed
	used, last, until atomic.Int64  // the bucket at last if all tickets are taken
	sure              atomic.Int64  // the tickets issued
	id                identity
	rule              *store.Rule
	_                 [64]byte // processors fetch lines in pairs

	// tickets has the generation in its high half. In the low half are ticketsValid and
	// how many are left. Taking one more clears ticketsValid, and changes nothing else.
	// Several are only taken if they are there.
	tickets atomic.Uint64
	_       [120]byte

	mu       sync.Mutex // locked under the shard's lock, or alone
	cost     int64      // of a ticket, in tokens
	openedAt int64
	served   int64 // the tickets taken since then, up to the last closing
	wasted   int   // how often in a row a bucket was opened in vain
	_        [88]byte
}

const (
	hotBytes = int64(unsafe.Sizeof(hot{}))

	hotClosed = 1 // in seq

	// mostSlack is how many microseconds the store's own clock may be behind for a request
	// for a hot key.
	mostSlack = 8

	ticketsValid  = 1 << 31
	ticketsClosed = 1 << 30 // the low half while closed: further subtractions have no effect
	mostTickets   = ticketsClosed - 1

	// hotAfter is how often requests for a key must wait for the shard's lock, with no
	// other key's in between, before it gets a hot bucket.
	hotAfter = 8
	// mostWasted is how often in a row a bucket may be opened in vain before the shard
	// stops that: for less than briefly, in microseconds, and fewer than fewServed tickets.
	// Refusals are not counted. If it was for them, the shard soon has a bucket again.
	mostWasted, briefly, fewServed = 64, 1000, 16
	// takeTries is how often a request tries to take several tickets at once.
	takeTries = 4
	// lockTries is how often a request tries to get a lock before it waits, and lockPause
	// how long it counts in between: each try takes the line from the one who has the lock.
	lockTries, lockPause = 16, 100
)

// contention counts how often requests for one key waited for a shard's lock.
type contention struct {
	id    identity
	count int
}

// lock locks a shard and puts back its hot bucket, so that the table is all there is. now
// is 0 if that is not known.
func (s *Store) lock(shard uint64, now int64) *shard {
	h := &s.shards[shard]
	h.mu.Lock()
	if c := s.hints[shard].hot.Load(); c != nil {
		h.putBack(s, c, now)
	}
	return h
}

// lockSoon locks mu, which is held for much less than a microsecond. Mutex.Lock lets those
// who wait pause for longer than that.
func lockSoon(mu *sync.Mutex) {
	for range lockTries {
		if mu.TryLock() {
			return
		}
		for range lockPause {
		}
	}
	mu.Lock()
}

// takeOne takes n ≥ 1 from a bucket. slack is how many microseconds before now the
// request may be timed.
//
//nolint:revive // the hot path: arguments stay in registers, a struct would not
func (s *Store) takeOne(id identity, r *store.Rule, now, n, slack int64, d *store.Decision) {
	i := s.shardIndex(id)
	h, hint := &s.shards[i], &s.hints[i]
	if hint.hot.Load() != nil || !h.mu.TryLock() {
		s.takeBusy(id, r, now, n, slack, d)
		return
	}
	if c := hint.hot.Load(); c != nil { // since a moment ago
		h.putBack(s, c, now)
	}
	h.takeBucket(s, id, r, now, n, d)
	h.mu.Unlock()
}

// takeBusy is takeOne for a shard that has a hot bucket or is locked.
//
//go:noinline
//nolint:revive // the hot path: arguments stay in registers, a struct would not
func (s *Store) takeBusy(id identity, r *store.Rule, now, n, slack int64, d *store.Decision) {
	c := s.hints[s.shardIndex(id)].hot.Load()
	if c == nil || !c.isFor(id, r) || !c.take(r, now, n, slack, d) && !c.takeWaiting(r, now, n, slack, d) {
		s.takeTable(id, r, now, n, d, c)
	}
}

// takeTable is takeBusy under the shard's lock. The caller found the bucket that it passes
// of no help; if there was none, it could not get the lock at once.
//
//nolint:revive // the hot path: arguments stay in registers, a struct would not
func (s *Store) takeTable(id identity, r *store.Rule, now, n int64, d *store.Decision, found *hot) {
	i := s.shardIndex(id)
	h, hint := &s.shards[i], &s.hints[i]
	waited := found == nil
	if !h.mu.TryLock() {
		waited = true
		lockSoon(&h.mu)
	}
	defer h.mu.Unlock()
	if c := hint.hot.Load(); c != nil {
		h.putBack(s, c, now)
		if c.wasted > mostWasted {
			hint.hot.Store(nil)
			s.bytes.Add(-hotBytes)
		}
	}
	h.takeBucket(s, id, r, now, n, d)
	c := hint.hot.Load()
	if waited && (c == nil || !c.isFor(id, r)) && h.contended(id) {
		c = h.warm(s)
	}
	if c != nil && (c.rule == nil || c.isFor(id, r)) {
		h.open(hint, id, r, now, n)
	}
}

// contended notes that a request for id waited for the lock, and reports whether that
// happens often. So keys that take turns do not take the bucket from each other.
func (h *shard) contended(id identity) bool {
	if h.waited.id != id {
		h.waited = contention{id: id}
	}
	h.waited.count++
	often := h.waited.count >= hotAfter
	if often {
		h.waited = contention{}
	}
	return often
}

// warm gives the shard a bucket that is for nobody yet.
func (h *shard) warm(s *Store) *hot {
	hint, c := &s.hints[h.index], new(hot)
	c.seq.Store(hotClosed)
	if old := hint.hot.Load(); old != nil {
		c.wasted = old.wasted
	} else {
		s.bytes.Add(hotBytes)
	}
	hint.hot.Store(c)
	return c
}

// open opens a key's hot bucket for requests of cost n, if the table has it as a bucket,
// under the shard's lock. The shard's bucket must be for that key, or for nobody.
func (h *shard) open(hint *hint, id identity, r *store.Rule, now, n int64) {
	c := hint.hot.Load()
	i, found := h.find(id)
	if !found || h.slots[i].codec() != codecBucket || n > r.Burst {
		c.wasted++
		return
	}
	b := h.slots[i].bucket()
	if b.Token != r.Token {
		c.wasted++
		return
	}
	if c.rule != nil {
		n = divisor(c.cost, n)
	}
	if n != c.cost {
		// Never the same one: somebody may still be about to take a ticket of the old cost.
		c = &hot{id: id, rule: r, cost: n, wasted: c.wasted}
		c.seq.Store(hotClosed)
		hint.hot.Store(c)
	}
	lockSoon(&c.mu)
	c.openedAt, c.served = now, 0
	c.open(b)
	c.mu.Unlock()
}

// isFor reports whether c is for a key under a limit, however that was written.
func (c *hot) isFor(id identity, r *store.Rule) bool {
	return c.id == id && (c.rule == r || *c.rule == *r)
}

// divisor returns the greatest common divisor.
func divisor(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// putBack closes a hot bucket and puts it back into the table, under the shard's lock.
func (h *shard) putBack(s *Store, c *hot, now int64) {
	lockSoon(&c.mu)
	defer c.mu.Unlock()
	if c.seq.Load()&hotClosed != 0 {
		return
	}
	b := c.close()
	if c.served < fewServed && now < c.openedAt+briefly {
		c.wasted++
	} else {
		c.wasted = 0
	}
	p := h.lookup(c.id) // it is there: nothing is removed while it is open
	if p.bucket() == b {
		return // and lasts as long as the limit says that took last
	}
	st := algorithm.State{V: [4]int64{b.Used, b.Last, b.Token}}
	fresh := algorithm.Step(c.rule, &st, b.Last, algorithm.Request{Kind: store.KindPeek}).FreshAt
	h.write(s, p, c.rule, &st, times{fresh, fresh}, b.Last)
}

// open issues tickets for what the bucket has.
func (c *hot) open(b algorithm.Bucket) {
	r, until, sure := c.rule, int64(math.MaxInt64), int64(0)
	if r.Leak > 0 {
		until = max((b.Last/r.Tick+b.Used/r.Leak)*r.Tick, b.Last)
	}
	if r.Algorithm == store.TokenBucket && b.Used < r.Capacity {
		sure = min((r.Capacity-b.Used)/(c.cost*r.Token), mostTickets)
	}
	c.used.Store(b.Used + sure*c.cost*r.Token)
	c.last.Store(b.Last)
	c.until.Store(until)
	c.sure.Store(sure)
	seq := c.seq.Load()&^hotClosed + 2*hotClosed
	c.tickets.Store(seq<<31 | ticketsValid | uint64(sure))
	c.seq.Store(seq)
}

// close makes tickets invalid and returns the bucket.
func (c *hot) close() algorithm.Bucket {
	seq := c.seq.Load() | hotClosed
	c.seq.Store(seq)
	left := int64(0)
	if word := c.tickets.Swap(seq&^hotClosed<<31 | ticketsClosed); word&ticketsValid != 0 {
		left = int64(word & (ticketsValid - 1))
	}
	c.served += c.sure.Load() - left
	return algorithm.Bucket{Used: c.used.Load() - left*c.cost*c.rule.Token, Last: c.last.Load(), Token: c.rule.Token}
}

// take answers a request for the bucket's key without a lock, timed at now or up to slack before. It returns
// false, and d is undefined, if it cannot.
func (c *hot) take(r *store.Rule, now, n, slack int64, d *store.Decision) bool {
	seq := c.seq.Load()
	b := algorithm.Bucket{Used: c.used.Load(), Last: c.last.Load(), Token: r.Token}
	if seq&hotClosed != 0 {
		return false
	}
	sure, until := c.sure.Load(), c.until.Load()
	if sure == 0 {
		_, _, wrote := algorithm.Take(r, b, now, n, d)
		return !wrote && now <= until && c.seq.Load() == seq
	}
	if now > until {
		if now > until+slack || !evensOut(r) {
			return false
		}
		now = until
	}
	if n != c.cost {
		return c.takeSeveral(seq, b, now, n, d)
	}
	word := c.tickets.Add(^uint64(0))
	if word&ticketsValid == 0 {
		return false
	}
	if word>>32 != seq>>1&math.MaxUint32 {
		c.exchange(word, r, now, n, d)
		return true
	}
	b.Used -= (int64(word&(ticketsValid-1)) + 1) * n * r.Token
	algorithm.Take(r, b, now, n, d)
	return true
}

// takeSeveral is take for other costs than that of a ticket. all is the bucket if all
// tickets are taken.
func (c *hot) takeSeveral(seq uint64, all algorithm.Bucket, now, n int64, d *store.Decision) bool {
	m := n / c.cost
	for range takeTries {
		word := c.tickets.Load()
		left := int64(word & (ticketsValid - 1))
		if word&ticketsValid == 0 || word>>32 != seq>>1&math.MaxUint32 {
			return false
		}
		b := all
		b.Used -= left * c.cost * c.rule.Token
		if _, _, wrote := algorithm.Take(c.rule, b, now, n, d); !wrote {
			return true // so it was when word was read
		}
		if left < m || m*c.cost != n {
			return false
		}
		if c.tickets.CompareAndSwap(word, word-uint64(m)) {
			return true
		}
	}
	return false
}

// evensOut reports whether what a bucket drains in mostSlack is so little of it that nobody
// can tell: less than one part in 65,536, which for most limits is less than a token.
func evensOut(r *store.Rule) bool { return r.Tick == 1 && r.Leak <= r.Capacity/mostSlack>>16 }

// exchange answers a request that got a ticket of a later generation than it had looked
// at, possibly of a bucket that has been reset since.
func (c *hot) exchange(word uint64, r *store.Rule, now, n int64, d *store.Decision) {
	lockSoon(&c.mu)
	defer c.mu.Unlock()
	seq, b := c.seq.Load(), algorithm.Bucket{Used: c.used.Load(), Last: c.last.Load(), Token: r.Token}
	switch {
	case seq>>1&math.MaxUint32 != word>>32:
		// That generation is over, and has counted the ticket. What was left is not known
		// any more, but it was at least this.
		b.Used = min(b.Used, r.Capacity) - n*r.Token
		algorithm.Take(r, b, now, n, d)
	case now <= c.until.Load() || seq&hotClosed != 0:
		b.Used -= (int64(word&(ticketsValid-1)) + 1) * n * r.Token
		algorithm.Take(r, b, now, n, d)
	default:
		b = c.close()
		b.Used -= n * r.Token
		b, _, _ = algorithm.Take(r, b, now, n, d)
		c.open(b)
	}
}

// takeWaiting is take for the requests that it cannot answer at once: it opens the bucket
// again, unless somebody else does. It returns false if it was put back.
func (c *hot) takeWaiting(r *store.Rule, now, n, slack int64, d *store.Decision) bool {
	for try := 0; !c.mu.TryLock(); try++ {
		if try == lockTries {
			c.mu.Lock()
			break
		}
		for range lockPause {
		}
		if c.take(r, now, n, slack, d) {
			return true
		}
	}
	defer c.mu.Unlock() // not in the loop, where it would allocate
	return c.takeLocked(r, now, n, slack, d)
}

func (c *hot) takeLocked(r *store.Rule, now, n, slack int64, d *store.Decision) bool {
	if c.seq.Load()&hotClosed != 0 {
		return false
	}
	if c.take(r, now, n, slack, d) { // somebody else has opened it
		return true
	}
	if n%c.cost != 0 && n <= r.Burst {
		return false // the next one has smaller tickets
	}
	b, _, _ := algorithm.Take(r, c.close(), now, n, d)
	c.open(b)
	return true
}
