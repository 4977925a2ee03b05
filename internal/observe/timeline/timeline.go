// Package timeline keeps the last hour of a few keys that operators follow: what was
// allowed and refused in each second, what it cost, and how little remained. Its memory
// is fixed.
package timeline

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// What is kept, in one process.
const (
	Most  = 16   // keys at a time: 1.4 MB, if all are followed
	Spans = 3600 // seconds of each key
	// Yields is how long nobody may have looked at a key before another takes its place.
	Yields = time.Hour
	// Lasts is how long nobody may have looked at a key before it is no longer followed.
	Lasts = 24 * time.Hour
)

// ErrFull is returned by [Book.Follow] if there is no room for another key.
var ErrFull = fmt.Errorf("%d keys are followed already: stop one first", Most)

// errLongKey is for keys that no rule composes.
var errLongKey = errors.New("the key is too long to be followed")

// maxKey is the longest key, in bytes, so that the memory is limited.
const maxKey = 16 << 10

// ID is a key under the rules of a scope.
type ID struct{ Scope, Key string }

// Sample is what one limit said about a request.
type Sample struct {
	At        int64 // the time of the request in microseconds since the Unix epoch
	Refused   bool  // by this limit, or it would have been in shadow mode
	Cost      int64 // what was taken
	Remaining int64 // or Unknown
	Limit     int64
}

// Unknown is what remains if the store did not answer, or nothing limits the key.
const Unknown = -1

// Second is what happened to a key in one second.
type Second struct {
	T       int64 `json:"t"` // the start of the second, in seconds since the Unix epoch
	Allowed int64 `json:"allowed"`
	Refused int64 `json:"refused"`
	Cost    int64 `json:"cost"` // what the requests took
	Low     int64 `json:"low"`  // the least that remained, or Unknown
}

// Timeline is what is known of a key.
type Timeline struct {
	Since   int64    `json:"since"` // when it was first followed, in seconds since the Unix epoch
	Limit   int64    `json:"limit"` // the limit of the last request; 0 before the first
	Seconds []Second `json:"seconds"`
}

// Followed is a key that is followed.
type Followed struct {
	ID
	Since, Looked time.Time // when it was first followed, and last read
}

// Book has the keys that are followed. It is safe for concurrent use.
type Book struct {
	// index is nil while no key is followed: all that a request pays then.
	index atomic.Pointer[map[string][]*line]

	mu    sync.Mutex // guards lines
	lines []*line
}

// New returns a Book without keys.
func New() *Book { return new(Book) }

// line is the timeline of one key.
type line struct {
	id     ID
	since  time.Time
	looked atomic.Int64 // when it was last read, in microseconds

	mu     sync.Mutex // held for a few nanoseconds per request
	latest int64      // the newest second
	limit  int64
	slots  [Spans]slot
}

// slot is a second; low counts only if there was a request.
type slot struct {
	allowed, refused uint32
	cost, low        int64
}

// Follows reports whether any key is followed.
func (b *Book) Follows() bool { return b.index.Load() != nil }

// Add adds a request to the timeline of its key, if the key is followed. Follows
// should be asked first. It allocates nothing.
func (b *Book) Add(scope, key string, s *Sample) {
	index := b.index.Load()
	if index == nil {
		return
	}
	for _, l := range (*index)[key] {
		if l.id.Scope != scope {
			continue
		}
		if l.add(s); s.At-l.looked.Load() > Lasts.Microseconds() {
			b.Stop(l.id)
		}
		return
	}
}

// add adds a request. One that is older than the hour is left out.
func (l *line) add(s *Sample) {
	second := s.At / 1e6
	l.mu.Lock()
	defer l.mu.Unlock()
	if second > l.latest {
		for i := max(l.latest+1, second-Spans+1); i <= second; i++ {
			l.slots[i%Spans] = slot{}
		}
		l.latest = second
	}
	if second <= l.latest-Spans || second < 0 {
		return
	}
	at := &l.slots[second%Spans]
	if at.allowed+at.refused == 0 || at.low == Unknown || s.Remaining != Unknown && s.Remaining < at.low {
		at.low = s.Remaining
	}
	if l.limit = s.Limit; s.Refused {
		at.refused++
	} else {
		at.allowed++
	}
	at.cost += s.Cost
}

