// Package prefixtable finds addresses among millions of IP prefixes in little memory.
package prefixtable

import (
	"cmp"
	"encoding/binary"
	"math/bits"
	"net/netip"
	"slices"
	"unsafe"
)

// Table is a set of prefixes, each with a row. It is immutable and safe for concurrent
// use. A nil *Table is empty.
//
// Of two prefixes of which one contains the other, only the larger is kept. The others do
// not overlap, so they are sorted arrays: an IPv4 prefix takes 12 bytes, an IPv6 prefix
// 24. IPv4 written inside IPv6 must be made IPv4 by the caller, for
// prefixes and addresses alike.
type Table struct {
	four         tree[uint32] // the first addresses of the IPv4 prefixes
	six          tree[wide]   // the same for IPv6
	rows4, rows6 rows
}

// Row is what a table knows of a prefix.
type Row struct {
	Source uint16 // what the caller gave
	Line   uint32 // where the prefix was read
}

// rows have the rows of prefixes and their lengths, in the order of the prefixes.
type rows struct {
	lengths []uint8
	lines   []uint32
	sources []uint16
}

func (r *rows) at(i int) Row { return Row{r.sources[i], r.lines[i]} }

func (r *rows) size() int64 {
	return int64(cap(r.lengths)) + 4*int64(cap(r.lines)) + 2*int64(cap(r.sources))
}

// makeRows returns room for n rows.
func makeRows(n int) rows { return rows{make([]uint8, n), make([]uint32, n), make([]uint16, n)} }

func (r *rows) set(i int, e entry) {
	r.lengths[i], r.lines[i], r.sources[i] = e.length, e.Line, e.Source
}

// entry is a row, with the length of its prefix.
type entry struct {
	Row
	length uint8
}

// wide is an IPv6 address.
type wide struct{ high, low uint64 }

// compare compares two addresses.
func (w wide) compare(o wide) int {
	return cmp.Or(cmp.Compare(w.high, o.high), cmp.Compare(w.low, o.low))
}

// masked returns w with nothing but its first bits.
func (w wide) masked(length uint8) wide {
	if length <= 64 {
		return wide{w.high &^ (1<<(64-length) - 1), 0} // a shift by 64 is 0
	}
	return wide{w.high, w.low &^ (1<<(128-length) - 1)}
}

// masked4 returns a with nothing but its first bits.
func masked4(a uint32, length uint8) uint32 { return a &^ (1<<(32-length) - 1) }

// bytesOf returns an IPv4 address as a number.
func bytesOf(a netip.Addr) uint32 {
	b := a.As4()
	return binary.BigEndian.Uint32(b[:])
}

// wideOf returns an IPv6 address as a number.
func wideOf(a netip.Addr) wide {
	b := a.As16()
	return wide{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])}
}

// Len returns the number of prefixes, without those inside others.
func (t *Table) Len() int {
	if t == nil {
		return 0
	}
	return len(t.rows4.lengths) + len(t.rows6.lengths)
}

// Size returns the memory of the table in bytes.
func (t *Table) Size() int64 {
	if t == nil {
		return 0
	}
	return int64(unsafe.Sizeof(*t)) + int64(t.four.elements())*4 + int64(t.six.elements())*16 + t.rows4.size() + t.rows6.size()
}

// Find returns the prefix that contains an address, and its row. It allocates nothing.
func (t *Table) Find(a netip.Addr) (netip.Prefix, Row, bool) {
	return t.Containing(netip.PrefixFrom(a, a.BitLen()))
}

// Has reports whether a prefix contains an address. It reads less memory than Find.
func (t *Table) Has(a netip.Addr) bool {
	switch {
	case t == nil || !a.IsValid():
	case a.Is4():
		number := bytesOf(a)
		i := last4(t.four, number)
		return i >= 0 && masked4(number, t.rows4.lengths[i]) == t.four.list()[i]
	default:
		number := wideOf(a)
		i := last6(t.six, number)
		return i >= 0 && number.masked(t.rows6.lengths[i]) == t.six.list()[i]
	}
	return false
}

// Containing returns the prefix that contains all of p. Prefixes that contain p only
// together are not found.
func (t *Table) Containing(p netip.Prefix) (netip.Prefix, Row, bool) {
	found, row, ok := t.before(p)
	if !ok || found.Bits() > p.Bits() || !found.Contains(p.Addr()) {
		return netip.Prefix{}, Row{}, false
	}
	return found, row, true
}

// Overlapping returns a prefix that has an address in common with p.
func (t *Table) Overlapping(p netip.Prefix) (netip.Prefix, Row, bool) {
	if !p.IsValid() {
		return netip.Prefix{}, Row{}, false
	}
	if found, row, ok := t.before(p); ok && found.Overlaps(p) {
		return found, row, true
	}
	found, row, ok := t.after(p)
	return found, row, ok && found.Overlaps(p)
}

// before returns the last prefix that does not begin after p.
func (t *Table) before(p netip.Prefix) (found netip.Prefix, row Row, ok bool) {
	a := p.Addr()
	switch {
	case t == nil || !p.IsValid():
	case a.Is4():
		if i := last4(t.four, bytesOf(a)); i >= 0 {
			return t.at4(i)
		}
	default:
		if i := last6(t.six, wideOf(a)); i >= 0 {
			return t.at6(i)
		}
	}
	return netip.Prefix{}, Row{}, false
}

