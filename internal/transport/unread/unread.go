// Package unread ends clients that do not read their answers.
//
// A client that asks for large answers and reads none of them makes a server hold all
// that belongs to them for as long as it likes: buffers, connections to an upstream,
// slots of limits on concurrency. So each answer may wait for its client for a limited
// time, which starts again whenever the client takes something. A download may therefore
// last for hours. Answers that wait hold a limited amount of memory together: beyond it,
// and when the process runs short of memory, those that have waited longest are ended.
//
// An answer waits while bytes of it cannot be sent. One that has nothing to send, such as
// a silent event stream, does not wait.
package unread

import (
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/transport/ticks"
)

// Long is how often waiting answers are looked at, about. An answer waits from the second
// time on.
const Long = 250 * time.Millisecond

// ticksPerTimeout is how often a [ticks.Clock] ticks in its shortest timeout.
const ticksPerTimeout = 8

// An answer must have waited for soon ticks to be ended because the process is short of
// memory, and for late ticks to be ended because all answers hold too much, unless it is
// one of a crowd: its client may only be slow.
const (
	soon = 4
	late = 40
)

// Crowd is how many answers of one connection may wait before they are a crowd.
const Crowd = 16

// DefaultPause is the default of [Terms.Pause], the same as nginx's send_timeout.
const DefaultPause = time.Minute

// Terms are what applies to the answers of one door.
type Terms struct {
	Pause time.Duration // how long an answer may wait; 0 means [DefaultPause], and below 0 forever
	Cost  int64         // the memory that an answer holds while it waits, in bytes
}

// Answer is what a client has to read: the rest of an answer, or of all answers on a
// connection.
type Answer interface {
	// Waits returns how it waits for its client, and false if it does not. It must not
	// wait for anything itself.
	Waits(now int64) (Wait, bool)
	// End ends it soon. It may have been completed meanwhile, and may be called again.
	End()
	// Remote returns the address of the client.
	Remote() string
}

// Wait says how an answer waits.
type Wait struct {
	Since int64 // the tick at which the client last took something
	Terms Terms
	Crowd bool // it is one of more than [Crowd] on its connection
	Ended bool // it waits only until it has been ended
}

// Source has answers.
type Source interface {
	// Unread calls f for the answers that may wait.
	Unread(f func(Answer))
}

// Options configure a [Watch].
type Options struct {
	Most   int64        // bytes that all waiting answers may hold; required
	Short  func() bool  // reports whether the process is short of memory; may be nil
	Logger *slog.Logger // logs ended answers, at most once a minute; required
}

// Watch ends answers that wait for too long, from [Watch.Start] to [Watch.Stop]. A nil
// Watch notes and ends none.
type Watch struct {
	options Options
	clock   ticks.Clock
	ended   atomic.Int64
	said    int64 // the tick after that of the last log entry

	mu      sync.Mutex
	sources []Source

	waiting []waiting // used by tick
}

// waiting is an answer that waits.
type waiting struct {
	Wait
	answer Answer
}

// New returns a Watch that has not started.
func New(o Options) *Watch { return &Watch{options: o} }

// Start starts the watch.
func (w *Watch) Start() { w.clock.Start(w.tick, ticksPerTimeout*Long) }

// Stop ends it.
func (w *Watch) Stop() { w.clock.Stop() }

// Ended returns how many answers were ended.
func (w *Watch) Ended() int64 { return w.ended.Load() }

// Add adds a source.
func (w *Watch) Add(s Source) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sources = append(slices.Clip(w.sources), s)
}

// Now returns the current tick.
func (w *Watch) Now() int64 { return w.clock.Now() }

// tick ends answers.
func (w *Watch) tick() {
	w.mu.Lock()
	sources := w.sources
	w.mu.Unlock()
	now, list := w.Now(), w.waiting[:0]
	for _, s := range sources {
		s.Unread(func(a Answer) {
			if wait, ok := a.Waits(now); ok && now-wait.Since > 1 {
				list = append(list, waiting{wait, a})
			}
		})
	}
	slices.SortFunc(list, func(a, b waiting) int { return int(a.Since - b.Since) })
	w.end(list, now)
	clear(list)
	w.waiting = list[:0]
}

// end ends some of the answers, which are sorted: the longest waiting first.
func (w *Watch) end(list []waiting, now int64) {
	var held int64
	for i := range list {
		if list[i].counts(now) {
			held += list[i].Terms.Cost
		}
	}
	surplus := 0
	if w.options.Short != nil && w.options.Short() {
		surplus = (len(list) + 3) / 4
	}
	for i := range list {
		a := &list[i]
		why := ""
		switch waited := now - a.Since; {
		case a.Ended:
			continue
		case a.Terms.Pause >= 0 && waited >= w.clock.Of(a.Terms.pause()):
			why = "it has read nothing for " + a.Terms.pause().String()
		case held > w.options.Most && a.counts(now):
			why = "unread answers hold too much memory, and this one has waited longest"
		case i < surplus && waited >= soon:
			why = "memory is short, and this answer has waited longest"
		default:
			continue
		}
		if a.counts(now) {
			held -= a.Terms.Cost
		}
		a.answer.End()
		w.ended.Add(1)
		w.say(a.answer, why)
	}
}

// counts reports whether its memory counts: it is one of a crowd, or has waited for long.
func (a *Wait) counts(now int64) bool { return a.Crowd || now-a.Since >= late }

// pause returns how long an answer may wait.
func (t Terms) pause() time.Duration {
	if t.Pause == 0 {
		return DefaultPause
	}
	return t.Pause
}

func (w *Watch) say(a Answer, why string) {
	now := w.Now()
	if w.said > 0 && now < w.said-1+int64(time.Minute/w.clock.Interval) {
		return
	}
	w.said = now + 1
	w.options.Logger.Warn("client disconnected, as it does not read its answer (logged once a minute)", "why", why, "remote", a.Remote())
}

// Mark notes whether and since when something is being sent. The zero value notes nothing.
type Mark struct {
	since atomic.Int64 // a tick, plus one; 0 if nothing is being sent
	ended atomic.Bool
}

// Begin notes that bytes are passed on to be sent. w may be nil.
func (m *Mark) Begin(w *Watch) {
	if w != nil {
		m.since.Store(w.clock.Now() + 1)
	}
}

// Done notes that all of them have been passed on.
func (m *Mark) Done() { m.since.Store(0) }

// Moves notes that the client has taken some of the bytes that wait since a tick.
func (m *Mark) Moves(since, now int64) { m.since.CompareAndSwap(since+1, now+1) }

// Ends notes that the answer is being ended.
func (m *Mark) Ends() { m.ended.Store(true) }

// Waits returns a Wait with these terms.
func (m *Mark) Waits(t Terms) (Wait, bool) {
	since := m.since.Load()
	return Wait{Since: since - 1, Terms: t, Ended: m.ended.Load()}, since > 0
}
