package regions

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// give charges this region's store for what the other region wants, and only then writes
// the gifts into the message that will be published. What is charged and never arrives
// counts as if it had been used.
func (c *courier) give(ctx context.Context, in *incoming, text *content, out *writer) error {
	for some := range slices.Chunk(text.Wants, mostOps) {
		if err := c.giveSome(ctx, in, some, text.Seen[c.options.Name], out); err != nil {
			return err
		}
	}
	return nil
}

// giving is a claim while it is answered.
type giving struct {
	*claim
	whole headgate.Limit
	of    entity
	op    store.Op
}

func (c *courier) giveSome(ctx context.Context, in *incoming, wants []claim, seen int64, out *writer) error {
	possible := make([]giving, 0, len(wants))
	ops := make([]store.Op, 0, len(wants))
	for i := range wants {
		w := &wants[i]
		l := in.limits[w.Limit]
		if l.err != nil { // this release does not know such limits
			c.counts.skipped.Add(1)
			continue
		}
		op := store.Op{Key: string(w.Key), Scope: w.Scope, Rule: c.parts.of(l.limit).Rule(), Cost: 1, Kind: store.KindPeek}
		of := entityOf(&op, l.limit)
		if !op.Rule.Valid() || op.Rule.Most() == 0 || seen < c.given[of] {
			continue
		}
		possible, ops = append(possible, giving{w, l.limit, of, op}), append(ops, op)
	}
	answers, groups := c.do(ctx, ops, 1)
	ops = ops[:0]
	chosen := possible[:0]
	var failed error
	for i := range possible {
		g := possible[i]
		if !c.answered(groups[i].Err, &failed) {
			continue
		}
		if g.op.Cost = c.spare(&g, c.asked(in, g.Tokens), answers[i].Remaining); g.op.Cost > 0 {
			g.op.Kind = store.KindTakeUpTo
			chosen, ops = append(chosen, g), append(ops, g.op)
		}
	}
	before := c.here().UnixMicro() // by the clock that the messages have
	answers, groups = c.do(ctx, ops, 1)
	for i := range chosen {
		g, d := &chosen[i], &answers[i]
		if !c.answered(groups[i].Err, &failed) || d.Granted == 0 {
			continue
		}
		c.given[g.of] = before - int64(time.Millisecond/time.Microsecond) // messages have times in ms
		c.counts.given.Add(d.Granted)
		out.give(&gift{
			To: c.peer, For: in.store, Scope: g.Scope, Limit: out.place(g.whole), Key: g.Key, Tokens: d.Granted,
			Charged: before, Until: d.CountsUntil,
		})
	}
	return failed
}

// answered reports whether the store answered an op of another region. An error that is
// not about that op alone is kept.
func (c *courier) answered(err error, failed *error) bool {
	if err == nil {
		return true
	}
	if errors.Is(err, store.ErrUnavailable) && !errors.Is(err, store.ErrRefused) {
		*failed = err
	} else {
		c.counts.skipped.Add(1)
	}
	return false
}

// giveAgain is how long a key is given once, to a region that asks before it has seen
// what it was given: more than it wanted would not fit.
const giveAgain = 2 * time.Second

// asked returns how much of what another region wants this region is to give: as much
// as every other one, and what cannot be divided goes to each in turn.
func (c *courier) asked(in *incoming, tokens int64) int64 {
	givers := int64(len(c.options.Others))
	turn := int64(0)
	for i := range len(in.id) {
		turn += int64(in.id[i])
	}
	place := turn
	for _, name := range c.options.Others {
		if name != c.peer && name < c.options.Name {
			place++
		}
	}
	place %= givers
	each, rest := tokens/givers, tokens%givers
	if place < rest {
		each++
	}
	return each
}

// spare returns how much of what is left of a key to give: all but an eighth, or half if
// this region needs it itself.
func (c *courier) spare(g *giving, asked, left int64) int64 {
	keep := left / 8
	if c.demand.busy(g.of) {
		keep = (left + 1) / 2
	}
	tokens := min(asked, left-keep)
	if g.op.Rule.Algorithm == store.TokenBucket && drains(headgate.LimitOf(g.op.Rule), tokens)+g.whole.Rule().RegionAge() < 4*c.options.Interval {
		return 0 // hardly any would arrive
	}
	return tokens
}

// drains returns how long a bucket takes to drain some tokens.
func drains(l headgate.Limit, tokens int64) time.Duration {
	if l.N() == 0 {
		return 0
	}
	return time.Duration(float64(tokens) / float64(l.N()) * float64(l.Period()))
}

// entityOf returns what the whole limit counts an op's key under.
func entityOf(op *store.Op, whole headgate.Limit) entity {
	space := store.Op{Scope: op.Scope, Rule: whole.Rule()}
	scope, mark := space.Space()
	return entity{scope, op.Key, mark}
}
