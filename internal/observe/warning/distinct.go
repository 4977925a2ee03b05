package warning

import (
	"math"
	"math/bits"
	"sync/atomic"
)

// bitmap has a bit for each of a range of hashes.
type bitmap []atomic.Uint64

func newBitmap(size int) bitmap { return make(bitmap, size/64) }

// has reports whether the bit of a hash is set.
func (b bitmap) has(hash uint64) bool {
	return b[hash/64%uint64(len(b))].Load()&(1<<(hash%64)) != 0
}

// set sets the bit of a hash and reports whether it was not set. It writes only then, so
// that cores do not contend for keys that are known.
func (b bitmap) set(hash uint64) bool {
	word, bit := &b[hash/64%uint64(len(b))], uint64(1)<<(hash%64)
	return word.Load()&bit == 0 && word.Or(bit)&bit == 0
}

func (b bitmap) clear() {
	for i := range b {
		b[i].Store(0)
	}
}

// distinct estimates how many hashes were set in either of two bitmaps, by linear
// counting (K.-Y. Whang et al., "A Linear-Time Probabilistic Counting Algorithm for
// Database Applications", TODS 1990). full is the share of bits that are set.
func distinct(a, b bitmap) (n, full float64) {
	set := 0
	for i := range a {
		set += bits.OnesCount64(a[i].Load() | b[i].Load())
	}
	size := float64(64 * len(a))
	full = float64(set) / size
	return -size * math.Log(max(1-full, 1/size)), full
}

const (
	fullnessBits = 8192
	// halfLooks is how many looks half of the time takes that fullness is about: keys of
	// the last 5 to 10 s.
	halfLooks = 5
	// leastActive is the minimum of active keys for a statement about most of them.
	leastActive = 10
	// leastLimit is the minimum of a limit for levels below 100%: one of one used is not
	// near the limit, it is what the limit is for.
	leastLimit = 4
	maxShift   = 24
)

// fullness counts the active keys of a rule, and those that have used up shares of their
// limit. With more keys than fit, it samples them by their hash.
type fullness struct {
	shift atomic.Uint32                 // one key in 1<<shift is counted
	now   atomic.Uint32                 // which half of the time is current
	half  [2][1 + MaxLevels]bitmap      // all keys, then those at each level
	peak  [2][1 + MaxLevels]atomic.Bool // the same for a rule without a key
	looks int
}

func newFullness(levels int) *fullness {
	f := new(fullness)
	for i := range f.half {
		for l := range levels + 1 {
			f.half[i][l] = newBitmap(fullnessBits)
		}
	}
	return f
}

// add counts a request after which the key is at a number of levels.
func (f *fullness) add(hash uint64, keyless bool, levels int) { //nolint:revive // a fact, not a mode
	now := f.now.Load()
	if keyless {
		for l := range levels + 1 {
			if !f.peak[now][l].Load() {
				f.peak[now][l].Store(true)
			}
		}
		return
	}
	if hash>>40&(1<<f.shift.Load()-1) != 0 {
		return
	}
	for l := range levels + 1 {
		f.half[now][l].set(hash)
	}
}

// level returns how many levels most keys have reached, and about how many keys are
// active and how many are at that level; for level 0, near is 0.
func (f *fullness) level(levels int) (level int, keys, near int64) {
	all, full := distinct(f.half[0][0], f.half[1][0])
	scale := float64(uint64(1) << f.shift.Load())
	keys = int64(math.Round(all * scale))
	for l := 1; l <= levels; l++ {
		if f.peak[0][l].Load() || f.peak[1][l].Load() {
			level, keys, near = l, 1, 1
		}
	}
	if level > 0 || all < leastActive || full > 0.97 {
		return level, keys, near
	}
	for l := levels; l >= 1; l-- {
		if n, _ := distinct(f.half[0][l], f.half[1][l]); 2*n >= all {
			return l, keys, int64(math.Round(n * scale))
		}
	}
	return 0, keys, 0
}

// turn starts a new half if it is time, and adapts the sample to the number of keys.
func (f *fullness) turn() {
	if f.looks++; f.looks%halfLooks != 0 {
		return
	}
	now := f.now.Load()
	_, full := distinct(f.half[now][0], f.half[now][0])
	shift := f.shift.Load()
	switch {
	case full > 0.95:
		shift += 3
	case full > 0.6:
		shift++
	case full < 0.1 && shift > 0:
		shift--
	}
	f.shift.Store(min(shift, maxShift))
	next := 1 - now
	for l, b := range f.half[next] {
		b.clear()
		f.peak[next][l].Store(false)
	}
	f.now.Store(next)
}

const (
	memoryBits = 1 << 18
	// A generation of keys lasts for as long as the mean is taken, and the one before is
	// still known: a key is new if it was not seen for 10 to 20 minutes.
	parts     = 60 // of the mean
	partLooks = 10 // looks per part, so 10 s
	lastLooks = 5  // looks that a rise is measured over
)

// newcomers counts keys that were not seen lately.
type newcomers struct {
	now  atomic.Uint32
	gen  [2]bitmap       // this generation, and the one before
	ones [2]atomic.Int64 // bits set in each
	came atomic.Int64    // new keys since the last look

	looks  int64
	born   int64              // look at which this generation started
	last   [lastLooks]float64 // new keys at each of the last looks
	part   [parts]float64     // sums of 10 looks
	inPart float64            // of the part that is not complete
}

func newNewcomers() *newcomers {
	return &newcomers{gen: [2]bitmap{newBitmap(memoryBits), newBitmap(memoryBits)}}
}

// add counts a key if it is new.
func (n *newcomers) add(hash uint64) {
	now := n.now.Load()
	if !n.gen[now].set(hash) {
		return
	}
	n.ones[now].Add(1)
	if !n.gen[1-now].has(hash) {
		n.came.Add(1)
	}
}

// compare returns how many keys were new in the last 5 looks, and in 5 looks of the mean,
// once it has seen enough for a mean.
func (n *newcomers) compare() (last, usual float64, known bool) {
	// A new key is mistaken for a known one if its bit is set already.
	now := n.now.Load()
	free := (1 - float64(n.ones[0].Load())/memoryBits) * (1 - float64(n.ones[1].Load())/memoryBits)
	came := float64(n.came.Swap(0)) / max(free, 0.05)
	n.last[n.looks%lastLooks] = came
	n.inPart += came
	n.looks++
	if n.looks%partLooks == 0 {
		n.part[n.looks/partLooks%parts], n.inPart = n.inPart, 0
	}
	if n.looks-n.born >= parts*partLooks || n.ones[now].Load() > memoryBits*4/5 {
		next := 1 - now
		n.gen[next].clear()
		n.ones[next].Store(0)
		n.now.Store(next)
		n.born = n.looks
	}
	for _, c := range n.last {
		last += c
	}
	for _, p := range n.part {
		usual += p
	}
	return last, usual * lastLooks / (parts * partLooks), n.looks > parts*partLooks
}
