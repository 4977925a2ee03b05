package selfservice

import (
	"hash/maphash"
	"sync/atomic"
	"time"
)

const (
	gateBurst    = 60          // answers that a client gets at once
	gateInterval = time.Second // until it gets another
	gateRows     = 2           // slots that count each client
	gateSlots    = 8192        // per row: 128 KiB in all
	gateAtOnce   = 64          // answers in progress
)

// Gate limits how often each client asks, in a fixed amount of memory. A client is
// counted in two slots and refused once both are full, so another client must share
// both with it to be refused in its place. It is safe for concurrent use.
type Gate struct {
	seed   maphash.Seed
	inside atomic.Int64
	slots  [gateRows][gateSlots]atomic.Int64 // when the slot is empty again, in microseconds
}

// NewGate returns a Gate that has seen no client.
func NewGate() *Gate { return &Gate{seed: maphash.MakeSeed()} }

// admit counts a request of a client at a time, in microseconds since the Unix epoch. It
// reports how long to wait if the client has asked too often.
func (g *Gate) admit(client string, at int64) (wait time.Duration, ok bool) {
	const interval, most = int64(gateInterval / time.Microsecond), int64(gateBurst * gateInterval / time.Microsecond)
	hash, full := maphash.String(g.seed, client), int64(0)
	for row := range g.slots {
		slot := &g.slots[row][hash%gateSlots]
		hash /= gateSlots
		for {
			was := slot.Load()
			next := max(was, at) + interval
			if over := next - at - most; over > 0 {
				if full == 0 || over < full {
					full = over
				}
				break
			}
			if slot.CompareAndSwap(was, next) {
				ok = true
				break
			}
		}
	}
	if ok {
		return 0, true
	}
	return time.Duration(full) * time.Microsecond, false
}

// enter reports whether another answer may be worked out now. If so, leave must follow.
func (g *Gate) enter() bool {
	if g.inside.Add(1) > gateAtOnce {
		g.inside.Add(-1)
		return false
	}
	return true
}

func (g *Gate) leave() { g.inside.Add(-1) }
