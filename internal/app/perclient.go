package app

import (
	"net"
	"net/netip"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/internal/door"
	"github.com/headgate/headgate/internal/observe/metrics"
	"github.com/headgate/headgate/internal/transport/netbound"
)

// boundsClients puts around the listener of a door the bound on the connections
// of a single client, unless there is none.
func (a *App) boundsClients(d *openDoor, l net.Listener) net.Listener {
	most := a.maxPerClient(d.Name)
	if most < 0 {
		return l
	}
	log := a.log.With("door", d.Name)
	var told door.Seldom
	d.clients = netbound.NewPerClient(l, netbound.PerClientOptions{
		Max: most, Client: a.countedClient,
		Refused: func(client netip.Prefix) {
			if told.Passes(a.options.Clock()) {
				log.Warn("a client has too many connections, further ones are closed", "client", client.String(), "max", most,
					"refused", d.clients.Refused(), "hint", "if many clients share this address, as behind a load balancer, "+
						"name it in trusted_proxies, or raise "+d.Name+".max_connections_per_client")
			}
		},
	})
	return d.clients
}

// maxPerClient is how many connections a client may have at a door: what is
// configured, else half of what there is room for; negative for any number.
func (a *App) maxPerClient(name string) int {
	set := a.options.Config.Door(name)
	if chosen := set.HTTP.MaxPerClient; chosen != 0 {
		return int(chosen)
	}
	return max(a.capacity.parts[name]/2, 1)
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
				refused(out, float64(d.clients.Refused()), d.Name)
			}
		}
	})
}
