package store

import (
	"math"
	"math/bits"
	"time"
)

// Blocks says how a limit is shared with less than one call to the store per request: a
// process draws a block of tokens for a busy key in advance and decides alone until they
// are spent. It needs package store/blocks around the store; without it the limit counts
// exactly, with a call per request.
type Blocks struct {
	// MaxAge is the longest time between drawing a token and using it, at least a
	// microsecond. A window's tokens also end with the window. For SlidingLog it is at
	// most a twentieth of the period, because each token counts for that much longer.
	MaxAge time.Duration
	// MaxOver is the largest burst above a token bucket's own, as a part of that, from 0
	// to 1: with 0.05, a burst of 1000 may let 1050 pass at once. It shortens MaxAge to
	// the time in which so much is refilled. With 0 nothing is ever admitted too much;
	// then what is refilled in MaxAge is taken out of the burst. Windows never admit too
	// much, whatever it is. It counts in steps of a millionth.
	MaxOver float64
}

// millionths is what MaxOver is counted in.
const millionths = 1_000_000

const (
	badBlocks     problem = "leaky_bucket, concurrency, distinct and limits that count refused requests cannot be used in blocks: the store has to see each request"
	badBlockAge   problem = "the age of a block must be a whole number of microseconds, more than 0 and at most 407 days"
	badBlockOver  problem = "what blocks may admit above a burst must be from 0 to 1"
	badBlockBurst problem = "blocks that admit nothing above the burst take what is refilled in their age out of it, which leaves nothing: use a shorter age"
)

// InBlocks returns r so that processes draw tokens in advance and decide alone, through
// package store/blocks:
//
//	perSecond := headgate.PerSecond(10_000)
//	limit := headgate.LimitOf(perSecond.Rule().InBlocks(store.Blocks{MaxAge: time.Second, MaxOver: 0.05}))
//
// Windows and SlidingLog still never admit more than the limit. A token bucket admits at
// most [Rule.BlockOver] more, at once, however many processes there are, and its rate is
// exact in the long run. What other processes hold in advance may be refused. Queues,
// concurrency and limits that count refusals cannot be used in blocks.
func (r *Rule) InBlocks(b Blocks) *Rule {
	return r.With(func(s *Settings) {
		s.blockAge = Micros(b.MaxAge)
		if b.MaxAge <= 0 {
			s.blockAge = -1 // remembered as out of range
		}
		s.blockOver = -1
		if b.MaxOver >= 0 && b.MaxOver <= 1 {
			s.blockOver = int64(math.Round(b.MaxOver * millionths))
		}
	})
}

// Blocks returns what [Rule.InBlocks] was given, and false for a limit without blocks.
func (r *Rule) Blocks() (b Blocks, ok bool) {
	if r.blockAge <= 0 || r.blockOver < 0 {
		return b, false
	}
	return Blocks{MaxAge: time.Duration(r.blockAge) * time.Microsecond, MaxOver: float64(r.blockOver) / millionths}, true
}

// FullBurst returns the burst of a bucket, including what blocks have taken out of it.
func (r *Rule) FullBurst() int64 { return r.Burst + r.kept }

// BlockAge returns how old a block may become, or 0 if r does not use blocks.
func (r *Rule) BlockAge() time.Duration { return time.Duration(r.Age) * time.Microsecond }

// BlockOver returns how many tokens all processes together can admit above the limit, in
// any period of time: what is refilled in BlockAge. It is 0 for windows, and without
// blocks.
func (r *Rule) BlockOver() int64 {
	if r.Algorithm != TokenBucket || r.Age == 0 || r.kept > 0 {
		return 0
	}
	return r.refilled(r.Age)
}

// refilled returns at least how many tokens a bucket can gain in us microseconds.
func (r *Rule) refilled(us int64) int64 {
	if step := max(r.RefillEvery, r.Tick); step > 1 {
		us = (us/step + 1) * step // so many steps can fall into it
	}
	return mulDivUp(r.Limit, us, r.Period)
}

// mulDivUp returns ⌈a·b/c⌉, or the largest number if that is larger.
func mulDivUp(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	lo, carry := bits.Add64(lo, uint64(c-1), 0)
	if hi += carry; hi >= uint64(c) {
		return math.MaxInt64
	}
	q, _ := bits.Div64(hi, lo, uint64(c))
	return int64(min(q, math.MaxInt64))
}

// mulDivDown returns ⌊a·b/c⌋, or the largest number if that is larger.
func mulDivDown(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi >= uint64(c) {
		return math.MaxInt64
	}
	q, _ := bits.Div64(hi, lo, uint64(c))
	return int64(min(q, math.MaxInt64))
}

// compileBlocks fills in Age, and takes what blocks need out of the burst. Of a part of a
// limit, less than the whole burst is taken.
func (r *Rule) compileBlocks() problem {
	switch {
	case r.blockAge == 0:
		return valid
	case r.blockAge < 0 || r.blockAge > int64(MaxPeriod/time.Microsecond):
		return badBlockAge
	case r.blockOver < 0:
		return badBlockOver
	case !r.divides():
		return badBlocks
	case r.Limit == 0:
		return valid // it allows nothing
	}
	r.Age = min(r.blockAge, r.Period)
	switch {
	case r.Algorithm == SlidingLog:
		r.Age = min(r.Age, r.Period/logPart)
	case r.Algorithm != TokenBucket:
	case r.blockOver > 0:
		r.Age = min(r.blockAge, mulDivDown(mulDivDown(r.Burst, r.Period, r.Limit), r.blockOver, millionths))
	default:
		r.Age = r.blockAge
		return r.keep()
	}
	return valid
}

// keep takes what is refilled in Age out of the burst, so that a bucket in blocks admits
// nothing above it.
func (r *Rule) keep() problem {
	r.Burst += r.kept
	if r.kept = r.refilled(r.Age); r.kept < r.Burst {
		r.Burst -= r.kept
		return valid
	}
	r.kept = 0
	if r.part {
		r.Age = 0 // a small share counts exactly
		return valid
	}
	return badBlockBurst
}

// logPart is the part of its period that a block of a sliding log lasts at most.
const logPart = 20
