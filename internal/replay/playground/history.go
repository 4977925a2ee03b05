package playground

// history is what passed and when, the oldest first: the exact log, without a
// limit of its own.
type history struct {
	entries []entry
	head    int // the oldest that is kept
	total   int64
}

type entry struct{ at, cost int64 }

func (h *history) add(at, cost int64) {
	h.entries = append(h.entries, entry{at, cost})
	h.total += cost
}

// forget drops what passed at a time or before.
func (h *history) forget(at int64) {
	for h.head < len(h.entries) && h.entries[h.head].at <= at {
		h.total -= h.entries[h.head].cost
		h.head++
	}
	if h.head > len(h.entries)/2 {
		n := copy(h.entries, h.entries[h.head:])
		h.entries, h.head = h.entries[:n], 0
	}
}
