package queue

import (
	"container/heap"
	"maps"
	"slices"
	"sync/atomic"
	"time"
)

// item is an entry that this process has to send.
type item struct {
	ref      Ref
	attempts Attempts
	busy     bool // under way
	gone     bool // taken back while it was
}

// lane are the entries of one key, in order.
type lane struct {
	id       Lane
	group    *group
	items    []*item
	inFlight int       // attempts, those that wait for their turn included
	places   int       // that these have
	at, gate time.Time // at is when it is to be looked at next, gate when its limit lets another entry through
	// held are until when other limits refuse; entries that are under one wait, and
	// let others pass.
	held    map[claimed]time.Time
	refused atomic.Int32 // by others' limits, in a row
	place   int          // in the heap; -1 if it is not there
}

// claimed is a key of a limit.
type claimed struct{ rule, key string }

// maxHeld is from how many on those are looked through for what is over.
const maxHeld = 1000

// stop lets the lane wait, or those of its entries that the same key of another
// limit would refuse.
func (l *lane) stop(it *item, p *pause, now time.Time) {
	if !slices.ContainsFunc(it.ref.Claims, func(c Claim) bool { return claimed{c.Rule, c.Key} == p.by }) {
		if p.until.After(l.gate) {
			l.gate = p.until
		}
		return
	}
	if l.held == nil {
		l.held = map[claimed]time.Time{}
	}
	if len(l.held) >= maxHeld {
		maps.DeleteFunc(l.held, func(_ claimed, until time.Time) bool { return !until.After(now) })
	}
	l.held[p.by] = p.until
}

// heldUntil returns until when other limits refuse it.
func (l *lane) heldUntil(it *item) (until time.Time) {
	if len(l.held) == 0 {
		return until
	}
	for _, c := range it.ref.Claims {
		if at := l.held[claimed{c.Rule, c.Key}]; at.After(until) {
			until = at
		}
	}
	return until
}

// maxLooked is how many entries of a lane are looked at for one that may be
// sent, where their order does not matter.
const maxLooked = 256

// next returns the entry to send next and when. It is nil if none can be.
func (l *lane) next(concurrency int, now time.Time) (*item, time.Time) {
	if l.inFlight >= concurrency {
		return nil, time.Time{}
	}
	best, at := l.first(concurrency, now)
	if best != nil && l.gate.After(at) {
		at = l.gate
	}
	return best, at
}

// first returns the first entry that no other limit holds; if all are held, the one
// that will be free first.
func (l *lane) first(concurrency int, now time.Time) (best *item, at time.Time) {
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

// insert puts it in its place.
func (l *lane) insert(it *item) {
	n := len(l.items)
	if n == 0 || l.items[n-1].ref.compare(&it.ref) < 0 {
		l.items = append(l.items, it)
		return
	}
	i, found := slices.BinarySearchFunc(l.items, it, func(a, b *item) int { return a.ref.compare(&b.ref) })
	if found { // taken back, and now ours again
		l.items[i].gone = false
		return
	}
	l.items = slices.Insert(l.items, i, it)
}

// remove takes it out.
func (l *lane) remove(it *item) {
	if len(l.items) > 0 && l.items[0] == it {
		l.items[0] = nil
		l.items = l.items[1:]
		return
	}
	if i := slices.Index(l.items, it); i >= 0 {
		l.items = slices.Delete(l.items, i, i+1)
	}
}

// dueLanes is a heap of lanes by when they are due.
type dueLanes []*lane

func (h dueLanes) Len() int           { return len(h) }
func (h dueLanes) Less(i, j int) bool { return h[i].at.Before(h[j].at) }

func (h dueLanes) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

// Push implements heap.Interface.
func (h *dueLanes) Push(x any) {
	l, _ := x.(*lane)
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

// put makes l due at a time.
func (h *dueLanes) put(l *lane, at time.Time) {
	l.at = at
	if l.place < 0 {
		heap.Push(h, l)
	} else {
		heap.Fix(h, l.place)
	}
}

// drop takes l out.
func (h *dueLanes) drop(l *lane) {
	if l.place >= 0 {
		heap.Remove(h, l.place)
	}
}
