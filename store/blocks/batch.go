package blocks

import (
	"context"
	"errors"

	"github.com/headgate/headgate"
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

var errShortOut = errors.New("blocks: fewer decisions than ops")

// Do implements headgate.Store. What this process holds is taken here, and the rest in
// one call to the inner store; if that refuses with AllOrNothing, what was taken here is
// put back.
func (s *Store) Do(ctx context.Context, ops []headgate.Op, out []headgate.Decision, mode headgate.Mode) error {
	if s.flaw != nil {
		return s.flaw
	}
	if len(out) < len(ops) {
		return errShortOut
	}
	for i := range ops {
		if ops[i].Kind == headgate.Reset {
			defer s.drop(&ops[i])
			s.drop(&ops[i])
		}
	}
	if !divisible(ops) {
		return s.inner.Do(ctx, ops, out, mode)
	}
	var few [fewOps]held
	holds := s.hold(ops, out, few[:0])
	if len(holds) == len(ops) {
		return nil
	}
	if len(holds) == 0 {
		return s.inner.Do(ctx, ops, out, mode)
	}
	return s.doRest(ctx, ops, out, mode, holds)
}

// divisible reports whether ops can be divided: all only take or peek, and some in
// blocks.
func divisible(ops []headgate.Op) bool {
	some := false
	for i := range ops {
		op := &ops[i]
		if op.Kind != headgate.Take && op.Kind != headgate.Peek || op.Cost < 0 || !op.Limit.Valid() {
			return false
		}
		some = some || op.Limit.Rule().Age > 0
	}
	return some
}

// hold takes here what it can, and writes the answers to out.
func (s *Store) hold(ops []headgate.Op, out []headgate.Decision, holds []held) []held {
	now := s.now()
	for i := range ops {
		op := &ops[i]
		if op.Limit.Rule().Age == 0 || op.Kind != headgate.Take || op.Cost == 0 || op.Cost > op.Limit.Rule().Most() {
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
func (l *line) hold(now, cost int64, d *headgate.Decision) *block {
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

// putBack returns what was held of b.
func (l *line) putBack(b *block, n int64) {
	if !b.putBack(n) {
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
func (s *Store) doRest(ctx context.Context, ops []headgate.Op, out []headgate.Decision, mode headgate.Mode, holds []held) error {
	rest := make([]headgate.Op, 0, len(ops))
	at := make([]int, 0, len(ops))
	next := 0
	for i := range ops {
		if next < len(holds) && holds[next].index == i {
			next++
			continue
		}
		rest, at = append(rest, ops[i]), append(at, i)
	}
	answers := make([]headgate.Decision, len(rest))
	err := s.inner.Do(ctx, rest, answers, mode)
	refused := err != nil
	for i, a := range answers {
		out[at[i]] = a
		refused = refused || mode == headgate.AllOrNothing && !a.Allowed
	}
	if refused {
		putAllBack(holds, out)
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
	putAllBack(holds, out)
	if mode == headgate.AllOrNothing {
		s.undo(ctx, rest, answers)
		return s.inner.Do(ctx, ops, out, mode)
	}
	again, replies := make([]headgate.Op, len(holds)), make([]headgate.Decision, len(holds))
	for i, h := range holds {
		again[i] = ops[h.index]
	}
	if err := s.inner.Do(ctx, again, replies, mode); err != nil {
		return err
	}
	for i, h := range holds {
		out[h.index] = replies[i]
	}
	return nil
}

// putAllBack returns what was held, and changes the answers to those of a peek.
func putAllBack(holds []held, out []headgate.Decision) {
	for _, h := range holds {
		h.line.putBack(h.block, h.cost)
		d := &out[h.index]
		d.Remaining, d.Granted, d.CountsUntil = d.Remaining+d.Granted, 0, 0
	}
}

// Pipeline implements store.Pipeliner. A group is decided here if all of it can be;
// otherwise by the inner store, which then is called anyway.
func (s *Store) Pipeline(ctx context.Context, ops []headgate.Op, out []headgate.Decision, groups []store.Group) {
	if s.flaw != nil {
		for i := range groups {
			groups[i].Err = s.flaw
		}
		return
	}
	var (
		rest  []headgate.Op
		to    []int // where the answers go
		asked []store.Group
		from  []int // which groups are asked
	)
	start := 0
	for i := range groups {
		end := start + groups[i].Ops
		if s.decide(ops[start:end], out[start:end]) {
			groups[i].Err = nil
		} else {
			for j := start; j < end; j++ {
				rest, to = append(rest, ops[j]), append(to, j)
			}
			asked, from = append(asked, groups[i]), append(from, i)
		}
		start = end
	}
	if len(asked) == 0 {
		return
	}
	answers := make([]headgate.Decision, len(rest))
	s.inner.Pipeline(ctx, rest, answers, asked)
	for i, at := range to {
		out[at] = answers[i]
	}
	for i, at := range from {
		groups[at].Err = asked[i].Err
	}
	for i := range rest {
		if rest[i].Kind == headgate.Reset {
			s.drop(&rest[i])
		}
	}
}

// decide answers a group if this process holds enough for all of it.
func (s *Store) decide(ops []headgate.Op, out []headgate.Decision) bool {
	if !divisible(ops) {
		return false
	}
	var few [fewOps]held
	holds := s.hold(ops, out, few[:0])
	if len(holds) == len(ops) {
		return true
	}
	putAllBack(holds, out)
	return false
}
