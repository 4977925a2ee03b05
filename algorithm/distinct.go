package algorithm

import (
	"math/bits"
	"slices"

	"github.com/headgate/headgate/store"
)

// A limit of distinct values counts in a fixed window how many different values a key
// shows. Its state is that of a fixed window and the values of the window:
//
//	V[0]   how many values the window has: exact, or an estimate rounded down
//	V[1]   the end of the window
//	V[2]   the period or the calendar unit, as for a fixed window
//	V[3]   0 while each value is kept; then 65536 plus the fraction of the estimate
//	       in parts of 65536
//	Words  the values in ascending order; then those of a HyperLogLog
//
// A value is a hash of 52 bits, from 1 to 2^52-1; see [store.MemberOf]. A value that
// the window has passes and costs nothing, so a key in debt still passes with it. A
// value that is refused is not kept.
//
// A limit of up to [store.MaxDistinctExact] keeps that many values one by one, and so
// refuses each value above the limit. Only more, which charges and credit can add, are
// estimated. A larger limit keeps 4096: registers cannot tell known values from new ones
// in a large window, so such a limit measures more than it refuses, for which a list of
// up to half a megabyte a key would be too much.
//
// The next value turns the list into a HyperLogLog of 16384 registers: the
// first 14 bits of a value choose a register, which keeps the largest rank, one more
// than the number of zeros that the other 38 bits begin with. From then on a value is
// new if it changes a register. The chance that another value would is what the
// registers say: the sum of 2^-register, divided by their number. Whenever a register
// changes, the estimate grows by one divided by that chance, which is how many new
// values one change stands for ("HIP estimator", Cohen 2014 and Ting 2014). So the count
// starts exact, only grows, and needs no sum over the registers. Its standard error
// stays below 0.65 %.
//
//	Words[0]  the chance, times 2^52: from 2^52 (all empty) down to 0
//	Words[k]  registers 8k-8 to 8k-1, 6 bits each, the first in the highest of 48 bits
const (
	// valuesKept is how many values a window keeps one by one if its limit is above
	// store.MaxDistinctExact.
	valuesKept  = 4096
	registers   = 1 << 14
	rankBits    = 38
	perWord     = 8 // registers
	registerLen = 6 // bits
	// certain is the chance 1 in Words[0].
	certain       = 1 << 52
	fractionBits  = 16
	estimatedFlag = 1 << fractionBits
	// fewValues is how much space a list begins with, and at least grows by.
	fewValues = 4
)

// distinct answers all kinds that take. A cost above any limit is refused here too: it
// says that a request must not pass.
func distinct(r *store.Rule, s *State, now int64, req Request) Result {
	if req.Cost > store.MaxLimit && req.Kind != store.KindCharge && req.Kind != store.KindTakeUpTo {
		res := done(r, s, now, 0, false)
		res.Allowed, res.Reason, res.RetryAfter = false, store.ReasonTooLarge, store.Never
		return res
	}
	n, credit := min(req.Cost, 1), creditAt(s, now)
	free := max(available(r, s, now), -1)
	_, fits := split(r, n, free, credit)
	closed := r.Limit == 0 && credit == 0
	switch {
	case !closed && s.shows(now, req.Member):
		return done(r, s, now, 0, false)
	case !fits && req.Kind != store.KindCharge:
		return refuse(r, s, now, n)
	case n == 0 || req.Kind == store.KindPeek || closed:
		granted := int64(0)
		if req.Kind == store.KindCharge {
			granted = n
		}
		res := done(r, s, now, granted, false)
		if !fits {
			unpaid(r, s, now, &res)
		}
		return res
	}
	paid := int64(0) // by credit
	if free <= 0 && credit > 0 {
		paid = 1
	}
	spend(r, s, now, 0, paid)
	s.show(r, now, req.Member)
	res := took(r, s, now, 1)
	if !fits {
		unpaid(r, s, now, &res)
	}
	return res
}

// unpaid makes res say that a charge did not fit, and when a new value will.
func unpaid(r *store.Rule, s *State, now int64, res *Result) {
	refusal := refuse(r, s, now, 1)
	res.Allowed, res.Reason, res.RetryAfter = false, refusal.Reason, refusal.RetryAfter
}

// isEstimated reports whether s has registers in place of values.
func (s *State) isEstimated() bool { return s.V[3] != 0 }

// shows reports whether the window of now has a value.
func (s *State) shows(now int64, member uint64) bool {
	if member == 0 || s.V[0] == 0 || now >= s.V[1] {
		return false
	}
	if s.isEstimated() {
		word, shift, rank := register(member)
		return s.Words[word]>>shift&(1<<registerLen-1) >= rank
	}
	_, found := slices.BinarySearch(s.Words, member)
	return found
}

// show adds a value that the window of now does not have.
func (s *State) show(r *store.Rule, now int64, member uint64) {
	count, end := fixedWindow(r, s, now)
	if count == 0 {
		s.V[3] = 0
		if s.Words = s.Words[:0]; cap(s.Words) > 2*fewValues {
			s.Words = nil // most windows are smaller than the largest was
		}
	}
	more := int64(1)
	switch {
	case s.isEstimated():
		more = s.raise(member)
	case len(s.Words) < mostValues(r):
		s.insert(member, mostValues(r))
	default:
		s.estimate(member)
	}
	s.V[0] = min(count+more, maxCount)
	s.V[1], s.V[2] = end, fixedCode(r)
}

