package store

import (
	"math/bits"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/base/plain"
)

// Share says that a request takes from its owner's fair share of a bucket; see [Op.Share].
type Share struct {
	Fair *Fair
	// Of is who shares: opaque bytes of any length. A store may read it only during the call.
	Of string
	// Weight is how much of the bucket its owner may have, compared with the others: from 1
	// to MaxWeight.
	Weight int64
}

// Price returns what a token costs the owner while the bucket is full; see [Fair.Token].
func (s *Share) Price() int64 { return max(s.Fair.Token/s.Weight, 1) }

// Clone returns a copy that does not use the caller's memory; nil for nil.
func (s *Share) Clone() *Share {
	if s == nil {
		return nil
	}
	return &Share{Fair: s.Fair, Of: strings.Clone(s.Of), Weight: s.Weight}
}

// MaxWeight is the largest weight of a [Share].
const MaxWeight = 1000

// Fair is how a bucket is shared: what NewFair makes. It must not be changed.
//
// Everybody has a bucket of time, which holds one horizon. A request pays for its tokens
// with time, at a price that depends on the level of the shared bucket alone: the emptier,
// the more. At the level at which as much is taken as is refilled, all pay the same, and
// have the same for their weight. So nothing needs to know who else there is.
type Fair struct {
	Time *Rule // the bucket of time
	// Token is what a token costs while the shared bucket is full, in 128ths of the units of
	// Time: half of the time in which it is refilled. The price doubles so many times until
	// the bucket is empty; then two tokens cost a horizon.
	Token, Doublings int64
}

// FairFineness is the number of bits of a fraction of a doubling, and of Fair.Token.
const FairFineness = 7

// The bounds of what can be shared.
const (
	// LeastHorizon is the shortest horizon.
	LeastHorizon = time.Second
	// MostHorizon is the longest horizon.
	MostHorizon = 24 * time.Hour
	// LeastFairBurst is the smallest burst: the level of less says too little.
	LeastFairBurst = 20
	// LeastFair is how many tokens a horizon must have: ten for each of two.
	LeastFair = 20
)

// NewFair returns how the bucket r is shared: usage and idleness count for one horizon. The
// error wraps [ErrInvalidLimit].
func NewFair(r *Rule, horizon time.Duration) (*Fair, error) {
	switch err := r.Validate(); {
	case err != nil:
		return nil, err
	case !r.CanShare():
		return nil, plain.Error(ErrInvalidLimit, "only a token bucket can be shared fairly, and none of which each region has a part")
	case horizon < LeastHorizon || horizon > MostHorizon:
		return nil, plain.Error(ErrInvalidLimit, "a horizon must be from one second to 24 hours")
	case r.Burst < LeastFairBurst:
		return nil, plain.Error(ErrInvalidLimit, "to be shared fairly, a bucket needs a burst of at least 20")
	case InHorizon(r, horizon) < LeastFair:
		return nil, plain.Error(ErrInvalidLimit, "to be shared fairly, a bucket must refill at least 20 tokens in a horizon")
	}
	tokens, us := InHorizon(r, horizon), int64(horizon/time.Microsecond)
	units := us
	for units<<1 <= MaxLimit {
		units <<= 1
	}
	return &Fair{
		Time:      Compile(Settings{Algorithm: TokenBucket, Limit: units, Period: us}),
		Token:     max(units<<FairFineness/(2*tokens), 1),
		Doublings: int64(bits.Len64(uint64(tokens))),
	}, nil
}

// InHorizon returns how many tokens the bucket r refills in a horizon.
func InHorizon(r *Rule, horizon time.Duration) int64 {
	hi, lo := bits.Mul64(uint64(r.Limit), uint64(max(horizon/time.Microsecond, 0)))
	if hi >= uint64(r.Period) {
		return MaxLimit
	}
	n, _ := bits.Div64(hi, lo, uint64(r.Period))
	return int64(min(n, MaxLimit))
}

// CanShare reports whether r can be shared fairly: it must be a token bucket, all of which
// is in one store. Of a limit in blocks, an op with a Share is always decided by the store.
func (r *Rule) CanShare() bool {
	return r.bucket && r.Algorithm == TokenBucket && !r.Shared()
}

// shares reports whether Share counts for o.
func (o *Op) shares() bool {
	switch o.Kind {
	case KindTake, KindPeek, KindCharge, KindRefund, KindTakeUpTo, KindReserve, KindDraw:
		return o.Share != nil && !o.Rule.Unlimited
	case KindGrant, KindReset, KindRelease, KindRenew, KindTimes:
	}
	return false
}

// Shared returns the share that o takes from or gives back to, or nil: for stores.
func (o *Op) Shared() *Share {
	if o.shares() {
		return o.Share
	}
	return nil
}

// errShare is the error of an op with an impossible Share.
var errShare = plain.Error(ErrInvalidLimit, "a fair share needs a token bucket, what NewFair returned, a weight from 1 to 1000, no Leave, and a kind other than TakeUpTo, Reserve and Draw")

func (o *Op) shareIsValid() bool {
	if o.Kind == KindTakeUpTo || o.Kind == KindReserve || o.Kind == KindDraw {
		return false
	}
	s := o.Share
	return s.Fair != nil && s.Weight >= 1 && s.Weight <= MaxWeight && o.Leave == 0 && o.Rule.CanShare()
}
