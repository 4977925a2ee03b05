package failsafe

import (
	"context"
	"slices"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

var _ store.Pipeliner = (*Store)(nil)

// Pipeline implements store.Pipeliner. What the deny cache does not answer counts as
// one call for the breaker, with one Timeout.
func (s *Store) Pipeline(ctx context.Context, ops []headgate.Op, out []headgate.Decision, groups []store.Group) {
	if s.flaw != nil {
		failAll(groups, s.flaw)
		return
	}
	clock, start := s.now()
	p := s.pick(ops, out, groups, start)
	if len(p.groups) == 0 {
		return
	}
	t, ok := s.breaker.admit(start)
	if !ok {
		s.breaker.failedFast.Add(uint64(len(p.groups) - 1)) // admit has counted one
		failAll(p.groups, s.breaker.refusal())
		p.hand(groups)
		return
	}
	bounded, own := s.slots.context(ctx, start, clock)
	if s.enter(t, start) {
		s.ownPipeline(bounded, p)
	} else {
		s.isolatedPipeline(bounded, p)
	}
	s.inFlight.Add(-1)
	s.settleAll(t, asked{bounded, start, own}, p.groups)
	p.learn(s.denied, start)
	p.hand(groups)
}

// picked holds the groups that are sent to the inner store.
type picked struct {
	ops    []headgate.Op
	out    []headgate.Decision
	groups []store.Group
	from   []origin // of each group
}

// origin is the source of a group.
type origin struct {
	group int
	out   []headgate.Decision // the caller's
	known []place             // for its ops, if the deny cache looks at it
}

// pick answers invalid and cached groups, and returns the rest.
func (s *Store) pick(ops []headgate.Op, out []headgate.Decision, groups []store.Group, now int64) *picked {
	p := &picked{ops: make([]headgate.Op, 0, len(ops)), groups: make([]store.Group, 0, len(groups)), from: make([]origin, 0, len(groups))}
	asks := slices.ContainsFunc(ops, func(op headgate.Op) bool { return gives(&op) }) // this may end an earlier refusal
	for i := range groups {
		g := &groups[i]
		o := origin{group: i, out: out[:g.Ops]}
		mine := ops[:g.Ops]
		ops, out = ops[g.Ops:], out[g.Ops:]
		if g.Err = checkAll(mine); g.Err != nil {
			continue
		}
		if s.denied != nil && g.Ops <= maxCachedOps {
			o.known = make([]place, g.Ops)
			if s.denied.answer(o.known, mine, o.out, g.Mode, now) && !asks {
				continue
			}
		}
		p.ops, p.groups, p.from = append(p.ops, mine...), append(p.groups, *g), append(p.from, o)
	}
	p.out = make([]headgate.Decision, len(p.ops))
	return p
}

// hand copies the answers to the caller.
func (p *picked) hand(groups []store.Group) {
	out := p.out
	for i, o := range p.from {
		groups[o.group].Err = p.groups[i].Err
		out = out[copy(o.out, out[:len(o.out)]):]
	}
}

// learn passes the answers to the deny cache, in order.
func (p *picked) learn(d *denied, start int64) {
	if d == nil {
		return
	}
	ops, out := p.ops, p.out
	for i, o := range p.from {
		g, n := &p.groups[i], len(o.out)
		d.learnAll(o.known, ops[:n], out[:n], g.Err, start)
		if g.Err == nil && g.Mode == headgate.AllOrNothing {
			d.learnPassed(o.known, ops[:n], out[:n], start)
		}
		ops, out = ops[n:], out[n:]
	}
}

// ownPipeline calls the store on the caller's goroutine. After a panic it is unknown
// which groups have answers.
func (s *Store) ownPipeline(ctx context.Context, p *picked) {
	var err error
	defer func() {
		if err != nil {
			failAll(p.groups, err)
		}
	}()
	defer recovered(&err)
	store.Pipeline(ctx, s.inner, p.ops, p.out, p.groups)
}

// isolatedPipeline calls the store in its own goroutine. The inner store gets slightly
// less time than its caller, who would otherwise leave without the answers that did
// arrive.
func (s *Store) isolatedPipeline(ctx context.Context, p *picked) {
	groups := slices.Clone(p.groups)
	err := s.isolate(ctx, p.ops, p.out, func(ctx context.Context, ops []headgate.Op, out []headgate.Decision) error {
		if d, ok := ctx.Deadline(); ok {
			earlier, cancel := context.WithDeadline(ctx, d.Add(-s.options.Timeout/slotsPerTimeout))
			defer cancel()
			ctx = earlier
		}
		store.Pipeline(ctx, s.inner, ops, out, groups)
		return nil
	})
	if err != nil {
		failAll(p.groups, err)
		return
	}
	p.groups = groups
}

func failAll(groups []store.Group, err error) {
	for i := range groups {
		groups[i].Err = err
	}
}

// settleAll is settle for many groups: one answer is enough to show that the store is
// alive.
func (s *Store) settleAll(t ticket, a asked, groups []store.Group) {
	clock, now := s.now()
	said, why := silent, error(nil)
	for i := range groups {
		o := succeeded
		if groups[i].Err != nil {
			o, groups[i].Err = s.judge(a, groups[i].Err, clock, now)
		}
		switch {
		case o == succeeded:
			said = o
		case said == silent, said == starved && o == failed:
			said, why = o, groups[i].Err
		}
	}
	s.breaker.done(t, said, why, now)
}

// checkAll is check for many.
func checkAll(ops []headgate.Op) error {
	for i := range ops {
		if err := ops[i].Validate(); err != nil {
			return err
		}
	}
	return nil
}
