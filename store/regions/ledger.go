package regions

import (
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/store"
)

// confirmFor is for how long a region can confirm a gift: as long as it acts upon the
// message, and some time for its answer.
const confirmFor = store.Recent + 10*time.Second

// ledger is what a courier has given and the other region has not confirmed. It is safe
// for concurrent use.
type ledger struct {
	mu   sync.Mutex
	open []entry // oldest first: one for each message of the last confirmFor
	lost int64   // tokens that were not confirmed in time
}

// entry is the gifts of one message.
type entry struct {
	sent    time.Time // by this process's clock
	charged int64     // when the last one was charged, by the clock of this region's messages
	tokens  int64
}

// gave notes the gifts of a message, and writes off those that can no longer be
// confirmed.
func (l *ledger) gave(now time.Time, gifts []gift) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open = slices.DeleteFunc(l.open, func(e entry) bool {
		late := now.Sub(e.sent) >= confirmFor
		if late {
			l.lost += e.tokens
		}
		return late
	})
	e := entry{sent: now}
	for i := range gifts {
		e.charged = max(e.charged, gifts[i].Charged)
		e.tokens += gifts[i].Tokens
	}
	if e.tokens > 0 {
		l.open = append(l.open, e)
	}
}

// confirmed notes that the other region has acted upon what was published up to a time,
// by the clock of this region's messages in microseconds.
func (l *ledger) confirmed(upTo int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	upTo += time.Millisecond.Microseconds() // messages have times in ms
	l.open = slices.DeleteFunc(l.open, func(e entry) bool { return e.charged <= upTo })
}

// sums returns the tokens that are not confirmed yet, and those that were not confirmed in
// time.
func (l *ledger) sums() (open, lost int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.open {
		open += l.open[i].tokens
	}
	return open, l.lost
}
