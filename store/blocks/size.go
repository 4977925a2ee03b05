package blocks

import (
	"sync/atomic"

	"github.com/headgate/headgate"
)

const (
	longestBeat = 100_000 // microseconds
	hotAfter    = 8       // requests in a beat make a key busy
	coolBelow   = 4       // with fewer it is not
	coolFor     = 4       // if that lasts so many beats
	idleFor     = 2       // beats without a request, after which blocks are given back

	leastBlock = 2
	mostBlock  = 1 << 40

	// margin is the part of a block's age that is not used, because the process's clock
	// may be 1% slow, and runs 1.6% slower still between two readings while it is.
	margin = 32
)

// beatOf returns the length of a beat in microseconds. Blocks are made for half a beat
// to a whole one, so that they are spent before they are too old.
func beatOf(r *headgate.Rule) int64 { return max(min(longestBeat, r.Age*3/4), 1) }

// rest returns how long no draw should follow one that left so much: half a beat, if the
// store has less than it gets in a beat. Otherwise a key that is asked for more than its
// limit would be drawn token by token, as fast as they arrive. They do not get lost by
// waiting. A fixed window gets nothing, so its last tokens are drawn at once.
func (l *line) rest(remaining int64) int64 {
	r := l.rule
	if r.Algorithm == headgate.FixedWindow || float64(remaining) >= float64(r.Limit)*float64(l.beat)/float64(r.Period) {
		return 0
	}
	return l.beat / 2
}

// resize learns from a block that ends with something left. mu must be held.
func (l *line) resize(b *block, left, now int64) {
	used := max(now-b.began, 1)
	l.pace = (b.size - left) * 1_000_000 / used
	switch {
	case left == 0 && used <= l.beat/2 && b.size >= l.size:
		l.size = min(l.size*2, mostBlock)
	case left >= (b.size+1)/2:
		l.size = max(l.size/2, leastBlock)
	}
}

// low returns what should be left of a block of that size when the next draw begins:
// what is needed during two round trips. mu must be held.
func (l *line) low(size int64) int64 {
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
