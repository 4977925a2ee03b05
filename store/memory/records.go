package memory

import (
	"slices"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
)

// records are the states of a shard that no slot holds.
type records struct {
	all  []record
	gaps []uint32 // free places in all
}

type record struct {
	state     algorithm.State
	algorithm headgate.Algorithm
}

// recordBytes is the size of a record and its place among the gaps, on 64-bit
// machines.
const recordBytes = 80 + 4

// bytes returns the size of the record's list.
func (r *record) bytes() int64 { return 8 * int64(cap(r.state.Words)) }

func (rs *records) at(p *slot) *record { return &rs.all[p.a] }

// add keeps st and returns its index and how many bytes more there are now.
func (rs *records) add(a headgate.Algorithm, st *algorithm.State) (index int, bytes int64) {
	if n := len(rs.gaps); n > 0 {
		index = int(rs.gaps[n-1])
		rs.gaps = rs.gaps[:n-1]
	} else {
		index = len(rs.all)
		if index == cap(rs.all) {
			rs.all = slices.Grow(rs.all, index/8+4)
			bytes = int64(cap(rs.all)-index) * recordBytes
		}
		rs.all = rs.all[:index+1]
	}
	rs.all[index] = record{*st, a}
	return index, bytes + rs.all[index].bytes()
}

// free forgets p's record and returns the bytes of its list. Its place is kept
// for another.
func (rs *records) free(p *slot) int64 {
	rec := rs.at(p)
	bytes := rec.bytes()
	*rec = record{}
	rs.gaps = append(rs.gaps, uint32(p.a))
	return bytes
}
