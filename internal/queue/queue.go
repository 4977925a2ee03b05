package queue

import (
	"container/heap"
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Permit is the decision whether one entry may be sent.
type Permit struct {
	// Allowed reports whether it may be sent now. If not, RetryAfter is the time until it may,
	// negative if never.
	Allowed    bool
	RetryAfter time.Duration
	// Delay is how long an allowed entry must wait for its turn. Enter, if not nil, then takes
	// what it holds only while it is in flight, and returns false if that is not available.
	Delay time.Duration
	Enter func() bool
	// Exception says which exception of an operator refused, such as "its key is banned". It ends
	// after RetryAfter, and the entry waits for that unless it expires before. Empty if it was none.
	Exception string
	// Own reports that the line's own limit refused. Otherwise By is the limit and key that
	// did, and Owner if it was that owner's share: the line's entries with that claim wait for
	// RetryAfter, and the others continue.
	Own bool
	By  Claim
	// Counts reports that the limit counts what it refuses, so it must not be asked early.
	Counts bool
	// Undo refunds an entry that was not sent. Settle charges the final cost of one that was,
	// by its result. Done releases what is held while the request is in flight. Each may be
	// nil.
	Undo, Done func()
	Settle     func(Answer, error)
}

// Answer is the backend's answer to one attempt.
type Answer struct {
	Status      int
	ContentType string
	Body        []byte
	Cut         bool
	RetryAfter  time.Duration // the backend's Retry-After; 0 if none
	// Response is the whole answer, with its body read as far as needed; Ended reports that
	// this was to the end.
	Response *http.Response
	Ended    bool
}

// Options configure a Queue.
type Options struct {
	Store Store // keeps the entries; the Queue closes it. Required.
	// Take charges all limits of an entry, or none. After an error the entry waits. Required.
	Take func(ctx context.Context, r *Ref, at time.Time) (Permit, error)
	// Send sends an entry and returns at most keep bytes of the answer's body. Required.
	Send   func(ctx context.Context, e *Entry, keep int64) (Answer, error)
	Policy func(domain, rule string) Policy // returns the policy of a rule. Required.
	Clock  func() time.Time                 // returns the current time. Required.
	Random func(n int64) int64              // returns a number in [0, n). Required.
	Logger *slog.Logger                     // logs dead letters. Required.
	// MaxInFlight is how many entries may be in flight; 0 means 256. One limit gets at most
	// half of them and one of its keys a third, less if others have many.
	MaxInFlight int
}

const (
	defaultInFlight = 256
	maxResting      = 4096            // attempts that may wait for their turn without a slot
	sweepEvery      = 5 * time.Second // interval of looking for expired entries
	storeRetry      = time.Second     // wait after an error of a limit or the store
	untoldTime      = 5 * time.Second // after that, others pass an entry whose sender was not told
	toldTime        = 4 * time.Second // in which a store that answers again is told of all senders that were
	farAway         = time.Hour       // longer than any wait
	// A line asks its limit again after this time, and soon if a request joins it.
	lookAgain = time.Minute
	soon      = time.Second
)

// Queue accepts entries and delivers them. Make one with [New].
type Queue struct {
	Entries // the store's
	options Options
	counts  counts
	secret  secret

	ctx  context.Context //nolint:containedctx // of everything in flight; Close ends it
	cut  context.CancelFunc
	stop chan struct{} // closed when nothing new may be sent
	once sync.Once
	wake chan struct{}
	work sync.WaitGroup // attempts
	runs sync.WaitGroup // the store's loop and this one's

	mu       sync.Mutex
	lanes    map[Line]*line
	groups   map[string]*group // by their scope
	inFlight int               // slots taken
	resting  int
	looks    uint64 // calls of LookAgain
	stopping bool
}

// group is the lines of one limit.
type group struct {
	lanes     int
	due       dueLanes
	places    int         // slots taken
	returning []returning // in order of their turns
}

// returning is an attempt whose turn has come and that needs a slot again.
type returning struct {
	lane  *line
	ready chan struct{} // closed when it has one
}

// New returns a Queue. It sends nothing until Start.
func New(o Options) *Queue {
	if o.MaxInFlight <= 0 {
		o.MaxInFlight = defaultInFlight
	}
	q := &Queue{Entries: o.Store, options: o, lanes: map[Line]*line{}, groups: map[string]*group{}, wake: make(chan struct{}, 1), stop: make(chan struct{})}
	q.ctx, q.cut = context.WithCancel(context.Background())
	return q
}

// Start starts sending.
func (q *Queue) Start() {
	q.runs.Go(func() { q.options.Store.Run(q.ctx, (*sink)(q)) })
	q.runs.Go(q.loop)
}

// Drain stops sending new entries; those in flight continue.
func (q *Queue) Drain() {
	q.once.Do(func() {
		q.mu.Lock()
		q.stopping = true
		q.mu.Unlock()
		close(q.stop)
	})
}

// Close drains, waits for entries in flight until ctx is done, cancels the rest, and closes
// the store. Cancelled entries are sent again later.
func (q *Queue) Close(ctx context.Context) error {
	q.Drain()
	finished := make(chan struct{})
	go func() {
		q.work.Wait()
		close(finished)
	}()
	select {
	case <-finished:
	case <-ctx.Done():
	}
	q.cut()
	<-finished
	q.runs.Wait()
	return q.options.Store.Close()
}

// Accept saves e. After an error it is not saved; see [Store.Put].
func (q *Queue) Accept(ctx context.Context, e *Entry) (Receipt, error) {
	p := q.options.Policy(e.Domain, e.Rule)
	receipt, err := q.options.Store.Put(ctx, e, &p)
	c := q.counts.of(e.Domain, e.Rule)
	switch {
	case err == nil && receipt.Again:
		c.repeated.Add(1)
	case err == nil:
		c.accepted.Add(1)
	case errors.Is(err, ErrFull):
		c.full.Add(1)
	default:
		c.errors.Add(1)
	}
	return receipt, err
}

// Policy returns the policy of a rule.
func (q *Queue) Policy(domain, rule string) Policy { return q.options.Policy(domain, rule) }

// Waiting reports whether a line has pending entries, so that a new request must join them.
// After an error nobody knows, and it should join them too.
func (q *Queue) Waiting(ctx context.Context, lane Line) (bool, error) {
	return q.options.Store.Waiting(ctx, lane)
}

// Retry makes dead letters pending again and returns the ids it found.
func (q *Queue) Retry(ctx context.Context, ids []string) ([]string, error) {
	return q.options.Store.Retry(ctx, ids, q.options.Clock(), func(domain, rule string) time.Duration {
		return q.options.Policy(domain, rule).TTL
	})
}

// LookAgain asks the limits of these keys again at once, for the lines that wait for them: they
// may be free earlier than they said. One that counts what it refuses is not asked.
func (q *Queue) LookAgain(concerns func(key string) bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.looks++
	for _, l := range q.lanes {
		l.lookAgain(concerns, q.options.Clock())
		q.reschedule(l)
	}
}

// sink is the Queue as its Store sees it.
type sink Queue

// Add implements [Sink].
func (s *sink) Add(r Ref, a Attempts) {
	q := (*Queue)(s)
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.lanes[r.Line]
	if l == nil {
		g := q.groups[r.Line.Scope]
		if g == nil {
			g = new(group)
			q.groups[r.Line.Scope] = g
		}
		g.lanes++
		l = &line{key: r.Line, group: g, place: -1}
		q.lanes[r.Line] = l
	}
	l.insert(&item{ref: r, attempts: a})
	if now := q.options.Clock(); l.gate.After(now) && now.Sub(l.refusedAt) >= soon {
		l.gate, l.early = now, true
	}
	q.reschedule(l)
}

// Remove implements [Sink].
func (s *sink) Remove(r Ref) {
	s.removeIf(func(other *Ref) bool { return other.ID == r.ID }, r.Line)
}

// Forget implements [Sink].
func (s *sink) Forget(partition string) {
	s.mu.Lock()
	lanes := slices.Collect(maps.Keys(s.lanes))
	s.mu.Unlock()
	for _, id := range lanes {
		s.removeIf(func(r *Ref) bool { return r.Partition == partition }, id)
	}
}

// Busy implements [Sink].
func (s *sink) Busy(partition string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.lanes {
		if l.inFlight == 0 {
			continue
		}
		for _, it := range l.items {
			if it.busy && it.ref.Partition == partition {
				return true
			}
		}
	}
	return false
}

// Count implements [Sink].
func (s *sink) Count(partition string) (n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.lanes {
		for _, it := range l.items {
			if it.ref.Partition == partition {
				n++
			}
		}
	}
	return n
}

// removeIf takes entries out of a line. Those in flight go when their attempt ends.
func (s *sink) removeIf(matches func(*Ref) bool, id Line) {
	q := (*Queue)(s)
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.lanes[id]
	if l == nil {
		return
	}
	kept := l.items[:0]
	for _, it := range l.items {
		switch {
		case !matches(&it.ref):
			kept = append(kept, it)
		case it.busy:
			it.gone = true
			kept = append(kept, it)
		}
	}
	clear(l.items[len(kept):])
	l.items = kept
	q.reschedule(l)
}

// reschedule updates the position of l in its heap. The caller holds mu.
func (q *Queue) reschedule(l *line) {
	if len(l.items) == 0 && l.inFlight == 0 {
		l.group.due.drop(l)
		delete(q.lanes, l.key)
		if l.group.lanes--; l.group.lanes == 0 {
			delete(q.groups, l.key.Scope)
		}
		return
	}
	var it *item
	var at time.Time
	if len(l.items) > 0 {
		first := &l.items[0].ref
		it, at = l.next(max(q.options.Policy(first.Domain, first.Rule).Concurrency, 1), q.options.Clock())
	}
	if it == nil {
		l.group.due.drop(l)
		return
	}
	l.group.due.put(l, at)
	if l.group.due[0] == l {
		q.nudge()
	}
}

func (q *Queue) nudge() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// loop starts attempts as they become due.
func (q *Queue) loop() {
	swept := q.options.Clock()
	for {
		now := q.options.Clock()
		if (now.Sub(swept) >= sweepEvery || now.Before(swept)) && q.sweep(now) {
			swept = now // else again when an attempt has ended
		}
		select {
		case <-time.After(min(q.begin(now), sweepEvery)): //nolint:forbidigo // a queue has to wait
		case <-q.wake:
		case <-q.stop:
			return
		}
	}
}

// begin starts all due attempts and returns the time until the next is due.
func (q *Queue) begin(now time.Time) time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	wait := farAway
	for _, g := range q.groups {
		wait = min(wait, q.beginOf(g, now))
	}
	return wait
}

