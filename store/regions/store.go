package regions

import (
	"context"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// Store is a headgate.Store that decides limits of [headgate.Limit.InRegions] by this
// region's part of them. It is safe for concurrent use. Create it with [New].
type Store struct {
	inner    headgate.Store
	options  Options
	parts    parts
	demand   *demand
	asker    asker
	couriers []*courier

	stop context.CancelFunc
	loop sync.WaitGroup
}

var (
	_ headgate.Store    = (*Store)(nil)
	_ headgate.KeyTimer = (*Store)(nil)
	_ store.Pipeliner   = (*Store)(nil)
)

// New returns a Store that calls inner and owns it: Close closes both. It exchanges
// messages until it is closed.
func New(inner headgate.Store, options Options) (*Store, error) {
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

func newStore(inner headgate.Store, options Options) (*Store, error) {
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

// Take implements headgate.Store. Of a limit that regions share, Decision.Limit is the
// whole limit, and Remaining what this region has left. A refusal may be early in time:
// another region can give what lets the request pass before RetryAfter.
func (s *Store) Take(ctx context.Context, op headgate.Op) (headgate.Decision, error) {
	if !op.Limit.Rule().Shared() {
		return s.inner.Take(ctx, op)
	}
	whole := op.Limit
	op.Limit = s.parts.of(whole)
	d, err := s.inner.Take(ctx, op)
	if err == nil {
		s.decided(&op, whole, &d)
	}
	return d, err
}

// decided completes the decision on an op.
func (s *Store) decided(op *headgate.Op, whole headgate.Limit, d *headgate.Decision) {
	most := d.Limit
	d.Limit = whole.Capacity()
	switch op.Kind {
	case headgate.Take, headgate.TakeUpTo, headgate.Charge, headgate.Reserve:
		if op.Cost > 0 && (!d.Allowed || d.Remaining <= most/2) {
			s.demand.note(op, whole, d.Remaining)
		}
	case headgate.Peek, headgate.Refund, headgate.Grant, headgate.Reset, headgate.Release, headgate.Renew, headgate.Draw:
	}
}

const fewOps = 8 // calls with so many ops need no memory for them

// Do implements headgate.Store.
func (s *Store) Do(ctx context.Context, ops []headgate.Op, out []headgate.Decision, mode headgate.Mode) error {
	var few [fewOps]headgate.Op
	mine, shared := s.mine(ops, few[:0])
	if !shared || len(out) < len(ops) {
		return s.inner.Do(ctx, ops, out, mode)
	}
	err := s.inner.Do(ctx, mine, out, mode)
	if err == nil {
		s.decidedAll(mine, ops, out)
	}
	return err
}

// mine returns ops with this region's parts of their limits, and false if no limit is
// shared.
func (s *Store) mine(ops, into []headgate.Op) (mine []headgate.Op, shared bool) {
	for i := range ops {
		if ops[i].Limit.Rule().Shared() {
			shared = true
			break
		}
	}
	if !shared {
		return nil, false
	}
	mine = append(into, ops...)
	for i := range mine {
		if mine[i].Limit.Rule().Shared() {
			mine[i].Limit = s.parts.of(mine[i].Limit)
		}
	}
	return mine, true
}

func (s *Store) decidedAll(mine, ops []headgate.Op, out []headgate.Decision) {
	for i := range mine {
		if ops[i].Limit.Rule().Shared() {
			s.decided(&mine[i], ops[i].Limit, &out[i])
		}
	}
}

// Pipeline implements store.Pipeliner.
func (s *Store) Pipeline(ctx context.Context, ops []headgate.Op, out []headgate.Decision, groups []store.Group) {
	mine, shared := s.mine(ops, nil)
	if !shared {
		store.Pipeline(ctx, s.inner, ops, out, groups)
		return
	}
	store.Pipeline(ctx, s.inner, mine, out, groups)
	from := 0
	for i := range groups {
		to := from + groups[i].Ops
		if groups[i].Err == nil {
			s.decidedAll(mine[from:to], ops[from:to], out[from:to])
		}
		from = to
	}
}

// KeyTimes implements headgate.KeyTimer.
func (s *Store) KeyTimes(ctx context.Context, op headgate.Op) (headgate.KeyTimes, error) {
	return store.KeyTimes(ctx, s.inner, op)
}

// parts makes this region's parts of limits, and keeps them.
type parts struct {
	i, n int

	mu   sync.RWMutex
	made map[*headgate.Rule]headgate.Limit
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
	part = whole.Part(p.i, p.n)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.made == nil || len(p.made) >= mostParts {
		p.made = make(map[*headgate.Rule]headgate.Limit)
	}
	p.made[r] = part
	return part
}