// Follow starts to follow a key. It reports false if the key is followed already. If
// there is no room, the key that nobody has looked at for the longest time gives way,
// after an hour; otherwise the error is ErrFull.
func (b *Book) Follow(id ID, now time.Time) (started bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forget(now)
	if l := b.find(id); l != nil {
		l.looked.Store(now.UnixMicro())
		return false, nil
	}
	if len(id.Key) > maxKey {
		return false, errLongKey
	}
	if len(b.lines) >= Most {
		oldest := slices.MinFunc(b.lines, func(x, y *line) int { return int(x.looked.Load()/1e6 - y.looked.Load()/1e6) })
		if now.Sub(time.UnixMicro(oldest.looked.Load())) < Yields {
			return false, ErrFull
		}
		b.remove(oldest)
	}
	l := &line{id: ID{strings.Clone(id.Scope), strings.Clone(id.Key)}, since: now}
	l.looked.Store(now.UnixMicro())
	b.lines = append(b.lines, l)
	b.publish()
	return true, nil
}

// Stop ends following a key. It reports false if the key is not followed.
func (b *Book) Stop(id ID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.find(id)
	if l != nil {
		b.remove(l)
		b.publish()
	}
	return l != nil
}

// forget stops following keys that nobody has looked at for too long: requests do so too,
// but a key may have none.
func (b *Book) forget(now time.Time) {
	before := len(b.lines)
	b.lines = slices.DeleteFunc(b.lines, func(l *line) bool { return now.UnixMicro()-l.looked.Load() > Lasts.Microseconds() })
	if len(b.lines) < before {
		b.publish()
	}
}

// forget, find, remove and publish need b.mu to be held.
func (b *Book) find(id ID) *line {
	if i := slices.IndexFunc(b.lines, func(l *line) bool { return l.id == id }); i >= 0 {
		return b.lines[i]
	}
	return nil
}

func (b *Book) remove(l *line) {
	b.lines = slices.DeleteFunc(b.lines, func(other *line) bool { return other == l })
}

// publish makes the lines visible to requests.
func (b *Book) publish() {
	if len(b.lines) == 0 {
		b.index.Store(nil)
		return
	}
	index := make(map[string][]*line, len(b.lines))
	for _, l := range b.lines {
		index[l.id.Key] = append(index[l.id.Key], l)
	}
	b.index.Store(&index)
}

// Read returns the timeline of a key at a time: the seconds in which there were
// requests, from the given second on, oldest first. It reports false if the key is not
// followed.
func (b *Book) Read(id ID, from int64, now time.Time) (Timeline, bool) {
	b.mu.Lock()
	b.forget(now)
	l := b.find(id)
	b.mu.Unlock()
	if l == nil {
		return Timeline{}, false
	}
	l.looked.Store(now.UnixMicro())
	l.mu.Lock()
	defer l.mu.Unlock()
	t := Timeline{Since: l.since.Unix(), Limit: l.limit, Seconds: []Second{}}
	first := max(from, l.latest-Spans+1, now.Unix()-Spans+1, 0)
	for i := first; i <= l.latest; i++ {
		if s := &l.slots[i%Spans]; s.allowed+s.refused > 0 {
			t.Seconds = append(t.Seconds, Second{i, int64(s.allowed), int64(s.refused), s.cost, s.low})
		}
	}
	return t, true
}

// List returns the keys that are followed at a time, oldest first.
func (b *Book) List(now time.Time) []Followed {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forget(now)
	var list []Followed
	for _, l := range b.lines {
		list = append(list, Followed{l.id, l.since, time.UnixMicro(l.looked.Load())})
	}
	return list
}
