package file

import (
	"maps"
	"slices"

	"github.com/headgate/headgate/internal/queue"
)

// place is an entry that is pending or dead.
type place struct {
	sequence uint64
	ref      queue.Ref
	attempts queue.Attempts
}

// tally is how much there is of one rule.
type tally struct{ entries, bytes, dead, deadBytes int64 }

// load is how much is pending of one lane.
type load struct{ entries, bytes int64 }

func (l load) plus(other load) load {
	return load{l.entries + other.entries, l.bytes + other.bytes}
}

type ruleName struct{ domain, rule string }

// index is what is in the file, without the entries themselves.
type index struct {
	ids     map[string]*place
	tallies map[ruleName]*tally
	lanes   map[queue.Lane]load // what is pending
}

func newIndex() index {
	return index{ids: map[string]*place{}, tallies: map[ruleName]*tally{}, lanes: map[queue.Lane]load{}}
}

func (x *index) tally(domain, rule string) *tally {
	name := ruleName{domain, rule}
	if x.tallies[name] == nil {
		x.tallies[name] = &tally{}
	}
	return x.tallies[name]
}

// add notes an entry and returns it as its place.
func (x *index) add(sequence uint64, ref queue.Ref, a queue.Attempts) *place {
	ref.Order = [2]uint64{sequence}
	p := &place{sequence: sequence, ref: ref, attempts: a}
	x.ids[ref.ID] = p
	x.count(p, 1)
	return p
}

// remove forgets an entry.
func (x *index) remove(p *place) {
	x.count(p, -1)
	delete(x.ids, p.ref.ID)
}

// count adds p to the tallies, or takes it out with a sign of -1.
func (x *index) count(p *place, sign int64) {
	t := x.tally(p.ref.Domain, p.ref.Rule)
	if !p.attempts.Ended.IsZero() {
		t.dead += sign
		t.deadBytes += sign * p.ref.Size
		return
	}
	t.entries += sign
	t.bytes += sign * p.ref.Size
	l := x.lanes[p.ref.Lane].plus(load{sign, sign * p.ref.Size})
	x.lanes[p.ref.Lane] = l
	if l.entries == 0 {
		delete(x.lanes, p.ref.Lane)
	}
}

// sorted returns all places in the order in which they were accepted.
func (x *index) sorted() []*place {
	return slices.SortedFunc(maps.Values(x.ids), func(a, b *place) int {
		if a.sequence < b.sequence {
			return -1
		}
		return 1
	})
}

func (x *index) each(f func(*place)) {
	for _, p := range x.sorted() {
		f(p)
	}
}
