package offenders

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/rules"
)

// logEvery is how often each kind of failure is logged.
const logEvery = time.Minute

// stats are for metrics and for operators.
type stats struct {
	full, long, uncounted, unbanned atomic.Int64
	uncountedAt, unbannedAt         time.Time // last logged; guarded by Watch.flushing

	mu     sync.Mutex
	banned map[Banned]int64
	last   []Ban // a ring
	next   int
}

// maxLast is how many bans [Watch.Last] returns.
const maxLast = 1000

func (s *stats) add(b *Ban) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.banned[Banned{b.Rule.Domain, b.Rule.Name, b.Mode}]++
	if len(s.last) < maxLast {
		s.last = append(s.last, *b)
		return
	}
	s.last[s.next] = *b
	s.next = (s.next + 1) % maxLast
}

// mayLog reports whether a failure that was logged at last may be logged now, and sets last.
func mayLog(last *time.Time, now time.Time) bool {
	if since := now.Sub(*last); since >= 0 && since < logEvery {
		return false
	}
	*last = now
	return true
}

// Last returns up to n of the bans that this process has started last, in shadow mode too,
// newest first.
func (w *Watch) Last(n int) []Ban {
	s := &w.stats
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Ban, 0, min(n, len(s.last)))
	for i := range min(n, len(s.last)) {
		out = append(out, s.last[(s.next+len(s.last)-1-i)%len(s.last)])
	}
	return out
}

// Counts are numbers since the start.
type Counts struct {
	Banned      map[Banned]int64
	TooManyKeys int64 // refusals of more keys than fit between two flushes
	LongKeys    int64 // refusals of keys that are too long
	Uncounted   int64 // refusals that the store has not counted
	Unsaved     int64 // bans that could not be started
}

// Banned is a rule and whether it bans.
type Banned struct {
	Domain, Rule string
	Mode         rules.Mode
}

// Counts returns the numbers of bans that this process has started, and of what was lost.
func (w *Watch) Counts() Counts {
	s := &w.stats
	s.mu.Lock()
	defer s.mu.Unlock()
	return Counts{maps.Clone(s.banned), s.full.Load(), s.long.Load(), s.uncounted.Load(), s.unbanned.Load()}
}
