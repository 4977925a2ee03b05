package store

import (
	"math/bits"
	"strconv"
	"time"
)

// Space returns what a store counts an op's key under, in addition to the key: a scope
// and a mark. The same key in two spaces has two states.
//
// The scope is [Op.Scope], or else the name of the limit. If there is one, the mark is
// the algorithm. Otherwise the mark identifies the limit itself, so that different
// limits count separately. The mark is the same in all processes and releases.
func (o *Op) Space() (scope string, mark uint64) {
	r := o.Rule
	if o.Scope != "" {
		return o.Scope, uint64(r.Algorithm)
	}
	return r.Name, r.mark
}

// Space is [Op.Space] for an op without a Scope.
func (r *Rule) Space() (scope string, mark uint64) { return r.Name, r.mark }

// AppendSpace appends a text for the space of op to dst: its scope, or a description of
// the limit. Different spaces of one algorithm have different texts, unless a scope
// starts with a tilde.
func (o *Op) AppendSpace(dst []byte) []byte {
	scope, mark := o.Space()
	if scope != "" {
		return append(dst, scope...)
	}
	r := o.Rule
	dst = append(dst, '~')
	dst = strconv.AppendInt(dst, r.Limit, 10)
	dst = append(dst, '/')
	if r.Calendar != NoCalendar {
		dst = append(dst, r.Calendar.String()...)
	} else {
		dst = append(dst, unitOf(time.Duration(r.Period)*time.Microsecond)...)
	}
	dst = append(dst, '~')
	return strconv.AppendUint(dst, mark, 36)
}

// setMark computes the mark: the algorithm for a limit with a name, otherwise a hash of
// everything that the limit means. Limits are chosen by developers, so the hash need
// not resist attacks; two limits share one by accident with a probability of 2^-64.
func (r *Rule) setMark() {
	if r.Name != "" {
		r.mark = uint64(r.Algorithm)
		return
	}
	h := uint64(0x9e3779b97f4a7c15)
	for _, n := range r.meaning(r.share) {
		hi, lo := bits.Mul64(h^uint64(n), 0xd6e8feb86659fd93)
		h = hi ^ lo ^ bits.RotateLeft64(h, 23) ^ uint64(n)
	}
	r.mark = h<<8 | uint64(r.Algorithm)
}

// meaning is everything that decides what a limit allows, however it was written, and
// the mark of the limit that it is a share of. The caller's own zone is no part of it.
func (r *Rule) meaning(share uint64) [8]int64 {
	countDenied := int64(0)
	if r.CountRefused {
		countDenied = 1
	}
	zone, own := r.zoneMark(), int64(0)
	if r.OwnZone {
		zone, own = 0, 1 // counts the same in every zone
	}
	return [...]int64{
		int64(r.Algorithm) | int64(r.Anchor)<<8 | int64(r.Edge)<<16 | int64(r.Calendar)<<24 | int64(r.Buckets)<<32 | countDenied<<48 | own<<49,
		r.Limit, r.Period, r.Burst, r.delayAfter(), r.MaxWait | r.RefillEvery, int64(share), zone, // no algorithm has both
	}
}

// delayAfter is DelayAfter, but 0 for the 1 that is its default.
func (r *Rule) delayAfter() int64 {
	if r.DelayAfter == 1 {
		return 0
	}
	return r.DelayAfter
}

// zoneMark identifies the zone by its name and its offset at one time.
func (r *Rule) zoneMark() int64 {
	if r.Zone == nil {
		return 0
	}
	_, offset := time.Unix(0, 0).In(r.Zone).Zone()
	h := uint64(offset) + 14695981039346656037
	for i := range len(r.Zone.String()) {
		h = (h ^ uint64(r.Zone.String()[i])) * 1099511628211
	}
	return int64(h)
}

// AppendKeyPart appends part to dst, preceded by its length as a varint, as in
// encoding/binary; headgate.AppendKey does so for several parts.
func AppendKeyPart(dst []byte, part string) []byte {
	n := uint64(len(part))
	for ; n >= 0x80; n >>= 7 {
		dst = append(dst, byte(n)|0x80)
	}
	dst = append(dst, byte(n))
	return append(dst, part...)
}
