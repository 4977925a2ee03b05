package blocks

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/base/fastclock"
	"github.com/headgate/headgate/internal/base/steady"
	"github.com/headgate/headgate/store"
)

// Store is a store.Store that decides limits in blocks in this process and everything
// else in the store it wraps. It is safe for concurrent use. Create it with [New].
type Store struct {
	inner    counted
	flaw     error // of inner, which is then not called
	options  Options
	clock    fastclock.Clock
	table    *table
	counters registry

	mu       sync.RWMutex // held while something is started
	closed   bool
	ended    chan struct{}  // closed when all blocks were given back
	inFlight sync.WaitGroup // draws
	sweeping atomic.Bool
	stop     chan struct{}
	sweeper  sync.WaitGroup
}

var _ store.Store = (*Store)(nil)

// New returns a Store that calls inner and owns it: Close closes both. inner must use a
// clock of its own, as shared stores do, and should limit how long a call takes, as
// package failsafe does. If inner is nil or a nil pointer, every call returns
// store.ErrNoStore, and headgate.Limiter.Validate
// reports it at once.
func New(inner store.Store, options Options) *Store {
	o := options.withDefaults()
	s := &Store{options: o, table: newTable(o.Keys), stop: make(chan struct{}), ended: make(chan struct{})}
	s.counters.all = make(map[registered]*counters)
	s.inner = counted{inner, &s.counters}
	s.clock.Start(steady.System{})
	s.flaw = headgate.New(inner).Validate()
	return s
}

// now returns the time in microseconds. It never goes back, and includes sleep of the
// machine.
func (s *Store) now() int64 { return s.clock.Now() }

// Do implements store.Store. For a limit in blocks, a refusal may be a little early
// in time: a block that another process gives back can let the request pass earlier than
// RetryAfter says. Remaining is what this process holds plus what the store had left at
// the last draw.
//
// Of one group, what this process holds is taken here, and the rest in one call to the
// inner store; if that refuses with AllOrNothing, what was taken here is put back. Of
// several groups, one is decided here if all of it can be, otherwise by the inner store,
// which then is called anyway.
func (s *Store) Do(ctx context.Context, b *store.Batch) {
	switch {
	case s.flaw != nil:
		b.Fail(s.flaw)
	case store.Single(b) && b.Ops[0].Rule.Age > 0 && b.Ops[0].Kind != store.KindTimes:
		b.Out[0], b.Groups[0].Err = s.take(ctx, b.Ops[0])
	case len(b.Groups) == 1:
		s.takeGroup(ctx, b)
	default:
		s.takeGroups(ctx, b)
	}
}

// take executes one op of a limit in blocks.
func (s *Store) take(ctx context.Context, op store.Op) (store.Decision, error) {
	if op.Kind == store.KindTake && op.Cost > 0 && op.Leave == 0 && op.Share == nil {
		hash := s.table.hash(&op)
		l, now := s.table.find(hash, &op), s.now()
		if l != nil {
			var d store.Decision
			if l.spend(now, op.Cost, &d) {
				if l.wants(now) {
					s.drawAhead(l, now)
				}
				return d, nil
			}
		}
		return s.takeSlow(ctx, op, l, hash, now)
	}
	return s.takeOther(ctx, op)
}

// takeOther executes ops of other kinds.
func (s *Store) takeOther(ctx context.Context, op store.Op) (store.Decision, error) {
	if op.Cost > 0 && op.Cost <= op.Rule.Most() && op.Leave == 0 && op.Share == nil { // what must be left, and shares, are in the store
		l := s.table.find(s.table.hash(&op), &op)
		switch {
		case l == nil:
		case op.Kind == store.KindPeek:
			return s.peek(ctx, l, op)
		case op.Kind == store.KindTakeUpTo:
			return s.takeUpTo(ctx, l, op)
		}
	}
	if op.Kind == store.KindReset {
		defer s.drop(&op)
		s.drop(&op)
	}
	return store.Execute(ctx, s.inner, op)
}

// drop ends the blocks of a key that is reset.
func (s *Store) drop(op *store.Op) {
	now := s.now()
	s.table.of(op, func(l *line) { l.drop(now) })
}

// Forget ends the blocks of op's key in its scope, under whatever limit, without giving
// them back. Call it when another process has reset the key: what was drawn before would
// come on top of its new budget.
func (s *Store) Forget(op store.Op) { s.drop(&op) }

// attempts is how many draws a request waits for before it asks the store itself: one that
// may have begun before it came, and one that asks for what it needs too.
const attempts = 2

