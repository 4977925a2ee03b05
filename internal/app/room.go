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

// rooms are what the callers of each door may keep in memory. Those of the HTTP
// API share one: bodies over HTTP/1, and connections of HTTP/2.
type rooms struct {
	api, admin, resp func() *membound.Bound
}

// openRooms makes the rooms when they are asked for.
func (a *App) openRooms() {
	room := func() *membound.Bound {
		return membound.New(membound.Options{Most: a.roomOfADoor(), Client: a.countedClient})
	}
	a.capacity.rooms = rooms{api: sync.OnceValue(room), admin: sync.OnceValue(room), resp: sync.OnceValue(room)}
}

// roomOfADoor is how many bytes that is.
func (a *App) roomOfADoor() int64 {
	limit, limited := a.memoryLimit()
	if !limited {
		return mostRoom
	}
	return min(mostRoom, max(limit/roomShare, leastRoom))
}

// roomMetrics tells what of it is taken. That of gRPC is in grpcMetrics.
func (a *App) roomMetrics(c *metrics.Asked) {
	held := c.Gauge("headgate_room_bytes", "Bytes of large requests that are arriving; at api and admin also all that connections of HTTP/2 keep.", "door")
	ended := c.Counter("headgate_room_evicted_total", "Large requests that were refused, or connections of HTTP/2 that were closed, since they had kept memory for long that others needed.", "door")
	c.Ask(func(out chan<- prometheus.Metric) {
		if a.capacity.rooms.api == nil {
			return // not opened yet
		}
		for door, room := range map[string]*membound.Bound{
			DoorAPI: a.capacity.rooms.api(), DoorAdmin: a.capacity.rooms.admin(), DoorRESP: a.capacity.rooms.resp(),
		} {
			held(out, float64(room.Held()), door)
			ended(out, float64(room.Evicted()), door)
		}
	})
}