// beginOf starts due attempts of g. It may take fewer slots than are free, so that some are
// left for other groups (dynamic thresholds, Choudhury and Hahne 1998). The caller holds mu.
func (q *Queue) beginOf(g *group, now time.Time) (wait time.Duration) {
	var crowded []*line
	defer func() {
		for _, l := range crowded {
			g.due.put(l, l.at)
		}
	}()
	for !q.stopping && g.places < q.free() {
		if len(g.returning) > 0 {
			first := g.returning[0]
			g.returning = g.returning[1:]
			q.enter(first.lane)
			close(first.ready)
			continue
		}
		if len(g.due) == 0 {
			break
		}
		l := g.due[0]
		if wait := l.at.Sub(now); wait > 0 {
			return wait
		}
		heap.Pop(&g.due)
		first := &l.items[0].ref
		it, at := l.next(max(q.options.Policy(first.Domain, first.Rule).Concurrency, 1), now)
		switch {
		case it == nil:
		case at.After(now):
			g.due.put(l, at)
		case 2*l.places >= q.free():
			crowded = append(crowded, l)
		default:
			q.launch(l, it)
			q.reschedule(l)
		}
	}
	return farAway
}

// free returns the number of free slots. The caller of free, enter and leave holds mu.
func (q *Queue) free() int { return q.options.MaxInFlight - q.inFlight }

// enter takes a slot.
func (q *Queue) enter(l *line) {
	l.places++
	l.group.places++
	q.inFlight++
}

// leave returns a slot.
func (q *Queue) leave(l *line) {
	l.places--
	l.group.places--
	q.inFlight--
}

// launch starts an attempt. The caller holds mu.
func (q *Queue) launch(l *line, it *item) {
	it.busy, it.asking, it.looks = true, true, q.looks
	l.inFlight++
	l.asking++
	q.enter(l)
	q.work.Go(func() { q.attempt(l, it) })
}

// sweep starts attempts for expired entries that are behind others. It uses at most half of
// the free slots, and reports whether those were enough.
func (q *Queue) sweep(now time.Time) (all bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.stopping {
		return true
	}
	places := (q.free() + 1) / 2
	all = true
	for _, l := range q.lanes {
		for _, it := range l.items {
			switch {
			case it.busy || now.Before(it.ref.Expires):
			case places == 0:
				all = false
			default:
				places--
				q.launch(l, it)
			}
		}
		q.reschedule(l)
	}
	return all
}
