package blocks

import (
	"hash/maphash"
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/headgate/headgate/store"
)

const ways = 4 // how many lines one place in the table has

// set is one place of the table: a cache line. A hash says which line may be meant; the
// line says whether it is.
type set struct {
	hashes [ways]atomic.Uint64
	lines  [ways]atomic.Pointer[line]
}

// table holds the lines of busy keys, and how busy the others are.
type table struct {
	seed maphash.Seed
	mask uint64
	sets []set
	heat []atomic.Uint64

	mu    sync.Mutex // for adding and removing lines
	lines atomic.Int64
}

func newTable(keys int) *table {
	n := 1
	for n*ways < keys {
		n *= 2
	}
	return &table{seed: maphash.MakeSeed(), mask: uint64(n - 1), sets: make([]set, n), heat: make([]atomic.Uint64, heatCounters)}
}

// hash returns where op belongs. It is never 0.
func (t *table) hash(op *store.Op) uint64 {
	h := maphash.String(t.seed, op.Key)
	if op.Scope != "" {
		h ^= bits.RotateLeft64(maphash.String(t.seed, op.Scope), 32)
	}
	return h | 1<<63
}

// find returns the line for op, or nil.
func (t *table) find(hash uint64, op *store.Op) *line {
	s := &t.sets[hash&t.mask]
	for i := range s.hashes {
		if s.hashes[i].Load() == hash {
			if l := s.lines[i].Load(); l != nil && l.serves(op) {
				return l
			}
		}
	}
	return nil
}

// add returns the line for op, which it adds if there is space; otherwise nil.
func (t *table) add(hash uint64, op *store.Op, create func() *line) *line {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l := t.find(hash, op); l != nil {
		return l
	}
	s := &t.sets[hash&t.mask]
	for i := range s.lines {
		if s.lines[i].Load() == nil {
			l := create()
			s.lines[i].Store(l)
			s.hashes[i].Store(hash)
			t.lines.Add(1)
			return l
		}
	}
	return nil
}

// remove removes l.
func (t *table) remove(l *line) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := &t.sets[l.hash&t.mask]
	for i := range s.lines {
		if s.lines[i].Load() == l {
			s.hashes[i].Store(0)
			s.lines[i].Store(nil)
			t.lines.Add(-1)
		}
	}
}

// each calls f for all lines.
func (t *table) each(f func(l *line)) {
	if t.lines.Load() == 0 {
		return
	}
	for i := range t.sets {
		for j := range t.sets[i].lines {
			if l := t.sets[i].lines[j].Load(); l != nil {
				f(l)
			}
		}
	}
}

// of calls f for the lines of a key in a scope, under whatever limit.
func (t *table) of(op *store.Op, f func(l *line)) {
	s := &t.sets[t.hash(op)&t.mask]
	for i := range s.lines {
		if l := s.lines[i].Load(); l != nil && l.op.Key == op.Key && l.op.Scope == op.Scope {
			f(l)
		}
	}
}

// The heat of a key: how many requests it had in this beat. Keys that share a counter
// make each other seem busier, which costs a draw and is otherwise harmless.
const (
	heatCounters = 1 << 16
	heatCount    = 16 // bits of a count; the beat's number is above
)

// warm counts a request of a key without a line, and returns how many there were in this
// beat.
func (t *table) warm(hash, beat uint64) int64 {
	h := &t.heat[hash>>32%heatCounters]
	for {
		was, n := h.Load(), uint64(1)
		if was>>heatCount == beat&(1<<(64-heatCount)-1) {
			n = min(was&(1<<heatCount-1)+1, 1<<heatCount-1)
		}
		if h.CompareAndSwap(was, beat<<heatCount|n) {
			return int64(n)
		}
	}
}
