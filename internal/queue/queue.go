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

// Permit is leave to send one entry.
type Permit struct {
	// Allowed says whether it may be sent now, RetryAfter when it may if not;
	// negative if never.
	Allowed    bool
	RetryAfter time.Duration
	// Delay is how long an entry that may be sent has to wait for its turn. Enter,
	// if not nil, takes then what it has only while it is under way, and reports
	// false if that is not to be had.
	Delay time.Duration
	Enter func() bool
	// Why says what never lets it through, for whoever looks at the dead letter;
	// empty if that is the size of the limit.
	Why string
	// Own says that the lane's own limit refused. Otherwise By is the limit and the
	// key that did: of entries that they would refuse too, none is asked about before
	// RetryAfter, and the others of the lane go on.
	Own bool
	By  Claim
	// Undo gives back what was taken, for an entry that was not sent. Settle
	// charges what an entry has cost that was sent, by what came of it. Done ends
	// what lasts as long as the request. Each may be nil.
	Undo, Done func()
	Settle     func(Answer, error)
}

// Answer is the backend's.
type Answer struct {
	Status      int
	ContentType string
	Body        []byte
	Cut         bool
	RetryAfter  time.Duration // what a backend that is busy asks for; 0 if nothing
	// Response is the whole answer, whose body has been read as far as anybody
	// wants; Ended says that this was to its end.
	Response *http.Response
	Ended    bool
}

// Options are what a Queue needs.
type Options struct {
	Store Store // keeps the entries; Close closes it. Required.
	// Take asks all limits of an entry, all or nothing. After an error the entry
	// waits. Required.
	Take func(ctx context.Context, r *Ref, at time.Time) (Permit, error)
	// Send sends an entry, for the attempt-th time. At most keep bytes of the
	// answer's body are wanted. Required.
	Send   func(ctx context.Context, e *Entry, keep int64) (Answer, error)
	Policy func(domain, rule string) Policy // that of a rule. Required.
	Clock  func() time.Time                 // the present. Required.
	Random func(n int64) int64              // returns a number from 0 to below n. Required.
	Logger *slog.Logger                     // hears of dead letters. Required.
	// MaxInFlight is how many entries may be under way at once; 0 means 256. One
	// limit has half of them at most, one key of it a third, and less where others
	// have many.
	MaxInFlight int
}

const (
	defaultInFlight = 256
	maxResting      = 4096            // how many attempts may wait for their turn without a place
	sweepEvery      = 5 * time.Second // how often entries are looked through for those whose time is over
	storeRetry      = time.Second     // how long to wait when a limit or the store does not answer
	farAway         = time.Hour       // longer than anybody waits
)

// Queue accepts entries and delivers them. Make one with [New].
type Queue struct {
	Entries // of the store
	options Options
	counts  counts

	ctx  context.Context //nolint:containedctx // that of everything under way; Close ends it
	cut  context.CancelFunc
	stop chan struct{} // closed when nothing new is to be sent
	once sync.Once
	wake chan struct{}
	work sync.WaitGroup // attempts
	runs sync.WaitGroup // the store's and the own loop

	mu       sync.Mutex
	lanes    map[Lane]*lane
	groups   map[string]*group // by their scope
	inFlight int               // places that are taken
	resting  int
	stopping bool
}

// group are the lanes of one limit.
type group struct {
	lanes     int
	due       dueLanes
	places    int         // that it has taken
	returning []returning // in the order in which their turns came
}

// returning is an attempt whose turn has come, and that wants its place back.
type returning struct {
	lane  *lane
	ready chan struct{} // closed when it has it
}

// New returns a Queue that sends nothing until Start.
func New(o Options) *Queue {
	if o.MaxInFlight <= 0 {
		o.MaxInFlight = defaultInFlight
	}
	q := &Queue{Entries: o.Store, options: o, lanes: map[Lane]*lane{}, groups: map[string]*group{}, wake: make(chan struct{}, 1), stop: make(chan struct{})}
	q.ctx, q.cut = context.WithCancel(context.Background())
	return q
}

// Start begins to send.
func (q *Queue) Start() {
	q.runs.Go(func() { q.options.Store.Run(q.ctx, (*sink)(q)) })
	q.runs.Go(q.loop)
}

