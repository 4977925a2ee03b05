package queue

import (
	"container/heap"
	"maps"
	"slices"
	"sync/atomic"
	"time"
)

// item is an entry that this process must send.
type item struct {
	ref      Ref
	attempts Attempts
	busy     bool // in flight
	asking   bool // and its limits have not answered
	gone     bool // taken back while in flight
	// aside is until when others pass it, because its sender has not been told.
	aside time.Time
	// failed is when the store last could not give it.
	failed time.Time
	// looks is Queue.looks when its last attempt began.
	looks uint64
}

// line is the entries of one key, in order.
type line struct {
	key      Line
	group    *group
	items    []*item
	inFlight int       // attempts, including those waiting for their turn
	asking   int       // those of them whose limits have not answered
	places   int       // slots of these attempts
	at, gate time.Time // at is when to look at the line next, gate when to ask its own limit again
	// refusedAt is when that has last refused an entry, and early whether it is asked before it
	// said that it is free: then by one entry at a time.
	refusedAt time.Time
	early     bool
	// held has the claims that other limits refuse. Entries with such a claim wait, and others
	// pass them.
	held    map[claimed]hold
	refused atomic.Int32 // consecutive refusals by other limits
	place   int          // in the heap; -1 if not in it
}

// claimed is one key of one limit, or the share that an owner has of it.
type claimed struct{ rule, key, owner string }

// has reports whether c is about by: the whole key, or the share of c's owner.
func (by *claimed) has(c *Claim) bool {
	return by.rule == c.Rule && by.key == c.Key && (by.owner == "" || by.owner == c.Owner)
}

// hold is until when a claim is not asked about, and whether its limit counts what it refuses.
type hold struct {
	until  time.Time
	counts bool
}

// maxHeld is the size of held above which expired claims are deleted.
const maxHeld = 1000

// stop makes the line wait, or only its entries with the claim that another limit refused.
func (l *line) stop(it *item, p *pause, now time.Time) {
	if p.until.IsZero() {
		l.early = false
		return
	}
	if !slices.ContainsFunc(it.ref.Claims, func(c Claim) bool { return p.by.has(&c) }) {
		if p.until.After(l.gate) {
			l.gate, l.refusedAt, l.early = p.until, now, p.early
		}
		return
	}
	if l.held == nil {
		l.held = map[claimed]hold{}
	}
	if len(l.held) >= maxHeld {
		maps.DeleteFunc(l.held, func(_ claimed, h hold) bool { return !h.until.After(now) })
	}
	l.held[p.by] = hold{p.until, p.counts}
}

// lookAgain makes the line ask the limits of these keys at once.
func (l *line) lookAgain(concerns func(key string) bool, now time.Time) {
	if concerns(l.key.Key) && l.gate.After(now) {
		l.gate, l.early = now, true
	}
	maps.DeleteFunc(l.held, func(c claimed, h hold) bool { return !h.counts && concerns(c.key) })
}

// heldUntil returns until when others pass the entry, because other limits refuse it or its
// sender has not been told.
func (l *line) heldUntil(it *item) (until time.Time) {
	if until = it.aside; len(l.held) == 0 {
		return until
	}
	for i := range it.ref.Claims {
		c := &it.ref.Claims[i]
		if at := l.held[claimed{c.Rule, c.Key, ""}].until; at.After(until) {
			until = at
		}
		if c.Owner == "" {
			continue
		}
		if at := l.held[claimed{c.Rule, c.Key, c.Owner}].until; at.After(until) {
			until = at
		}
	}
	return until
}

// maxLooked is how many entries first examines when their order does not matter.
const maxLooked = 256

// next returns the entry to send next and when, or nil if there is none.
func (l *line) next(concurrency int, now time.Time) (*item, time.Time) {
	if l.inFlight >= concurrency || l.early && l.asking > 0 {
		return nil, time.Time{}
	}
	best, at := l.first(concurrency, now)
	if best != nil && l.gate.After(at) {
		at = l.gate
	}
	return best, at
}

// answered notes that the limits of an entry have answered.
func (l *line) answered(it *item) {
	if it.asking {
		it.asking = false
		l.asking--
	}
}

// first returns the first entry that no other limit refuses or, if there is none, the one that
// will be free first.
func (l *line) first(concurrency int, now time.Time) (best *item, at time.Time) {
	var held *item
	var free time.Time
	looked := 0
	for _, it := range l.items {
		if it.busy {
			continue
		}
		if until := l.heldUntil(it); until.After(now) {
			if held == nil || until.Before(free) {
				held, free = it, until
			}
			continue
		}
		if best == nil || it.attempts.Next.Before(at) {
			best, at = it, it.attempts.Next
		}
		if looked++; concurrency == 1 || at.IsZero() || looked == maxLooked {
			break
		}
	}
	if best == nil || held != nil && free.Before(at) {
		return held, free
	}
	return best, at
}

// stepAside makes an entry whose sender has not been told hold up the line no longer than
// untoldTime. By then the sender has an answer, or the process that would give it has died. If the
// store was away, the sender may have an answer of which the store is told now.
func (it *item) stepAside(p *pause, now time.Time) {
	aside := it.ref.Accepted.Add(untoldTime)
	if told := it.failed.Add(toldTime); told.After(aside) {
		aside = told
	}
	if !now.Before(aside) {
		it.aside, p.until = p.until, time.Time{}
		return
	}
	if aside.Before(p.until) {
		p.until = aside
	}
}

// insert inserts the entry in order.
func (l *line) insert(it *item) {
	n := len(l.items)
	if n == 0 || l.items[n-1].ref.compare(&it.ref) < 0 {
		l.items = append(l.items, it)
		return
	}
	i, found := slices.BinarySearchFunc(l.items, it, func(a, b *item) int { return a.ref.compare(&b.ref) })
	if found { // taken back before, and now ours again
		l.items[i].gone = false
		return
	}
	l.items = slices.Insert(l.items, i, it)
}

// remove removes the entry.
func (l *line) remove(it *item) {
	if len(l.items) > 0 && l.items[0] == it {
		l.items[0] = nil
		l.items = l.items[1:]
		return
	}
	if i := slices.Index(l.items, it); i >= 0 {
		l.items = slices.Delete(l.items, i, i+1)
	}
}

// dueLanes is a heap of lines, ordered by when they are due.
type dueLanes []*line

func (h dueLanes) Len() int           { return len(h) }
func (h dueLanes) Less(i, j int) bool { return h[i].at.Before(h[j].at) }

func (h dueLanes) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

// Push implements heap.Interface.
func (h *dueLanes) Push(x any) {
	l, _ := x.(*line)
	l.place = len(*h)
	*h = append(*h, l)
}

// Pop implements heap.Interface.
func (h *dueLanes) Pop() any {
	last := (*h)[len(*h)-1]
	(*h)[len(*h)-1] = nil
	*h = (*h)[:len(*h)-1]
	last.place = -1
	return last
}

// put sets when l is due.
func (h *dueLanes) put(l *line, at time.Time) {
	l.at = at
	if l.place < 0 {
		heap.Push(h, l)
	} else {
		heap.Fix(h, l.place)
	}
}

// drop removes l.
func (h *dueLanes) drop(l *line) {
	if l.place >= 0 {
		heap.Remove(h, l.place)
	}
}
