package rules

// parts finds the rules that are filed under a part of a text that they ask for: so a
// text is searched once for all patterns with stars, however many there are.
type parts struct {
	bySize [partSizes]map[uint64][]int32
	all    []int32
}

// part is a few bytes that a text contains anywhere: 1, 2, 4 or 8.
type part struct {
	bits  uint64
	order uint8 // the logarithm of the size
}

const partSizes = 4

// textPerRule is for how many bytes of a text a search costs about as much as to look at
// a rule.
const textPerRule = 6

func (p part) size() int { return 1 << p.order }

// mask keeps the last bytes of a text, of the size of a part of that order.
func mask(order int) uint64 { return ^uint64(0) >> (64 - 8<<order) }

// partsOf yields all parts of a literal text of the largest size that it has.
func partsOf(text string) func(yield func(part) bool) {
	order := 0
	for order < partSizes-1 && 2<<order <= len(text) {
		order++
	}
	return func(yield func(part) bool) {
		var last uint64
		for i := range len(text) {
			last = last<<8 | uint64(text[i])
			if i+1 >= 1<<order && !yield(part{last & mask(order), uint8(order)}) {
				return
			}
		}
	}
}

func (x *parts) insert(p part, i int32) {
	m := &x.bySize[p.order]
	if *m == nil {
		*m = map[uint64][]int32{}
	}
	(*m)[p.bits] = append((*m)[p.bits], i)
	x.all = append(x.all, i)
}

// collect appends the rules that are filed under a part of text and end; for a text that
// takes longer to search than the rules to look at, and for one that is full of parts,
// all of them.
func (x *parts) collect(text, end string, out []int32) []int32 {
	if len(text) > textPerRule*len(x.all) {
		return append(out, x.all...)
	}
	start := len(out)
	var last uint64
	for i := range len(text) + len(end) {
		if i < len(text) {
			last = last<<8 | uint64(text[i])
		} else {
			last = last<<8 | uint64(end[i-len(text)])
		}
		for order, m := range x.bySize {
			if m != nil {
				out = append(out, m[last&mask(order)]...)
			}
		}
		if len(out)-start > len(x.all) {
			return append(out[:start], x.all...)
		}
	}
	return out
}
