package regions

import (
	"hash/maphash"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

const (
	shards = 64
	// ahead is for how many intervals a region asks in advance.
	ahead = 10
	// askAgain is after how many intervals it asks again for a key.
	askAgain = 4
	// forgetAfter is after how many intervals without requests a key is forgotten.
	forgetAfter = 25
	// longestKey is the longest key, in bytes, that a region asks for.
	longestKey = 16 << 10
)

// entity is a key and what counts it. Its mark tells limits without a name apart.
type entity struct {
	scope, key string
	mark       uint64
}

// need is a key that runs low.
type need struct {
	scope     string // the Op.Scope
	limit     headgate.Limit
	requested int64 // since the last interval
	remaining int64 // at the last decision
	idle      int   // intervals since the last request
	asked     int   // intervals until it may be asked for again
	awaited   int64 // tokens that were asked for and have not come
}

// demand knows which keys run low in this process.
type demand struct {
	seed   maphash.Seed
	most   int          // keys in a shard
	asked  atomic.Int64 // tokens that were asked for and have not come
	turn   int          // the shard that is next to ask
	shards [shards]struct {
		mu    sync.Mutex
		needs map[entity]*need
	}
}

func newDemand(keys int) *demand {
	d := &demand{seed: maphash.MakeSeed(), most: max(keys/shards, 1)}
	for i := range d.shards {
		d.shards[i].needs = make(map[entity]*need)
	}
	return d
}

// note notes a request for a key that has little left.
func (d *demand) note(op *store.Op, whole headgate.Limit, remaining int64) {
	if len(op.Key) > longestKey {
		return
	}
	space := store.Op{Scope: op.Scope, Rule: whole.Rule()}
	scope, mark := space.Space()
	sh := &d.shards[maphash.String(d.seed, op.Key)%shards]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	n := sh.needs[entity{scope, op.Key, mark}]
	if n == nil {
		if len(sh.needs) >= d.most {
			return
		}
		n = new(need)
		sh.needs[entity{strings.Clone(scope), strings.Clone(op.Key), mark}] = n
		n.scope = strings.Clone(op.Scope)
	}
	n.limit, n.remaining, n.idle = whole, remaining, 0
	n.requested += min(op.Cost, whole.Burst())
}

// busy reports whether a key is in demand in this process.
func (d *demand) busy(e entity) bool {
	sh := &d.shards[maphash.String(d.seed, e.key)%shards]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	n := sh.needs[e]
	return n != nil && n.idle < ahead
}

// received notes that tokens of a key have arrived.
func (d *demand) received(e entity, tokens int64) {
	sh := &d.shards[maphash.String(d.seed, e.key)%shards]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if n := sh.needs[e]; n != nil {
		n.remaining += tokens
		came := min(tokens, n.awaited)
		n.asked, n.awaited = 0, n.awaited-came
		d.asked.Add(-came)
	}
}

// due ends an interval. It returns what to ask the other regions for, as much as one message
// holds, and forgets keys without requests. If there is more to ask for than that, the
// shards that are left begin at the next interval.
func (d *demand) due(p *parts) (wants []want) {
	asked, size := int64(0), 0
	begins := d.turn
	for i := range shards {
		at := (begins + i) % shards
		sh := &d.shards[at]
		sh.mu.Lock()
		for e, n := range sh.needs {
			if n.idle++; n.idle > forgetAfter {
				delete(sh.needs, e)
				continue
			}
			if n.asked = max(n.asked-1, 0); n.asked == 0 {
				n.awaited = 0
			}
			if len(wants) < mostWants && size < mostBytes {
				if tokens := n.wanted(p.of(n.limit).Burst()); tokens > 0 {
					n.asked, n.awaited = askAgain, tokens
					wants = append(wants, want{entity: e, scope: n.scope, limit: n.limit, tokens: tokens})
					size += len(e.key) + len(n.scope)
					d.turn = at
				}
			}
			asked += n.awaited
			n.requested /= 2
		}
		sh.mu.Unlock()
	}
	d.asked.Store(asked)
	return wants
}

// wanted returns how many tokens to ask for: those of the next intervals at the present
// rate, but at least a quarter of the part, and no more than fit into it.
func (n *need) wanted(part int64) int64 {
	enough := max(n.requested*ahead/2, part/4, 1)
	if n.asked > 0 || n.requested == 0 || n.remaining >= min(enough, part) {
		return 0
	}
	return min(2*enough, part) - max(n.remaining, 0)
}
