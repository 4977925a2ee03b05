package memory

import (
	"math"
	"math/bits"

	"github.com/headgate/headgate/algorithm"
	"github.com/headgate/headgate/store"
)

// A slot is 32 bytes: the tag, and 128+64 bits of state, packed by one of four codecs.
// What no codec can hold (lists, credit, extreme numbers) goes to a block outside the
// table; see lists. All codecs have in common, in c:
//
//	bits 47..63  identity.extra
//	bits 45..46  codec
//
// Two times are kept with each state. FreshAt is when the key may be forgotten, rounded
// up. The rank, at most FreshAt, determines the order of eviction; it is stored as its
// distance before FreshAt. Distances are floating-point, see squeezeDown.
type slot struct {
	tag     uint64
	a, b, c uint64
}

const (
	slotBytes  = 32
	extraShift = 64 - extraBits
	codecShift = extraShift - 2
	stateMask  = 1<<codecShift - 1
)

// The codecs.
const (
	// codecBucket: V[0] and V[1] have 52 bits each, with the lowest 12 bits of V[2] and
	// the next 12 above them. c has the other 21 bits of V[2] and below them, in 24
	// bits, the distance of FreshAt after V[1]; see shorten. The rank is FreshAt. The
	// distance, which a request for a hot key computes last, is not in a word that the
	// next request needs first.
	codecBucket = iota
	// codecWindow: V[0] 43 bits, V[1] 52 bits, V[2] 45 bits, and the distance of
	// the rank in 33 bits (5+28). FreshAt is V[1], plus algorithm.WindowKept.
	codecWindow
	// codecSliding: V[0] and V[3] 36 bits, V[1] 52 bits, V[2] 36 bits in
	// microseconds or, if bit 36 is set, milliseconds, and the distance of the
	// rank in 12 bits (6+6). FreshAt is V[1] + 2·V[2].
	codecSliding
	// codecRecord: a is the place of the block, b FreshAt, and c has the
	// distance of the rank (6+39).
	codecRecord
)

const (
	timeBits  = 52
	timeMask  = 1<<timeBits - 1
	countBits = 36
	countMask = 1<<countBits - 1
	freshBits = 24
	freshMask = 1<<freshBits - 1
	// cutBits of the 52 bits of a 64-bit number's mantissa are dropped by shorten.
	cutBits  = 52 - 18
	ieeeBias = 1023 << 52
)

func (s *slot) codec() uint64 { return s.c >> codecShift & 3 }

func (s *slot) is(id identity) bool { return s.tag == id.tag && s.c>>extraShift == id.extra }

func (s *slot) identity() identity { return identity{s.tag, s.c >> extraShift} }

// state unpacks a state of any codec but codecRecord.
func (s *slot) state(st *algorithm.State) {
	switch s.codec() {
	case codecBucket:
		b := s.bucket()
		st.V[0], st.V[1], st.V[2] = b.Used, b.Last, b.Token
	case codecWindow:
		st.V[0], st.V[1], st.V[2] = int64(s.a&(1<<43-1)), int64(s.b&timeMask), int64(s.c&stateMask)
	case codecSliding:
		period := int64(s.c & countMask)
		if s.c>>countBits&1 != 0 {
			period *= 1000
		}
		st.V = [4]int64{
			int64(s.a & countMask), int64(s.b & timeMask), period,
			int64(s.a>>countBits | s.b>>timeBits&255<<28),
		}
	}
}

// bucket unpacks a state of codecBucket.
func (s *slot) bucket() algorithm.Bucket {
	return algorithm.Bucket{
		Used: int64(s.a & timeMask), Last: int64(s.b & timeMask),
		Token: int64(s.a>>timeBits | s.b>>timeBits<<12 | s.c&stateMask>>freshBits<<24),
	}
}

// setBucket packs a state of codecBucket, which is fresh at fresh, at Last or later.
// Used and Last must be at most timeMask and Token at most stateMask.
func (s *slot) setBucket(b algorithm.Bucket, fresh int64) {
	token := uint64(b.Token)
	s.a = uint64(b.Used) | token<<timeBits
	s.b = uint64(b.Last) | token>>12<<timeBits
	s.c = s.c&^stateMask | token>>24<<freshBits | shorten(fresh-b.Last)
}

// freshAt returns when the key may be forgotten.
func (s *slot) freshAt() int64 {
	switch s.codec() {
	case codecBucket:
		return int64(s.b&timeMask) + lengthen(s.c&freshMask)
	case codecWindow:
		return int64(s.b&timeMask) + algorithm.WindowKept(int64(s.c&stateMask))
	case codecSliding:
		period := int64(s.c & countMask)
		if s.c>>countBits&1 != 0 {
			period *= 1000
		}
		return int64(s.b&timeMask) + 2*period
	}
	return int64(s.b)
}

