package blocks

import (
	"sync/atomic"

	"github.com/headgate/headgate/store"
)

const (
	longestBeat = 100_000 // microseconds
	hotAfter    = 8       // requests in a beat make a key busy
	coolBelow   = 4       // with fewer it is not
	coolFor     = 4       // if that lasts so many beats
	idleFor     = 2       // beats without a request, after which blocks are given back

	// lateFor is how long no draw begins after one that arrived too late to be used, in
	// microseconds: the store is further away than a block may be kept.
	lateFor = 1_000_000

	leastBlock = 2
	mostBlock  = 1 << 40

	// A block is made for longest of use, or for less if it cannot be kept so long. If it can
	// be kept for stallAge, the next is drawn so early that the store may stand still for a
	// while.
	longest  = 400_000 // microseconds
	stallAge = 500_000 // microseconds

	// margin is the part of a block's age that is not used, because the process's clock
	// may be 1% slow, and runs 1.6% slower still between two readings while it is.
	margin = 32
)

// beatOf returns the length of a beat in microseconds.
func beatOf(r *store.Rule) int64 { return max(min(longestBeat, r.Age*3/4), 1) }

// rest returns how long no draw should follow one that left so much: half a beat, if the
// store has less than it gets in a beat. Otherwise a key that is asked for more than its
// limit would be drawn token by token, as fast as they arrive. They do not get lost by
// waiting. A fixed window gets nothing, so its last tokens are drawn at once.
func (l *line) rest(remaining int64) int64 {
	r := l.rule
	if r.Algorithm == store.FixedWindow || float64(remaining) >= float64(r.Limit)*float64(l.beat)/float64(r.Period) {
		return 0
	}
	return l.beat / 2
}

// keepOf returns for how many microseconds tokens are meant to be kept: not longer than
// they may be used, and in a window hardly longer than a tenth of it, because others need
// what a process holds when it ends.
func keepOf(r *store.Rule) int64 {
	if r.Algorithm == store.TokenBucket {
		return r.Age
	}
	return min(r.Age, max(r.Period/10, longestBeat))
}

// outlasts reports whether blocks are kept long enough to outlast a store that stands still.
func (l *line) outlasts() bool { return l.keep >= stallAge }

// span returns for how many microseconds of use a block should be. With the time that it
// may wait as the next one, that is less than it is kept, so that it is spent in time
// although requests become fewer. mu must be held.
func (l *line) span() int64 {
	if l.outlasts() {
		return min(longest, l.keep*2/5)
	}
	return max(min(l.keep*3/4, l.keep*7/8-2*l.roundup), l.keep/4, 1)
}

// resize learns from a block that ends with something left: the next ones should last for
// a span at its pace. As a few requests at once are no pace, they then grow step by step.
// mu must be held.
func (l *line) resize(b *block, left, now int64) {
	if b.opened == 0 {
		return // nobody has asked it for anything
	}
	took, span := max(now-b.opened, 1), l.span()
	used := min(b.size-left, mostBlock)
	l.pace = min(used*1_000_000/took, mostBlock)
	least, most := int64(leastBlock), int64(mostBlock)
	if took < span/2 {
		least = max(l.size/2, least)
	}
	if took < span/16 {
		most = min(l.size*2, most)
	}
	if b.short {
		most = l.size
	}
	l.size = max(min(used*span/took, most), least)
}

// low returns what should be left of a block of that size when the next draw begins:
// what is needed during two round trips, or most of it, so that there is always a block in
// reserve if the store stands still. mu must be held.
func (l *line) low(size int64) int64 {
	if l.outlasts() {
		return size * 3 / 4
	}
	return min(2*l.pace*min(l.roundup, 1_000_000)/1_000_000, size/2)
}

// look is the sweeper's look at a line, once a beat: it retires blocks that are over or
// idle, and reports whether the line is no longer busy.
func (l *line) look(now int64) (cold bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gone {
		return l.drawing == nil
	}
	if now < l.due {
		return false
	}
	l.due = now + l.beat
	spent := l.spent
	for _, at := range [...]*atomic.Pointer[block]{&l.current, &l.next} {
		b := at.Load()
		if b == nil {
			continue
		}
		if now >= b.deadline {
			at.Store(nil)
			l.retire(b, now)
			spent = l.spent
			continue
		}
		spent += b.size - max(b.left.Load(), 0)
	}
	draws := l.draws.Load()
	busy := max(spent-l.seen, 0) + draws - l.drawsSeen
	l.seen, l.drawsSeen = spent, draws
	if l.idle++; busy > 0 {
		l.idle = 0
	}
	if l.cool++; busy >= coolBelow {
		l.cool = 0
	}
	if l.idle >= idleFor || l.cool >= coolFor {
		l.retire(l.current.Swap(nil), now)
		l.retire(l.next.Swap(nil), now)
		l.seen = l.spent
	}
	l.gone = l.cool >= coolFor && l.drawing == nil
	return l.gone
}
