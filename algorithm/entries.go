package algorithm

import (
	"math/bits"
	"slices"

	"github.com/headgate/headgate/store"
)

// The entries of a sliding log are in Words: the newest in the head, the others in a
// stream of bits behind it. The head is:
//
//	Words[0]  the time of the oldest entry that is kept, times 64, plus the width k
//	Words[1]  where the stream ends, times 128, plus the size of its last entry
//	Words[2]  the count of the newest entry; its time is V[2]
//
// Positions are in bits from the start of Words; the newest entry's is the end of the
// stream. An entry in the stream is its count and the gap to the next entry's time. Most
// have a count of 1 and a gap of less than 3·2^k, and are gap / 2^k ones, a zero, and
// the low k bits of the gap. The others are three ones, the lengths of gap and count in
// 6 bits each, the gap and the count.
//
// k is the length of period / limit. So a full log of counts of 1 takes at most k + 7
// bits an entry, however they lie in the period, and mostly less than k + 2.
const (
	entryHead  = 3              // words before the stream
	entryFirst = entryHead * 64 // its first position
	widthBits  = 6
	sizeBits   = 7
	lengthBits = 6
	mostOnes   = 3
	entryMost  = mostOnes + 2*lengthBits + 53 + 53 // no entry has more bits
)

// cursor is the place of an entry in a log or a list of leases, or behind the newest.
type cursor struct {
	i    int64 // the position, or the index in Words of a lease
	at   int64 // the entry's time
	gone int64 // the places of the entries passed
}

// places returns what an entry counts against the longest list of entries.
func places(count int64) int64 {
	if count >= logLong {
		return 2
	}
	return 1
}

// first returns the place of the oldest entry that is kept.
func (s *State) first(a store.Algorithm) cursor {
	switch {
	case s.V[1] >= int64(len(s.Words)) && a != store.SlidingLog || len(s.Words) == 0:
		return cursor{i: s.V[1]}
	case a != store.SlidingLog:
		return cursor{i: s.V[1], at: int64(s.Words[s.V[1]] >> logShift)}
	}
	return cursor{i: s.V[1], at: int64(s.Words[0] >> widthBits)}
}

// end returns the place behind the newest entry.
func (s *State) end(a store.Algorithm) int64 {
	switch {
	case a != store.SlidingLog:
		return int64(len(s.Words))
	case len(s.Words) == 0:
		return 0
	}
	return s.streamEnd() + 1
}

func (s *State) streamEnd() int64 { return int64(s.Words[1] >> sizeBits) }

// entry returns the count of the entry at c and the place after it.
func (s *State) entry(a store.Algorithm, c cursor) (count int64, next cursor) {
	if a != store.SlidingLog {
		_, count, next.i = leaseEntry(s.Words, c.i)
		if next.i < int64(len(s.Words)) {
			next.at = int64(s.Words[next.i] >> logShift)
		}
		return count, next
	}
	if c.i == s.streamEnd() {
		count = int64(s.Words[2])
		return count, cursor{c.i + 1, 0, c.gone + places(count)}
	}
	gap, count, i := entryAt(s.Words, s.width(), c.i)
	return count, cursor{i, c.at + gap, c.gone + places(count)}
}

// width returns k.
func (s *State) width() uint { return uint(s.Words[0] & (1<<widthBits - 1)) }

// widthFor returns k for entries that are gap apart on average.
func widthFor(gap int64) uint { return uint(bits.Len64(uint64(gap))) }

// entryAt reads the entry at position i.
func entryAt(words []uint64, k uint, i int64) (gap, count, next int64) {
	x := bitsAt(words, i)
	if ones := uint(bits.TrailingZeros64(^x)); ones < mostOnes {
		return int64(ones)<<(k&63) | int64(x>>(ones+1)&(1<<(k&63)-1)), 1, i + int64(ones+1+k)
	}
	g, c := x>>mostOnes&(1<<lengthBits-1), x>>(mostOnes+lengthBits)&(1<<lengthBits-1)
	i += mostOnes + 2*lengthBits
	gap = int64(bitsAt(words, i) & (1<<g - 1))
	i += int64(g)
	return gap, int64(bitsAt(words, i) & (1<<c - 1)), i + int64(c)
}

