package memory

import "math"

// A shard collects an eighth of its keys as candidates for eviction at a time, within
// these limits.
const leastRanked, mostRanked = 16, 128

// ranking repeatedly finds the slot of lowest rank in a shard. One pass over the table
// collects the lowest ones into a heap; every slot below bound has an item there whose
// rank is at most the slot's. Ranks mostly rise; the outdated item is corrected when it
// reaches the top. A slot that sinks or is created below bound is added. Only an empty
// heap needs another pass, so the exact minimum costs little on average.
type ranking struct {
	items []ranked // a heap, lowest first
	bound int64    // math.MinInt64: nothing was collected
	most  int      // how many are collected at a time
}

type ranked struct {
	rank int64
	tag  uint64
}

const rankedBytes = 16

func (q *ranking) reset() { q.items, q.bound = q.items[:0], math.MinInt64 }

// note adds a slot that was created or has sunk. The caller must have checked that the
// rank is below bound.
func (q *ranking) note(rank int64, tag uint64) {
	if len(q.items) >= 2*q.most {
		q.trim()
		q.heapify()
		if rank >= q.bound {
			return
		}
	}
	q.items = append(q.items, ranked{rank, tag})
	q.up(len(q.items) - 1)
}

// trim keeps the lower half, in any order.
func (q *ranking) trim() {
	items := q.items
	// Hoare's selection: narrow down to the part that contains the median.
	for low, high := 0, len(items)-1; low < high; {
		pivot, i, j := items[(low+high)/2].rank, low, high
		for i <= j {
			for items[i].rank < pivot {
				i++
			}
			for items[j].rank > pivot {
				j--
			}
			if i <= j {
				items[i], items[j] = items[j], items[i]
				i++
				j--
			}
		}
		switch {
		case q.most <= j:
			high = j
		case q.most >= i:
			low = i
		default:
			low = high // all elements between the two are equal
		}
	}
	q.bound = items[q.most].rank
	q.items = items[:q.most]
}

func (q *ranking) heapify() {
	for i := len(q.items)/2 - 1; i >= 0; i-- {
		q.down(i)
	}
}

func (q *ranking) pop() {
	last := len(q.items) - 1
	q.items[0] = q.items[last]
	q.items = q.items[:last]
	q.down(0)
}

func (q *ranking) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if q.items[parent].rank <= q.items[i].rank {
			return
		}
		q.items[parent], q.items[i] = q.items[i], q.items[parent]
		i = parent
	}
}

func (q *ranking) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(q.items) {
			return
		}
		if child+1 < len(q.items) && q.items[child+1].rank < q.items[child].rank {
			child++
		}
		if q.items[i].rank <= q.items[child].rank {
			return
		}
		q.items[i], q.items[child] = q.items[child], q.items[i]
		i = child
	}
}

// collect starts over with a pass over slots, and reports whether any of them is fresh
// at now.
func (q *ranking) collect(slots []slot, now int64) (fresh bool) {
	q.items, q.bound = q.items[:0], math.MaxInt64
	for i := range slots {
		s := &slots[i]
		if s.tag == 0 {
			continue
		}
		if rank := s.rank(); rank < q.bound {
			fresh = fresh || rank <= now && s.freshAt() <= now
			q.items = append(q.items, ranked{rank, s.tag})
			if len(q.items) == 2*q.most {
				q.trim()
			}
		}
	}
	if len(q.items) > q.most {
		q.trim()
	}
	q.heapify()
	return fresh
}
