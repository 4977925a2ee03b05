package app

import (
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/internal/observe/metrics"
	"github.com/headgate/headgate/internal/transport/netbound"
)

// boundsClients puts around the listener of a door the bound on the connections
// of a single client, unless there is none.
func (a *App) boundsClients(d *door, l net.Listener) net.Listener {
	most := a.maxPerClient(d.name)
	if most < 0 {
		return l
	}
	log := a.log.With("door", d.name)
	var told seldom
	d.clients = netbound.NewPerClient(l, netbound.PerClientOptions{
		Max: most, Client: a.countedClient,
		Refused: func(client netip.Prefix) {
			if told.passes(a.options.Clock()) {
				log.Warn("a client has too many connections, further ones are closed", "client", client.String(), "max", most,
					"refused", d.clients.Refused(), "hint", "if many clients share this address, as behind a load balancer, "+
						"name it in trusted_proxies, or raise "+d.name+".max_connections_per_client")
			}
		},
	})
	return d.clients
}

// maxPerClient is how many connections a client may have at a door: what is
// configured, else half of what there is room for; negative for any number.
func (a *App) maxPerClient(door string) int {
	c := a.options.Config
	var chosen int64
	room := a.capacity.parts[door]
	switch door {
	case backendDoor:
		return -1
	case DoorAPI:
		chosen = c.API.HTTP.MaxPerClient
	case DoorProxy:
		chosen = c.Proxy.HTTP.MaxPerClient
	case DoorAdmin:
		chosen = c.Admin.HTTP.MaxPerClient
	case DoorGRPC:
		chosen = c.GRPC.MaxPerClient
	case DoorRESP:
		chosen = c.RESP.MaxPerClient
	case DoorShared:
		chosen = c.Shared.MaxPerClient
	}
	if chosen != 0 {
		return int(chosen)
	}
	return max(room/2, 1)
}

// countedClient returns what counts as one client with addr. Trusted proxies
// have the connections of many clients, and this machine those of its own
// programs: neither is bounded.
func (a *App) countedClient(addr netip.Addr) (netip.Prefix, bool) {
	if a.ours(addr) || a.clients.TrustsAddr(addr) {
		return netip.Prefix{}, false
	}
	return a.clients.Network(addr), true
}

// perClientMetrics tells how many connections were refused for their client.
func (a *App) perClientMetrics(c *metrics.Asked) {
	refused := c.Counter("headgate_client_connections_refused_total", "Connections that were closed since their client had too many.", "door")
	c.Ask(func(out chan<- prometheus.Metric) {
		for _, d := range a.doors {
			if d.clients != nil {
				refused(out, float64(d.clients.Refused()), d.name)
			}
		}
	})
}

// seldom is for lines in the log that come no more than once a minute, so that
// a flood does not fill it.
type seldom struct{ last atomic.Int64 }

// passes reports whether it is time for a line again.
func (s *seldom) passes(at time.Time) bool {
	now, before := at.UnixNano(), s.last.Load()
	return (before == 0 || now-before >= int64(time.Minute)) && s.last.CompareAndSwap(before, now)
}
