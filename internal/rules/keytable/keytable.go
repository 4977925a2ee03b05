// Package keytable maps millions of keys to small numbers in little memory.
package keytable

import (
	"hash/maphash"
	"math/bits"
	"unsafe"

	"github.com/headgate/headgate/internal/base/hugepage"
)

// Table maps keys to rows. It is immutable and safe for concurrent use. A nil *Table is
// empty.
//
// It is an open-addressing hash table without the keys themselves: a row has 80 bits of
// two hashes with secrets of this table, and the first hash also says where it lies. So a
// search reads one place in memory, whatever the length of the key, and nobody can choose
// a key that is taken for another. That a key without a row is taken for one with a row has
// a probability of less than 1 in 10^23, for each such key.
type Table struct {
	seeds seeds
	homes uint64 // of rows; fewer than slots
	slots []slot
	len   int
}

// Row is what a table knows of a key.
type Row struct {
	Value uint16 // what the caller gave
	Line  uint32 // where the row was read
}

// slot is a row, or empty if tag is 0.
type slot struct {
	tag  uint64 // the second hash
	line uint32
	// value is Row.Value, more the lowest bits of the first hash.
	value, more uint16
}

func (s *slot) row() Row { return Row{s.value, s.line} }

// slotsPerTwoRows leaves a third of the slots empty, so that a search looks at two on
// average if the key has a row, and at five if it has none.
const slotsPerTwoRows = 3

// seeds are the secrets of a table.
type seeds [2]maphash.Seed

// identify returns the first hash of a key, and the second, which is never 0.
func (s *seeds) identify(key string) (first, tag uint64) {
	return maphash.String(s[0], key), max(maphash.String(s[1], key), 1)
}

// Len returns the number of rows.
func (t *Table) Len() int {
	if t == nil {
		return 0
	}
	return t.len
}

// Size returns the memory of the table in bytes.
func (t *Table) Size() int64 {
	if t == nil {
		return 0
	}
	return int64(cap(t.slots))*int64(unsafe.Sizeof(slot{})) + int64(unsafe.Sizeof(*t))
}

// Find returns the row of a key. It allocates nothing.
func (t *Table) Find(key string) (Row, bool) {
	if t == nil {
		return Row{}, false
	}
	i, ok := t.find(t.seeds.identify(key))
	if !ok {
		return Row{}, false
	}
	return t.slots[i].row(), true
}

// find returns where the row of a key is or, if there is none, would be. There is always
// an empty slot at the end.
func (t *Table) find(first, tag uint64) (int, bool) {
	home, _ := bits.Mul64(first, t.homes)
	for i := int(home); ; i++ {
		switch s := &t.slots[i]; {
		case s.tag == tag && s.more == uint16(first):
			return i, true
		case s.tag == 0:
			return i, false
		}
	}
}

// Builder collects the rows of a Table.
type Builder struct {
	seeds seeds
	rows  []pending
}

// pending is a row that has been added, with the hashes of its key.
type pending struct {
	first, tag uint64
	Row
}

// NewBuilder returns an empty Builder.
func NewBuilder() *Builder {
	return &Builder{seeds: seeds{maphash.MakeSeed(), maphash.MakeSeed()}}
}

// Add adds a row. The caller may reuse key. Keys may repeat; see [Builder.Table].
func (b *Builder) Add(key []byte, row Row) {
	first, tag := b.seeds.identify(view(key))
	b.rows = append(b.rows, pending{first, tag, row})
}

// view returns b as a string without a copy, for as long as b does not change.
func view(b []byte) string {
	return unsafe.String(unsafe.SliceData(b), len(b)) //nolint:gosec // audited: it is only hashed
}

// Table returns the table. It calls repeated for every row whose key an earlier row has,
// which is left out. The Builder must not be used afterwards.
func (b *Builder) Table(repeated func(first, again Row)) *Table {
	homes := len(b.rows)*slotsPerTwoRows/2 + 1
	t := &Table{seeds: b.seeds, homes: uint64(homes), slots: make([]slot, homes+1, homes+homes/64+16)}
	for i := range b.rows {
		row := &b.rows[i]
		at, found := t.find(row.first, row.tag)
		if found {
			repeated(t.slots[at].row(), row.Row)
			continue
		}
		t.slots[at] = slot{row.tag, row.Line, row.Value, uint16(row.first)}
		t.len++
		if at == len(t.slots)-1 {
			t.slots = append(t.slots, slot{})
		}
	}
	t.gather()
	return t
}

// hugeTable is the smallest table, in bytes, that asks for huge pages.
const hugeTable = 4 << 20

// gather asks the system for huge pages under a large table, since a search reads a random
// place of it.
func (t *Table) gather() {
	size := len(t.slots) * int(unsafe.Sizeof(slot{}))
	if size < hugeTable || !hugepage.Wanted() {
		return
	}
	first := uintptr(unsafe.Pointer(unsafe.SliceData(t.slots))) //nolint:gosec // only asked about, not read
	for at := first &^ (hugepage.Size - 1); at < first+uintptr(size); at += hugepage.Size {
		_ = hugepage.Collapse(at) // without them it is only slower
	}
}