// after returns the first prefix that begins after p.
func (t *Table) after(p netip.Prefix) (found netip.Prefix, row Row, ok bool) {
	a := p.Addr()
	switch {
	case t == nil:
	case a.Is4():
		if i := last4(t.four, bytesOf(a)) + 1; i < len(t.four.list()) {
			return t.at4(i)
		}
	default:
		if i := last6(t.six, wideOf(a)) + 1; i < len(t.six.list()) {
			return t.at6(i)
		}
	}
	return netip.Prefix{}, Row{}, false
}

func (t *Table) at4(i int) (netip.Prefix, Row, bool) {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], t.four.list()[i])
	return netip.PrefixFrom(netip.AddrFrom4(b), int(t.rows4.lengths[i])), t.rows4.at(i), true
}

func (t *Table) at6(i int) (netip.Prefix, Row, bool) {
	var b [16]byte
	first := t.six.list()[i]
	binary.BigEndian.PutUint64(b[:8], first.high)
	binary.BigEndian.PutUint64(b[8:], first.low)
	return netip.PrefixFrom(netip.AddrFrom16(b), int(t.rows6.lengths[i])), t.rows6.at(i), true
}

// fan is how many elements of a list its index has one for, and how many a search compares
// at a time.
const fan = 16

// tree is a sorted list with an index, the index of that, and so on, the smallest first. A
// search reads a few neighbours in each, so most of the memory that it needs is in the
// caches of the processor.
type tree[T any] [][]T

// grown returns the tree of a list, which is its last level.
func grown[T any](list []T) tree[T] {
	t := tree[T]{list}
	for len(t[0]) > fan {
		index := make([]T, 0, (len(t[0])+fan-1)/fan)
		for i := 0; i < len(t[0]); i += fan {
			index = append(index, t[0][i])
		}
		t = append(tree[T]{index}, t...)
	}
	return t
}

// list returns the list itself.
func (t tree[T]) list() []T {
	if len(t) == 0 {
		return nil
	}
	return t[len(t)-1]
}

// elements returns how many elements there are room for, in all levels.
func (t tree[T]) elements() (n int) {
	for _, level := range t {
		n += cap(level)
	}
	return n
}

// last4 returns the place of the last element that is not above a, or -1.
func last4(t tree[uint32], a uint32) int {
	at := 0
	for _, level := range t {
		group := level[at*fan : min(at*fan+fan, len(level))]
		n := 0
		for _, first := range group { // without a branch, which could not be predicted
			_, above := bits.Sub64(uint64(a), uint64(first), 0)
			n += 1 - int(above)
		}
		if n == 0 {
			return -1
		}
		at = at*fan + n - 1
	}
	return at
}

// last6 is last4 for IPv6.
func last6(t tree[wide], a wide) int {
	at := 0
	for _, level := range t {
		group := level[at*fan : min(at*fan+fan, len(level))]
		n := 0
		for i := range group {
			_, above := bits.Sub64(a.low, group[i].low, 0)
			_, above = bits.Sub64(a.high, group[i].high, above)
			n += 1 - int(above)
		}
		if n == 0 {
			return -1
		}
		at = at*fan + n - 1
	}
	return at
}

// Builder collects the prefixes of a Table. Its zero value is empty.
type Builder struct {
	four []pending[uint32]
	six  []pending[wide]
}

// pending is a prefix that has been added, with its first address.
type pending[T any] struct {
	first T
	entry
}

// Add adds a prefix, which must be valid. Prefixes may repeat and contain each other.
func (b *Builder) Add(p netip.Prefix, row Row) {
	e := entry{row, uint8(p.Bits())}
	if p.Addr().Is4() {
		b.four = append(b.four, pending[uint32]{masked4(bytesOf(p.Addr()), e.length), e})
	} else {
		b.six = append(b.six, pending[wide]{wideOf(p.Addr()).masked(e.length), e})
	}
}

// Table returns the table. Of equal prefixes, the row of the first that was added is
// kept. The Builder must not be used afterwards.
func (b *Builder) Table() *Table {
	t := &Table{}
	t.four, t.rows4 = sorted(b.four, cmp.Compare, masked4)
	t.six, t.rows6 = sorted(b.six, wide.compare, wide.masked)
	b.four, b.six = nil, nil
	return t
}

// sorted returns the first addresses of the prefixes that no other contains, and their
// rows.
func sorted[T comparable](list []pending[T], compare func(x, y T) int, masked func(first T, length uint8) T) (tree[T], rows) {
	slices.SortStableFunc(list, func(x, y pending[T]) int {
		return cmp.Or(compare(x.first, y.first), cmp.Compare(x.length, y.length))
	})
	kept := list[:0]
	for _, p := range list {
		if n := len(kept); n == 0 || masked(p.first, kept[n-1].length) != kept[n-1].first {
			kept = append(kept, p)
		}
	}
	firsts, r := make([]T, len(kept)), makeRows(len(kept))
	for i, p := range kept {
		firsts[i] = p.first
		r.set(i, p.entry)
	}
	return grown(firsts), r
}
