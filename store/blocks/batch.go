package blocks

import (
	"context"

	"github.com/headgate/headgate/store"
)

// held is a part of a call that this process holds tokens for.
type held struct {
	index int
	cost  int64
	line  *line
	block *block
}

const fewOps = 8 // calls with so many ops need no memory if all are decided here

// takeGroup executes the only group of a batch.
func (s *Store) takeGroup(ctx context.Context, b *store.Batch) {
	for i := range b.Ops {
		if b.Ops[i].Kind == store.KindReset {
			defer s.drop(&b.Ops[i])
			s.drop(&b.Ops[i])
		}
	}
	var few [fewOps]held
	holds := few[:0]
	if divisible(b.Ops) {
		holds = s.hold(b.Ops, b.Out, holds)
	}
	switch g := &b.Groups[0]; len(holds) {
	case 0:
		s.inner.Do(ctx, b)
	case len(b.Ops):
		g.Err = nil
	default:
		g.Err = s.doRest(ctx, b.Ops, b.Out, g.Mode, holds)
	}
}

// divisible reports whether ops can be divided: all only take or peek, and some in
// blocks.
func divisible(ops []store.Op) bool {
	some := false
	for i := range ops {
		op := &ops[i]
		if op.Kind != store.KindTake && op.Kind != store.KindPeek || op.Cost < 0 || !op.Rule.Valid() {
			return false
		}
		some = some || op.Rule.Age > 0
	}
	return some
}

// hold takes here what it can, and writes the answers to out.
func (s *Store) hold(ops []store.Op, out []store.Decision, holds []held) []held {
	now := s.now()
	for i := range ops {
		op := &ops[i]
		if op.Rule.Age == 0 || op.Leave > 0 || op.Share != nil || op.Kind != store.KindTake || op.Cost == 0 || op.Cost > op.Rule.Most() {
			continue
		}
		hash := s.table.hash(op)
		l := s.table.find(hash, op)
		if l == nil {
			if l = s.lineFor(op, hash, now); l == nil {
				continue
			}
		}
		if b := l.hold(now, op.Cost, &out[i]); b != nil {
			holds = append(holds, held{i, op.Cost, l, b})
		} else if l.asked.CompareAndSwap(false, true) {
			s.drawAhead(l, now) // for the next request
			continue
		}
		if l.wants(now) {
			s.drawAhead(l, now)
		}
	}
	return holds
}

// hold takes cost from what the process holds, writes the decision, and returns the block
// that it took it from, or nil.
func (l *line) hold(now, cost int64, d *store.Decision) *block {
	for range 2 {
		if b := l.current.Load(); b != nil {
			if left := b.take(now, cost); left >= 0 {
				l.answer(b, now, cost, left, d)
				return b
			}
		}
		if l.advance(now) == nil {
			return nil
		}
	}
	return nil
}

// refundTo returns what was held of b.
func (l *line) refundTo(b *block, n int64) {
	if !b.refund(n) {
		l.lose(b, n)
	}
}

// lose counts tokens of b as expired that counted as admitted.
func (l *line) lose(b *block, n int64) {
	l.counters.admitted.Add(-n)
	l.counters.expired.Add(n)
	l.counters.stuck.add(l, n, b.began, b.over(l.rule))
}

// doRest sends the ops that are not held to the inner store.
func (s *Store) doRest(ctx context.Context, ops []store.Op, out []store.Decision, mode store.Mode, holds []held) error {
	rest := make([]store.Op, 0, len(ops))
	at := make([]int, 0, len(ops))
	next := 0
	for i := range ops {
		if next < len(holds) && holds[next].index == i {
			next++
			continue
		}
		rest, at = append(rest, ops[i]), append(at, i)
	}
	answers := make([]store.Decision, len(rest))
	err := store.ExecuteAll(ctx, s.inner, rest, answers, mode)
	refused := err != nil
	for i, a := range answers {
		out[at[i]] = a
		refused = refused || mode == store.AllOrNothing && !a.Allowed
	}
	if refused {
		refundAll(holds, out)
		return err
	}
	now, over := s.now(), false
	for _, h := range holds {
		over = over || now >= h.block.deadline
	}
	if !over {
		return nil
	}
	// Too late for what was held. The store decides everything.
	refundAll(holds, out)
	if mode == store.AllOrNothing {
		s.refundDraw(ctx, rest, answers)
		return store.ExecuteAll(ctx, s.inner, ops, out, mode)
	}
	again, replies := make([]store.Op, len(holds)), make([]store.Decision, len(holds))
	for i, h := range holds {
		again[i] = ops[h.index]
	}
	if err := store.ExecuteAll(ctx, s.inner, again, replies, mode); err != nil {
		return err
	}
	for i, h := range holds {
		out[h.index] = replies[i]
	}
	return nil
}

// refundAll returns what was held, and changes the answers to those of a peek.
func refundAll(holds []held, out []store.Decision) {
	for _, h := range holds {
		h.line.refundTo(h.block, h.cost)
		d := &out[h.index]
		d.Remaining, d.Granted, d.CountsUntil = d.Remaining+d.Granted, 0, 0
	}
}

// takeGroups executes the groups of a batch.
func (s *Store) takeGroups(ctx context.Context, b *store.Batch) {
	var rest store.Batch
	var to, from []int // where the answers go, and which groups are asked
	start := 0
	for i := range b.Groups {
		end := start + b.Groups[i].Ops
		if s.decide(b.Ops[start:end], b.Out[start:end]) {
			b.Groups[i].Err = nil
		} else {
			for j := start; j < end; j++ {
				rest.Ops, to = append(rest.Ops, b.Ops[j]), append(to, j)
			}
			rest.Groups, from = append(rest.Groups, b.Groups[i]), append(from, i)
		}
		start = end
	}
	if len(from) == 0 {
		return
	}
	rest.Out = make([]store.Decision, len(rest.Ops))
	s.inner.Do(ctx, &rest)
	for i, at := range to {
		b.Out[at] = rest.Out[i]
	}
	for i, at := range from {
		b.Groups[at].Err = rest.Groups[i].Err
	}
	for i := range rest.Ops {
		if rest.Ops[i].Kind == store.KindReset {
			s.drop(&rest.Ops[i])
		}
	}
}

// decide answers a group if this process holds enough for all of it.
func (s *Store) decide(ops []store.Op, out []store.Decision) bool {
	if !divisible(ops) {
		return false
	}
	var few [fewOps]held
	holds := s.hold(ops, out, few[:0])
	if len(holds) == len(ops) {
		return true
	}
	refundAll(holds, out)
	return false
}