// rank returns the time that determines the order of eviction.
func (s *slot) rank() int64 {
	fresh := s.freshAt()
	switch s.codec() {
	case codecWindow:
		fresh -= stretch(s.a>>43|s.b>>timeBits<<21, 28)
	case codecSliding:
		fresh -= stretch(s.b>>60|s.c>>37&255<<4, 6)
	case codecRecord:
		fresh -= stretch(s.c&stateMask, 39)
	}
	return fresh
}

// times are what a store keeps in addition to the state.
type times struct{ fresh, rank int64 }

// timesOf returns the times of the state after res. The debt of a bucket is the time
// until it is fresh. The debt of a window is the used part of the limit times the time
// it stays used: since all keys of one window become fresh together, an exhausted key
// would otherwise rank the same as a hardly used one.
func timesOf(r *store.Rule, res *algorithm.Result, now int64) times {
	t := times{res.FreshAt, res.FreshAt}
	if r.Algorithm <= store.LeakyBucket || res.Limit <= 0 || res.Remaining <= 0 || t.fresh <= now {
		return t
	}
	free := min(res.Remaining, res.Limit)
	hi, lo := bits.Mul64(uint64(t.fresh-now), uint64(free))
	part, _ := bits.Div64(hi, lo, uint64(res.Limit)) // free ≤ Limit, so hi < Limit
	t.rank -= int64(part)
	return t
}

// pack returns the slot of a state, if a codec can hold it: none holds a list or
// credit.
func pack(a store.Algorithm, id identity, st *algorithm.State, t times) (slot, bool) {
	if st.Words != nil || st.Credit != 0 {
		return slot{}, false
	}
	v := &st.V
	v0, v1, v2, v3 := uint64(v[0]), uint64(v[1]), uint64(v[2]), uint64(v[3])
	s := slot{tag: id.tag, c: id.extra << extraShift}
	if v1 > timeMask {
		return s, false
	}
	switch a {
	case store.TokenBucket, store.LeakyBucket:
		if v0 > timeMask || v2 > stateMask || v3 != 0 {
			return s, false
		}
		s.setBucket(algorithm.Bucket{Used: v[0], Last: v[1], Token: v[2]}, max(t.fresh, v[1]))
		return s, true
	case store.FixedWindow:
		fresh := v[1] + algorithm.WindowKept(v[2])
		if v0 >= 1<<43 || v2 > stateMask || t.fresh > fresh {
			return s, false
		}
		d := squeezeDown(uint64(max(fresh-t.rank, 0)), 28)
		s.a, s.b, s.c = v0|d<<43, v1|d>>21<<timeBits, s.c|codecWindow<<codecShift|v2
		return s, true
	case store.SlidingWindow:
		fresh := v[1] + 2*v[2]
		if v2 > countMask {
			if v2%1000 != 0 || v2 > 1000*countMask {
				return s, false
			}
			v2 = v2/1000 | 1<<countBits
		}
		if v0 > countMask || v3 > countMask || t.fresh > fresh {
			return s, false
		}
		d := squeezeDown(uint64(max(fresh-t.rank, 0)), 6)
		s.a = v0 | v3<<countBits
		s.b = v1 | v3>>28<<timeBits | d<<60
		s.c |= codecSliding<<codecShift | v2 | d>>4<<37
		return s, true
	case store.SlidingLog, store.SlidingBuckets, store.Concurrency, store.Distinct:
	}
	return s, false
}

// packRecord returns the slot for the block at a place.
func packRecord(id identity, at place, t times) slot {
	d := squeezeDown(uint64(max(t.fresh-t.rank, 0)), 39)
	return slot{
		tag: id.tag, a: uint64(at), b: uint64(t.fresh),
		c: id.extra<<extraShift | codecRecord<<codecShift | d,
	}
}

// shorten returns d, from 0 to 2^53-1, as a floating-point number of 24 bits (6
// exponent, 18 mantissa), rounded up. It is d+1 in IEEE 754's 64-bit format, without
// the sign and most of the exponent's bias, and truncated.
func shorten(d int64) uint64 {
	const cut = 1<<cutBits - 1
	return (math.Float64bits(float64(d+1)) - ieeeBias + cut) >> cutBits
}

// lengthen is the inverse of shorten.
func lengthen(f uint64) int64 {
	return int64(math.Float64frombits(f<<cutBits+ieeeBias)) - 1
}

// squeezeDown returns d as a floating-point number with the given number of mantissa
// bits, and the exponent above them, rounded down.
func squeezeDown(d uint64, mantissa int) uint64 {
	e := bits.Len64(d >> mantissa)
	return uint64(e)<<mantissa | d>>e
}

// stretch is the inverse of squeezeDown.
func stretch(f uint64, mantissa int) int64 {
	return int64(f & (1<<mantissa - 1) << (f >> mantissa))
}
