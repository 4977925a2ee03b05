package regions

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// Store is a store.Store that decides limits of [store.Rule.InRegions] by this
// region's part of them. It is safe for concurrent use. Create it with [New].
type Store struct {
	inner    store.Store
	options  Options
	parts    parts
	demand   *demand
	asker    asker
	couriers []*courier
	spare    sync.Pool // of *store.Batch, for ops with this region's parts of their limits

	stop context.CancelFunc
	loop sync.WaitGroup
}

var _ store.Store = (*Store)(nil)

// New returns a Store that calls inner and owns it: Close closes both. It exchanges
// messages until it is closed.
func New(inner store.Store, options Options) (*Store, error) {
	s, err := newStore(inner, options)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	s.every(ctx, s.asker.tick)
	for _, c := range s.couriers {
		s.every(ctx, c.tick)
	}
	return s, nil
}

// every calls do at every interval, in a goroutine.
func (s *Store) every(ctx context.Context, do func(context.Context)) {
	s.loop.Go(func() {
		ticker := time.NewTicker(s.options.Interval) //nolint:forbidigo // messages travel in real time
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				do(ctx)
			}
		}
	})
}

func newStore(inner store.Store, options Options) (*Store, error) {
	if err := headgate.New(inner).Validate(); err != nil {
		return nil, err
	}
	o, err := options.withDefaults(inner)
	if err != nil {
		return nil, err
	}
	s := &Store{inner: inner, options: o, demand: newDemand(o.Keys), stop: func() {}}
	s.parts.i, s.parts.n = o.parts()
	s.asker.options, s.asker.parts, s.asker.demand = &s.options, &s.parts, s.demand
	s.asker.clock = time.Now //nolint:forbidigo // how long messages take
	for _, name := range o.Others {
		s.couriers = append(s.couriers, newCourier(&s.asker, name))
	}
	return s, nil
}

// Close ends the exchange and closes the inner store.
func (s *Store) Close() error {
	s.stop()
	s.loop.Wait()
	return s.inner.Close()
}

// Do implements store.Store. Of a limit that regions share, Decision.Limit is the
// whole limit, and Remaining what this region has left. A refusal may be early in time:
// another region can give what lets the request pass before RetryAfter.
func (s *Store) Do(ctx context.Context, b *store.Batch) {
	if !slices.ContainsFunc(b.Ops, shared) {
		s.inner.Do(ctx, b)
		return
	}
	mine, _ := s.spare.Get().(*store.Batch)
	if mine == nil {
		mine = new(store.Batch)
	}
	mine.Ops, mine.Out, mine.Groups = append(mine.Ops[:0], b.Ops...), b.Out, b.Groups
	for i, op := range mine.Ops {
		if shared(op) {
			mine.Ops[i].Rule = s.parts.of(headgate.LimitOf(op.Rule)).Rule()
		}
	}
	s.inner.Do(ctx, mine)
	at := 0
	for i := range b.Groups {
		for range b.Groups[i].Ops {
			if b.Groups[i].Err == nil && shared(b.Ops[at]) {
				s.decided(&mine.Ops[at], headgate.LimitOf(b.Ops[at].Rule), &b.Out[at])
			}
			at++
		}
	}
	clear(mine.Ops)
	mine.Out, mine.Groups = nil, nil
	s.spare.Put(mine)
}

// shared reports whether this region has a part of op's limit. Times are kept under the
// whole limit.
func shared(op store.Op) bool { return op.Rule.Shared() && op.Kind != store.KindTimes }

// decided completes the decision on an op.
func (s *Store) decided(op *store.Op, whole headgate.Limit, d *store.Decision) {
	most := d.Limit
	d.Limit = whole.Burst()
	switch op.Kind {
	case store.KindTake, store.KindTakeUpTo, store.KindCharge, store.KindReserve:
		if op.Cost > 0 && (!d.Allowed || d.Remaining <= most/2) {
			s.demand.note(op, whole, d.Remaining)
		}
	case store.KindPeek, store.KindRefund, store.KindGrant, store.KindReset, store.KindRelease, store.KindRenew, store.KindDraw, store.KindTimes:
	}
}

// parts makes this region's parts of limits, and keeps them.
type parts struct {
	i, n int

	mu   sync.RWMutex
	made map[*store.Rule]headgate.Limit
}

// mostParts is how many parts are kept. A process that makes more limits makes a new one
// per request.
const mostParts = 10_000

// of returns this region's part of a limit.
func (p *parts) of(whole headgate.Limit) headgate.Limit {
	r := whole.Rule()
	p.mu.RLock()
	part, ok := p.made[r]
	p.mu.RUnlock()
	if ok {
		return part
	}
	part = headgate.LimitOf(whole.Rule().Part(p.i, p.n))
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.made == nil || len(p.made) >= mostParts {
		p.made = make(map[*store.Rule]headgate.Limit)
	}
	p.made[r] = part
	return part
}
