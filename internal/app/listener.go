package app

import (
	"cmp"
	"net"

	"github.com/headgate/headgate/internal/netbound"
)

// The bounds on connections that are open at once.
const (
	maxConnections      = 10_000
	maxAdminConnections = 1000
)

// wrap puts around the listener of a door what lies between the network and
// the protocol. From the outside in: the PROXY protocol, which says who is at
// the other end; the bound on connections; and then, at the server of the door,
// TLS.
func (a *App) wrap(d *door, l net.Listener) net.Listener {
	l = a.namesClients(d.name, l)
	if d.name == backendDoor || d.name == DoorRESP {
		return l // it is our own; it has a bound of its own, which tells
	}
	o := netbound.Options{Max: cmp.Or(a.maxConnections(d.name), maxConnections), Logger: a.log.With("door", d.name)}
	if d.name == DoorGRPC {
		o.Policy = netbound.ByRead
	}
	d.bound = netbound.New(l, o)
	return d.bound
}

func (a *App) maxConnections(door string) int {
	if door == DoorAdmin {
		return maxAdminConnections
	}
	return 0
}