// Drain stops sending further entries; those under way go on.
func (q *Queue) Drain() {
	q.once.Do(func() {
		q.mu.Lock()
		q.stopping = true
		q.mu.Unlock()
		close(q.stop)
	})
}

// Close drains, waits until ctx is done for what is under way, calls it off
// then, and closes the store. What was called off will be sent again.
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

// Accept keeps e. After an error it has not been kept; see [Store.Put].
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

// Policy is that of a rule.
func (q *Queue) Policy(domain, rule string) Policy { return q.options.Policy(domain, rule) }

// Waiting reports whether entries of a lane are pending: a new request has to
// line up behind them. If the store does not answer, nobody knows of any.
func (q *Queue) Waiting(ctx context.Context, lane Lane) bool {
	waiting, err := q.options.Store.Waiting(ctx, lane)
	return waiting && err == nil
}

// Retry makes dead letters pending again and returns the ids that it found.
func (q *Queue) Retry(ctx context.Context, ids []string) ([]string, error) {
	return q.options.Store.Retry(ctx, ids, q.options.Clock(), func(domain, rule string) time.Duration {
		return q.options.Policy(domain, rule).TTL
	})
}

// sink is a Queue as its store sees it.
type sink Queue

// Add implements [Sink].
func (s *sink) Add(r Ref, a Attempts) {
	q := (*Queue)(s)
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.lanes[r.Lane]
	if l == nil {
		g := q.groups[r.Lane.Scope]
		if g == nil {
			g = new(group)
			q.groups[r.Lane.Scope] = g
		}
		g.lanes++
		l = &lane{id: r.Lane, group: g, place: -1}
		q.lanes[r.Lane] = l
	}
	l.insert(&item{ref: r, attempts: a})
	q.reschedule(l)
}

// Remove implements [Sink].
func (s *sink) Remove(r Ref) {
	s.removeIf(func(other *Ref) bool { return other.ID == r.ID }, r.Lane)
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

// removeIf takes entries out of a lane. Those under way are, afterwards.
func (s *sink) removeIf(matches func(*Ref) bool, id Lane) {
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

// reschedule puts l where it belongs. It needs q.mu.
func (q *Queue) reschedule(l *lane) {
	if len(l.items) == 0 && l.inFlight == 0 {
		l.group.due.drop(l)
		delete(q.lanes, l.id)
		if l.group.lanes--; l.group.lanes == 0 {
			delete(q.groups, l.id.Scope)
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

// loop begins attempts as they become due.
func (q *Queue) loop() {
	swept := q.options.Clock()
	for {
		now := q.options.Clock()
		if (now.Sub(swept) >= sweepEvery || now.Before(swept)) && q.sweep(now) {
			swept = now // else again when one of those under way has ended
		}
		select {
		case <-time.After(min(q.begin(now), sweepEvery)): //nolint:forbidigo // waiting is what a queue does
		case <-q.wake:
		case <-q.stop:
			return
		}
	}
}

// begin begins what is due and returns how long nothing else will be.
func (q *Queue) begin(now time.Time) time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	wait := farAway
	for _, g := range q.groups {
		wait = min(wait, q.beginOf(g, now))
	}
	return wait
}

// beginOf begins what is due of g, as far as it may have places: fewer than are
// free, so that there are always some for others (dynamic thresholds, Choudhury
// and Hahne 1998). The caller holds mu.
func (q *Queue) beginOf(g *group, now time.Time) (wait time.Duration) {
	var crowded []*lane
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

// free is how many places are. It needs mu, as enter and leave do.
func (q *Queue) free() int { return q.options.MaxInFlight - q.inFlight }

// enter takes a place.
func (q *Queue) enter(l *lane) {
	l.places++
	l.group.places++
	q.inFlight++
}

// leave gives one back.
func (q *Queue) leave(l *lane) {
	l.places--
	l.group.places--
	q.inFlight--
}

// launch begins an attempt at it. The caller holds mu.
func (q *Queue) launch(l *lane, it *item) {
	it.busy = true
	l.inFlight++
	q.enter(l)
	q.work.Go(func() { q.attempt(l, it) })
}

// sweep makes entries due whose time is over although others are before them. It
// leaves half of the places that are free, and reports whether that was all of them.
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
