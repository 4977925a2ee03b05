package algorithm

// ring is the list of counters of sliding buckets. Each has 1, 2, 4 or 8 bytes: the
// least that holds the largest of them so far. A word holds the counters of 8 bytes,
// the first in its lowest bits.
type ring struct {
	words  []uint64
	n      int64 // counters
	newest int64 // the index of the newest sub-window's counter; older ones precede it
	log    uint  // a counter has 1<<log bytes
}

const (
	// widest is the log of the widest counters, of 8 bytes.
	widest = 3
	// The parts of V[3].
	ringLogBits = 2
	ringBits    = 12 // of the number of counters, and the log
	ringMask    = 1<<ringBits - 1
)

// ring returns the counters of s.
func (s *State) ring() ring {
	v := s.V[3]
	return ring{s.Words, v & ringMask >> ringLogBits, v >> ringBits, uint(v & widest)}
}

// keep writes everything but the counters back to s.
func (g *ring) keep(s *State) {
	s.Words, s.V[3] = g.words, g.newest<<ringBits|g.n<<ringLogBits|int64(g.log)
}

// counters returns how many s has.
func (s *State) counters() int64 { return s.V[3] & ringMask >> ringLogBits }

// logOf returns the log of the narrowest counter that holds count.
func logOf(count int64) uint {
	switch {
	case count < 1<<8:
		return 0
	case count < 1<<16:
		return 1
	case count < 1<<32:
		return 2
	}
	return widest
}

// renew makes g a ring of n zeros, each with space for count.
func (g *ring) renew(n, count int64) {
	*g = ring{words: g.words[:0], n: n, log: logOf(count)}
	g.lengthen()
}

// lengthen gives g as many words as its counters need. New ones are 0.
func (g *ring) lengthen() {
	had, size := len(g.words), int(g.n<<g.log+7)>>3
	if size > cap(g.words) {
		words := make([]uint64, size)
		copy(words, g.words)
		g.words = words
		return
	}
	g.words = g.words[:size]
	clear(g.words[had:])
}

// index returns where the sub-window is that is older than the newest by age, which
// must be less than n.
func (g ring) index(age int64) int64 {
	if age > g.newest {
		age -= g.n
	}
	return g.newest - age
}

// at returns counter i.
func (g ring) at(i int64) int64 {
	if g.log == 0 { // most often
		return int64(g.words[i>>widest] >> (uint(i) << 3 & 63) & 0xff)
	}
	each := (widest - g.log) & widest // the log of how many a word holds
	return int64(g.words[i>>each] >> (uint(i) << (g.log + 3) & 63) & (1<<(8<<g.log&127) - 1))
}

// put sets counter i, and widens all of them if it does not fit.
func (g *ring) put(i, count int64) {
	if log := logOf(count); log > g.log {
		g.widen(log)
	}
	each := (widest - g.log) & widest
	shift := uint(i) << (g.log + 3) & 63
	word := &g.words[i>>each]
	*word = *word&^((1<<(8<<g.log&127)-1)<<shift) | uint64(count)<<shift
}

// widen gives the counters more bytes, from the last to the first: each moves to where
// those after it were.
func (g *ring) widen(log uint) {
	from := *g
	g.log = log
	g.lengthen()
	from.words = g.words
	for i := g.n - 1; i >= 0; i-- {
		g.put(i, from.at(i))
	}
}

// advance moves the newest sub-window on by some, which are empty.
func (g *ring) advance(by int64) {
	for range min(by, g.n) {
		if g.newest++; g.newest == g.n {
			g.newest = 0
		}
		g.put(g.newest, 0)
	}
}

// sum returns the total of the newest sub-windows.
func (g ring) sum(newest int64) int64 {
	const few = 4
	gone := g.n - newest
	switch {
	case newest <= 0:
		return 0
	case gone <= few:
		total := totalOf(g.words, g.log)
		for age := newest; age < g.n; age++ {
			total -= g.at(g.index(age))
		}
		return total
	case newest-1 > g.newest:
		return g.between(g.index(newest-1), g.n-1) + g.between(0, g.newest)
	}
	return g.between(g.newest-newest+1, g.newest)
}

// between returns the total of the counters from first to last.
func (g ring) between(first, last int64) int64 {
	each := (widest - g.log) & widest
	words := g.words[first>>each : last>>each+1]
	before := uint64(1)<<(uint(first)<<(g.log+3)&63) - 1
	through := ^uint64(0) >> ((64 - 8<<g.log - uint(last)<<(g.log+3)) & 63)
	outside := [2]uint64{words[0] & before, words[len(words)-1] &^ through}
	return totalOf(words, g.log) - totalOf(outside[:], g.log)
}

// totalOf returns the total of all counters in words. It adds each to its neighbour, in
// twice the width, in which 513 of them do not overflow.
func totalOf(words []uint64, log uint) int64 {
	var sums uint64
	switch log {
	case 0:
		for _, word := range words {
			sums += word&0x00ff00ff00ff00ff + word>>8&0x00ff00ff00ff00ff
		}
		sums = sums&0x0000ffff0000ffff + sums>>16&0x0000ffff0000ffff
		sums = sums&0xffffffff + sums>>32
	case 1:
		for _, word := range words {
			sums += word&0x0000ffff0000ffff + word>>16&0x0000ffff0000ffff
		}
		sums = sums&0xffffffff + sums>>32
	case 2:
		for _, word := range words {
			sums += word&0xffffffff + word>>32
		}
	default:
		for _, word := range words {
			sums += word
		}
	}
	return int64(sums)
}