// takeSlow takes where this process holds too little.
func (s *Store) takeSlow(ctx context.Context, op store.Op, l *line, hash uint64, now int64) (store.Decision, error) {
	if op.Cost > op.Rule.Most() {
		return store.Execute(ctx, s.inner, op)
	}
	if l == nil {
		if l = s.lineFor(&op, hash, now); l == nil {
			return store.Execute(ctx, s.inner, op)
		}
	}
	l.waiting.Add(op.Cost)
	defer l.waiting.Add(-op.Cost)
	var promised int64 // of the last draw, to requests that had waited before it began
	for n := range attempts {
		var refusal store.Decision
		if l.refuse(now, &refusal) {
			l.counters.rested.Add(1)
			return refusal, nil
		}
		d, mine := l.begin(now, op.Cost, promised)
		if mine {
			s.send(l, d)
		}
		if d != nil {
			select {
			case <-d.done:
			case <-deadlineOf(ctx):
				return store.Decision{}, fmt.Errorf("blocks: %w: %w", store.ErrUnavailable, ctx.Err())
			}
			if d.err != nil {
				return store.Decision{}, d.err
			}
			if d.answer.Granted == 0 {
				if op.Cost == 1 && d.answer.Remaining == 0 && d.answer.RetryAfter > 0 {
					return d.answer, nil
				}
				break // there may be credit, or less may be left than the cost
			}
		}
		now = s.now()
		late := d != nil && n == 0 && !mine // d had begun
		if late {
			if promised = d.promised.Load(); l.current.Load().has(now) < op.Cost+promised {
				continue
			}
		}
		var answer store.Decision
		spent := l.spend(now, op.Cost, &answer)
		if d != nil && !late {
			d.promised.Add(-op.Cost)
		}
		if spent {
			return answer, nil
		}
	}
	return s.takeRest(ctx, l, op)
}

// deadlineOf returns what ends at a deadline of ctx. That the client has hung up does not
// end a call: it would pass by the failure policy.
func deadlineOf(ctx context.Context) <-chan struct{} {
	if _, ok := ctx.Deadline(); ok {
		return ctx.Done()
	}
	return nil
}

// lineFor returns the line of a key that has become busy, or nil.
func (s *Store) lineFor(op *store.Op, hash uint64, now int64) *line {
	beat := beatOf(op.Rule)
	n := s.table.warm(hash, uint64(now/beat))
	if n < hotAfter {
		return nil
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return nil
	}
	l := s.table.add(hash, op, func() *line {
		l := newLine(op, hash, s.counters.forLine(op))
		l.due = now + beat
		return l
	})
	if l != nil && s.sweeping.CompareAndSwap(false, true) {
		s.sweeper.Go(s.sweep)
	}
	return l
}

// takeRest takes what this process holds and the rest from the store, or nothing.
func (s *Store) takeRest(ctx context.Context, l *line, op store.Op) (store.Decision, error) {
	b := l.current.Load()
	held := int64(0)
	if b != nil {
		held = b.takeUpTo(s.now(), op.Cost-1)
	}
	if held == 0 {
		return store.Execute(ctx, s.inner, op)
	}
	rest := op
	rest.Cost -= held
	d, err := store.Execute(ctx, s.inner, rest)
	if err != nil || !d.Allowed {
		if l.refundTo(b, held); err == nil {
			d.Remaining += held
		}
		return d, err
	}
	if s.now() < b.deadline {
		d.Granted = op.Cost
		return d, nil
	}
	// Too late for what was held: take that from the store as well.
	l.lose(b, held)
	more := op
	more.Cost = held
	again, err := store.Execute(ctx, s.inner, more)
	if err == nil && again.Allowed {
		again.Granted = op.Cost
		return again, nil
	}
	s.refundDraw(ctx, []store.Op{rest}, []store.Decision{d})
	return again, err
}

// takeUpTo takes what this process holds, and as much more as the store has.
func (s *Store) takeUpTo(ctx context.Context, l *line, op store.Op) (store.Decision, error) {
	b, now := l.current.Load(), s.now()
	held := int64(0)
	if b != nil {
		held = b.takeUpTo(now, op.Cost)
	}
	var d store.Decision
	if held < op.Cost {
		rest := op
		rest.Cost -= held
		var err error
		if d, err = store.Execute(ctx, s.inner, rest); err != nil {
			if held > 0 {
				l.refundTo(b, held)
			}
			return d, err
		}
		now = s.now()
	}
	switch {
	case held == 0:
		return d, nil
	case now >= b.deadline:
		l.lose(b, held)
		return d, nil
	case d.Allowed:
		d.Granted += held
		return d, nil
	}
	l.answer(b, now, held, max(b.left.Load(), 0), &d)
	return d, nil
}

// peek answers for what this process holds and the store together.
func (s *Store) peek(ctx context.Context, l *line, op store.Op) (store.Decision, error) {
	now := s.now()
	b := l.current.Load()
	held := b.has(now)
	if held >= op.Cost {
		var d store.Decision
		l.answer(b, now, 0, held, &d)
		d.CountsUntil = 0
		return d, nil
	}
	op.Cost -= held
	d, err := store.Execute(ctx, s.inner, op)
	if err == nil {
		d.Remaining += held
	}
	return d, err
}
