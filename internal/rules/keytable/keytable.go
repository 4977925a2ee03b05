// Package keytable maps millions of keys to small numbers in little memory.
package keytable

import (
	"encoding/binary"
	"errors"
	"hash/maphash"
	"math"
	"unsafe"
)

// Table maps keys to rows. It is immutable and safe for concurrent use. A nil *Table is
// empty.
//
// The rows lie in one byte slice, sorted by the hash of their key, and so in buckets of
// a few. The only other data is where each bucket starts: about two bytes a row. A row is one
// byte of hash, the value, the line, the length of the key, and the key.
type Table struct {
	seed   maphash.Seed
	shift  uint     // a hash's bucket is its highest bits
	starts []uint32 // where each bucket starts, and the last one ends
	rows   []byte
	len    int
}

// Row is what a table knows of a key.
type Row struct {
	Value uint16 // what the caller gave
	Line  uint32 // where the row was read
}

const (
	// rowsPerBucket is the least average number of rows in a bucket; there are up to twice as
	// many. They are next to each other.
	rowsPerBucket = 2
	fixed         = 1 + 2 + 4 // bytes of a row before the length of its key
	// MaxKey is the longest key, in bytes.
	MaxKey = 1<<16 - 1
)

// ErrTooLarge means that a table has more rows or longer keys than it can hold.
var ErrTooLarge = errors.New("the table is too large")

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
	return int64(cap(t.rows)) + 4*int64(cap(t.starts)) + int64(unsafe.Sizeof(*t))
}

// Find returns the row of a key. It allocates nothing.
func (t *Table) Find(key string) (Row, bool) {
	if t == nil {
		return Row{}, false
	}
	hash := maphash.String(t.seed, key)
	bucket := hash >> t.shift
	return find(t.rows[t.starts[bucket]:t.starts[bucket+1]], byte(hash), key)
}

// Builder collects the rows of a Table.
type Builder struct {
	seed  maphash.Seed
	keys  []byte
	rows  []pending
	bytes uint64 // of the finished rows
}

// pending is a row that has been added.
type pending struct {
	hash uint64
	from uint32 // its key among keys, up to that of the next row
	Row
}

// NewBuilder returns an empty Builder.
func NewBuilder() *Builder { return &Builder{seed: maphash.MakeSeed()} }

// Add adds a row. The caller may reuse key. Keys may repeat; see [Builder.Table].
func (b *Builder) Add(key []byte, row Row) error {
	size := uint64(fixed + 1 + len(key))
	if len(key) >= 0x80 {
		size += 2
	}
	if len(key) > MaxKey || len(b.rows) == math.MaxInt32 || b.bytes+size > math.MaxUint32 {
		return ErrTooLarge
	}
	b.bytes += size
	b.rows = append(b.rows, pending{maphash.Bytes(b.seed, key), uint32(len(b.keys)), row})
	b.keys = append(b.keys, key...)
	return nil
}

// key returns the key of row i.
func (b *Builder) key(i int) []byte {
	to := len(b.keys)
	if i+1 < len(b.rows) {
		to = int(b.rows[i+1].from)
	}
	return b.keys[b.rows[i].from:to]
}

// Table returns the table. It calls repeated for every row whose key an earlier row has,
// which is left out. The Builder must not be used afterwards.
func (b *Builder) Table(repeated func(first, again Row)) *Table {
	t := &Table{seed: b.seed, shift: 63}
	for buckets := len(b.rows) / rowsPerBucket; 1<<(64-t.shift) < buckets; {
		t.shift--
	}
	next := make([]uint32, 1<<(64-t.shift)+1)
	for i := range b.rows {
		next[b.rows[i].hash>>t.shift+1] += uint32(size(b.key(i)))
	}
	for i := 1; i < len(next); i++ {
		next[i] += next[i-1]
	}
	t.starts, t.rows = next, make([]byte, b.bytes)
	ends := make([]uint32, len(next)-1) // of what is in each bucket so far
	copy(ends, next)
	gaps := false
	for i := range b.rows {
		r, key := &b.rows[i], b.key(i)
		bucket := r.hash >> t.shift
		if first, ok := find(t.rows[next[bucket]:ends[bucket]], byte(r.hash), view(key)); ok {
			repeated(first, r.Row)
			gaps = true
			continue
		}
		ends[bucket] += uint32(put(t.rows[ends[bucket]:], r, key))
		t.len++
	}
	if gaps {
		t.close(ends)
	}
	return t
}

// close moves the rows together, where repeated ones have left gaps.
func (t *Table) close(ends []uint32) {
	to := uint32(0)
	for i, end := range ends {
		from := t.starts[i]
		t.starts[i] = to
		to += uint32(copy(t.rows[to:], t.rows[from:end]))
	}
	t.starts[len(ends)] = to
	t.rows = append([]byte(nil), t.rows[:to]...)
}

// size returns the size of a row.
func size(key []byte) int {
	if len(key) >= 0x80 {
		return fixed + 3 + len(key)
	}
	return fixed + 1 + len(key)
}

// put writes a row and returns its size.
func put(dst []byte, r *pending, key []byte) int {
	dst[0] = byte(r.hash)
	binary.LittleEndian.PutUint16(dst[1:], r.Value)
	binary.LittleEndian.PutUint32(dst[3:], r.Line)
	wide := fixed + 1
	if dst[fixed] = byte(len(key)); len(key) >= 0x80 {
		dst[fixed], dst[fixed+1], dst[fixed+2] = byte(len(key))|0x80, byte(len(key)>>7), byte(len(key)>>15)
		wide += 2
	}
	return wide + copy(dst[wide:], key)
}

// find looks for a key in the rows of a bucket.
func find(rows []byte, tag byte, key string) (Row, bool) {
	for len(rows) > fixed {
		n, wide := int(rows[fixed]), fixed+1
		if n >= 0x80 {
			n, wide = n&0x7f|int(rows[fixed+1])<<7|int(rows[fixed+2])<<15, fixed+3
		}
		if rows[0] == tag && n == len(key) && string(rows[wide:wide+n]) == key {
			return Row{binary.LittleEndian.Uint16(rows[1:]), binary.LittleEndian.Uint32(rows[3:])}, true
		}
		rows = rows[wide+n:]
	}
	return Row{}, false
}

// view returns b as a string without a copy, for as long as b does not change.
func view(b []byte) string {
	return unsafe.String(unsafe.SliceData(b), len(b)) //nolint:gosec // audited: rows never change once they are made
}