// bitsAt returns the 64 bits at position i, with zeros behind the last word.
func bitsAt(words []uint64, i int64) uint64 {
	word, shift := uint(i>>6), uint(i&63)
	x := words[word] >> shift
	if word++; word < uint(len(words)) {
		x |= words[word] << (64 - shift)
	}
	return x
}

// putBits writes the low n bits of x, the others of which must be 0, at position i.
func putBits(words []uint64, i int64, x, n uint64) {
	word, shift := i>>6, uint64(i&63)
	mask := uint64(1)<<n - 1
	words[word] = words[word]&^(mask<<shift) | x<<shift
	if shift+n > 64 {
		words[word+1] = words[word+1]&^(mask>>(64-shift)) | x>>(64-shift)
	}
}

// entrySize returns how many bits an entry takes.
func entrySize(k uint, gap, count int64) int64 {
	if ones := gap >> k; count == 1 && ones < mostOnes {
		return ones + 1 + int64(k)
	}
	return mostOnes + 2*lengthBits + int64(bits.Len64(uint64(gap))+bits.Len64(uint64(count)))
}

// putEntry writes an entry at position i.
func putEntry(words []uint64, k uint, i, gap, count int64) {
	if ones := gap >> k; count == 1 && ones < mostOnes {
		low := uint64(gap) & (1<<k - 1)
		putBits(words, i, 1<<ones-1|low<<(ones+1), uint64(ones)+1+uint64(k))
		return
	}
	g, c := uint64(bits.Len64(uint64(gap))), uint64(bits.Len64(uint64(count)))
	putBits(words, i, 1<<mostOnes-1|g<<mostOnes|c<<(mostOnes+lengthBits), mostOnes+2*lengthBits)
	i += mostOnes + 2*lengthBits
	putBits(words, i, uint64(gap), g)
	putBits(words, i+int64(g), uint64(count), c)
}

// wordsFor returns how many words reach up to position end.
func wordsFor(end int64) int { return int((end + 63) >> 6) }

// appendEntry appends an entry to a sliding log. at must not be before the newest.
func (s *State) appendEntry(r *store.Rule, at, count int64) {
	if len(s.Words) == 0 {
		s.startLog(widthFor(r.Period/max(r.Limit, 1)), at, 0)
	} else {
		s.pushEntry(r, at-s.V[2], int64(s.Words[2]))
	}
	s.Words[2] = uint64(count)
	s.V[0] += count
	s.V[2] = at
	s.V[3] += places(count)
}

// pushEntry appends an entry to the stream.
func (s *State) pushEntry(r *store.Rule, gap, count int64) {
	size := entrySize(s.width(), gap, count)
	if wordsFor(s.streamEnd()+size) > cap(s.Words) {
		s.makeSpace(r)
		size = entrySize(s.width(), gap, count)
	}
	end := s.streamEnd()
	s.Words = s.Words[:wordsFor(end+size)]
	putEntry(s.Words, s.width(), end, gap, count)
	s.Words[1] = uint64(end+size)<<sizeBits | uint64(size)
}

// addToNewest adds to the newest entry and moves its time to at.
func (s *State) addToNewest(r *store.Rule, at, n int64) {
	if at > s.V[2] && wordsFor(s.streamEnd()+entryMost) > cap(s.Words) {
		s.makeSpace(r) // for a larger gap before it
	}
	count := int64(s.Words[2])
	s.Words[2] = uint64(count + n)
	s.V[0] += n
	s.V[3] += places(count+n) - places(count)
	late := at - s.V[2]
	if s.V[2] = at; late == 0 {
		return
	}
	size := int64(s.Words[1] & (1<<sizeBits - 1))
	end := s.streamEnd() - size
	if end < s.V[1] || size == 0 { // it is the only one
		s.Words[0] = uint64(at)<<widthBits | uint64(s.width())
		return
	}
	gap, before, _ := entryAt(s.Words, s.width(), end)
	s.Words[1] = uint64(end) << sizeBits
	s.pushEntry(r, gap+late, before)
}

