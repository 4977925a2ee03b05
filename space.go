package headgate

import (
	"math/bits"
	"strconv"
	"time"
)

// Space is what a store counts an op's key under, besides the key itself: a
// scope and a mark. The same key in two spaces has two states.
//
// The scope is [Op.Scope] or else the name of the limit. With either, the mark is
// the algorithm; with neither, it stands for the limit itself, so that different
// limits count apart. It is the same in every process and every version of it that
// has the same limit.
func (o *Op) Space() (scope string, mark uint64) {
	r := o.Limit.Rule()
	if o.Scope != "" {
		return o.Scope, uint64(r.Algorithm)
	}
	return r.name, r.mark
}

// Space is [Op.Space] for an op without a Scope.
func (r *Rule) Space() (scope string, mark uint64) { return r.name, r.mark }

// AppendSpace appends the space of op to dst as a text: its scope, or what the
// limit means. No two spaces of one algorithm have the same text, unless a scope
// begins with a tilde.
func (o *Op) AppendSpace(dst []byte) []byte {
	scope, mark := o.Space()
	if scope != "" {
		return append(dst, scope...)
	}
	r := o.Limit.Rule()
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

// setMark works out the mark: the algorithm of a limit with a name, and a hash of
// all that a limit without one means. What it means is a developer's choice, so
// the hash need not withstand anybody; that two limits have the same by accident
// is as likely as 2^-64.
func (r *Rule) setMark() {
	if r.name != "" {
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

// meaning is all that decides what a limit allows, however it was written, beside
// the mark of what it is a share of.
func (r *Rule) meaning(share uint64) [8]int64 {
	countDenied := int64(0)
	if r.CountDenied {
		countDenied = 1
	}
	return [...]int64{
		int64(r.Algorithm) | int64(r.Anchor)<<8 | int64(r.Edge)<<16 | int64(r.Calendar)<<24 | int64(r.Buckets)<<32 | countDenied<<48,
		r.Limit, r.Period, r.Burst, r.delayAfter(), r.MaxWait, int64(share), r.zoneMark(),
	}
}

// delayAfter is DelayAfter, but 0 for the 1 that is its default.
func (r *Rule) delayAfter() int64 {
	if r.DelayAfter == 1 {
		return 0
	}
	return r.DelayAfter
}

// zoneMark stands for the zone by its name and its offset at one time.
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

// AppendKey appends parts to dst as one key, each with its length before it,
// so that two different lists of parts never give the same key. It returns
// the extended slice and allocates nothing if dst has room.
func AppendKey(dst []byte, parts ...string) []byte {
	for _, p := range parts {
		dst = AppendKeyPart(dst, p)
	}
	return dst
}

// AppendKeyPart appends a single part; see [AppendKey]. The length is a varint
// as of encoding/binary.
func AppendKeyPart(dst []byte, part string) []byte {
	n := uint64(len(part))
	for ; n >= 0x80; n >>= 7 {
		dst = append(dst, byte(n)|0x80)
	}
	dst = append(dst, byte(n))
	return append(dst, part...)
}