// mostValues returns how many values a window of r keeps one by one.
func mostValues(r *store.Rule) int {
	if r.Limit <= store.MaxDistinctExact {
		return store.MaxDistinctExact
	}
	return valuesKept
}

// insert puts a value into the list, which has at most most. A list grows by an eighth,
// since a store keeps as much space as it has.
func (s *State) insert(member uint64, most int) {
	i, _ := slices.BinarySearch(s.Words, member)
	if n := len(s.Words); n == cap(s.Words) {
		s.Words = append(make([]uint64, 0, min(n+max(n/8, fewValues), most)), s.Words...)
	}
	s.Words = slices.Insert(s.Words, i, member)
}

// takeBack removes a value and reports whether it could: not from registers, and not
// after the window of the take, as for a fixed window.
func (s *State) takeBack(r *store.Rule, now int64, member uint64, left int64) bool {
	count, end := fixedWindow(r, s, now)
	if count == 0 || s.isEstimated() || left > 0 && now+left < end-r.Period/2 {
		return false
	}
	i, found := slices.BinarySearch(s.Words, member)
	if !found {
		return false
	}
	s.Words = slices.Delete(s.Words, i, i+1)
	s.V[0], s.V[1], s.V[2] = count-1, end, fixedCode(r)
	return true
}

// estimate replaces the values and another one by registers.
func (s *State) estimate(member uint64) {
	values := append(s.Words, member) //nolint:gocritic // the list ends here
	s.Words = make([]uint64, 1+registers/perWord)
	s.Words[0], s.V[3] = certain, estimatedFlag
	for _, member := range values {
		word, shift, rank := register(member)
		if s.Words[word]>>shift&(1<<registerLen-1) < rank {
			s.setRegister(word, shift, rank)
		}
	}
}

// register returns where the register of a value is, and the value's rank.
func register(member uint64) (word int, shift uint, rank uint64) {
	i := member >> rankBits & (registers - 1)
	zeros := bits.LeadingZeros64(member<<(64-rankBits) | 1<<(63-rankBits))
	return 1 + int(i/perWord), uint(perWord-1-i%perWord) * registerLen, uint64(zeros) + 1
}

// chanceOf returns how probable it is that a value raises a register of that rank, times
// 2^38.
func chanceOf(rank uint64) uint64 {
	if rank > rankBits {
		return 0
	}
	return 1 << (rankBits - rank)
}

// setRegister raises a register to rank.
func (s *State) setRegister(word int, shift uint, rank uint64) {
	was := s.Words[word] >> shift & (1<<registerLen - 1)
	s.Words[word] += (rank - was) << shift
	s.Words[0] -= chanceOf(was) - chanceOf(rank)
}

// raise adds a value that changes a register, and returns by how much the estimate grows.
func (s *State) raise(member uint64) int64 {
	chance := s.Words[0] // at least 1, since a register can rise
	word, shift, rank := register(member)
	s.setRegister(word, shift, rank)
	hi, lo := bits.Mul64(certain%chance, 1<<fractionBits)
	parts, _ := bits.Div64(hi, lo, chance)
	fraction := uint64(s.V[3])&(estimatedFlag-1) + parts
	s.V[3] = int64(estimatedFlag | fraction&(estimatedFlag-1))
	return int64(certain/chance + fraction>>fractionBits)
}

// MayChangeValues reports whether a step of a limit of distinct values may change s. It
// is never false if the step does.
func MayChangeValues(r *store.Rule, s *State, now int64, req Request) bool {
	if !mayTake(req.Kind) || req.Kind == store.KindCharge {
		return true
	}
	return !s.shows(now, req.Member) && (available(r, s, now) > 0 || creditAt(s, now) > 0)
}

// PossibleValues reports whether a step could have written the state of a limit of
// distinct values.
func (u *Unpacked) PossibleValues() bool {
	if u.V[3] == 0 {
		last := int64(0)
		for _, value := range u.List {
			if value <= last || value >= certain {
				return false
			}
			last = value
		}
		return len(u.List) <= store.MaxDistinctExact && u.V[0] == int64(len(u.List))
	}
	if u.V[3]>>fractionBits != 1 || len(u.List) != 1+registers/perWord || u.V[0] < valuesKept {
		return false
	}
	chance := uint64(0)
	for _, word := range u.List[1:] {
		if word < 0 || word >= 1<<(perWord*registerLen) {
			return false
		}
		for ; word > 0; word >>= registerLen {
			if word&(1<<registerLen-1) > rankBits+1 {
				return false
			}
		}
	}
	for _, word := range u.List[1:] {
		for i := range perWord {
			chance += chanceOf(uint64(word) >> (i * registerLen) & (1<<registerLen - 1))
		}
	}
	return chance == uint64(u.List[0])
}