// startLog makes s a log with one entry, and with space for a stream of some bits.
func (s *State) startLog(k uint, at, size int64) {
	if n := wordsFor(entryFirst + size); n > cap(s.Words) {
		s.Words = make([]uint64, 0, n) // no more: a store may keep as many
	}
	s.Words = append(s.Words[:0], uint64(at)<<widthBits|uint64(k), entryFirst<<sizeBits, 0)
	s.V[1] = entryFirst
}

// Moving the entries to the front is worth while once leastGone words, and one part in
// partGone, are before them. Where there is no space, it grows by one part in partMore.
const leastGone, partGone, partMore = 4, 64, 16

// makeSpace moves the entries to the front, where those were that no longer count, or
// into more memory.
func (s *State) makeSpace(r *store.Rule) {
	gone := s.V[1]>>6 - entryHead
	if gone >= max(leastGone, int64(len(s.Words))/partGone) {
		s.Words = s.Words[:entryHead+copy(s.Words[entryHead:], s.Words[entryHead+gone:])]
		s.V[1] -= gone << 6
		s.Words[1] -= uint64(gone<<6) << sizeBits
		return
	}
	old, k := *s, widthFor(r.Period/max(r.Limit, 1))
	if k == old.width() {
		live := len(s.Words) - int(gone)
		s.Words = append(make([]uint64, 0, live+max(live/partMore, leastGone)+wordsFor(entryMost)), s.Words[:entryHead]...)
		s.Words = append(s.Words, old.Words[entryHead+gone:]...)
		s.V[1] -= gone << 6
		s.Words[1] -= uint64(gone<<6) << sizeBits
		return
	}
	live, c := old.sizeIn(k), old.first(r.Algorithm)
	s.Words = nil
	s.startLog(k, c.at, live+max(live/partMore, leastGone*64)+entryMost)
	s.rewrite(&old, c, func(_, count int64) int64 { return count })
}

// sizeIn returns the size of the stream with another width.
func (s *State) sizeIn(k uint) (size int64) {
	const a = store.SlidingLog
	for c, end := s.first(a), s.streamEnd(); c.i < end; {
		count, next := s.entry(a, c)
		size += entrySize(k, next.at-c.at, count)
		c = next
	}
	return size
}

// rewrite replaces the entries of s by those of from at c and after it, with new
// counts, none of them larger than before; it drops those of 0. from may be a copy of s
// with the same words.
func (s *State) rewrite(from *State, c cursor, keep func(at, count int64) int64) {
	const a = store.SlidingLog
	end, k, shared := from.end(a), s.width(), &from.Words[0] == &s.Words[0]
	s.V = [4]int64{1: entryFirst}
	to, newest, last := int64(entryFirst), int64(0), int64(0)
	for c.i < end {
		count, next := from.entry(a, c)
		if count = keep(c.at, count); count > 0 {
			if newest == 0 {
				s.Words[0] = uint64(c.at)<<widthBits | uint64(k)
			} else {
				last = entrySize(k, c.at-s.V[2], newest)
				if shared && to+last > c.i { // into what has not been read
					from.Words, shared = slices.Clone(from.Words), false
				}
				n := max(len(s.Words), wordsFor(to+last))
				s.Words = slices.Grow(s.Words, n-len(s.Words))[:n]
				putEntry(s.Words, k, to, c.at-s.V[2], newest)
				to += last
			}
			newest = count
			s.V[0] += count
			s.V[2] = c.at
			s.V[3] += places(count)
		}
		c = next
	}
	if newest == 0 {
		s.Words, s.V = s.Words[:0], [4]int64{}
		return
	}
	s.Words = s.Words[:wordsFor(to)]
	s.Words[1], s.Words[2] = uint64(to)<<sizeBits|uint64(last), uint64(newest)
}
