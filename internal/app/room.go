package app

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/internal/observe/metrics"
	"github.com/headgate/headgate/internal/transport/membound"
)

const (
	// mostRoom is what the callers of a door may keep in memory together, in
	// bytes, where there is enough of it; leastRoom is what they may in any case.
	mostRoom  = 64 << 20
	leastRoom = 2 << 20
	// roomShare is the part of the limit of memory that this takes at most: no
	// door may bring the process to where it refuses requests at all others.
	roomShare = 8
)

// openRooms makes what the callers of each door may keep in memory, when it is
// asked for.
func (a *App) openRooms() {
	a.capacity.rooms = map[string]func() *membound.Bound{}
	for _, kind := range a.kinds {
		if kind.Keeps {
			a.capacity.rooms[kind.Name] = sync.OnceValue(func() *membound.Bound {
				return membound.New(membound.Options{Most: a.roomOfADoor(), Client: a.countedClient})
			})
		}
	}
}

// roomOfADoor is how many bytes that is.
func (a *App) roomOfADoor() int64 {
	limit, limited := a.memoryLimit()
	if !limited {
		return mostRoom
	}
	return min(mostRoom, max(limit/roomShare, leastRoom))
}

// roomMetrics tells what of it is taken.
func (a *App) roomMetrics(c *metrics.Asked) {
	held := c.Gauge("headgate_room_bytes", "Bytes of large requests that are arriving; at api and admin also all that connections of HTTP/2 keep.", "door")
	ended := c.Counter("headgate_room_evicted_total", "Large requests that were refused, or connections of HTTP/2 that were closed, since they had kept memory for long that others needed.", "door")
	c.Ask(func(out chan<- prometheus.Metric) {
		for door, room := range a.capacity.rooms {
			held(out, float64(room().Held()), door)
			ended(out, float64(room().Evicted()), door)
		}
	})
}
