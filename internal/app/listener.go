package app

import (
	"net"

	"github.com/headgate/headgate/internal/transport/netbound"
)

// The bounds on connections that are open at once.
const (
	maxConnections      = 10_000
	maxAdminConnections = 1000
)

// wrap puts around the listener of a door what lies between the network and
// the protocol. From the outside in: the PROXY protocol, which says who is at
// the other end; the bound on the connections of one client; that on all; and then, at the server of the door,
// TLS.
func (a *App) wrap(d *openDoor, l net.Listener) net.Listener {
	log := a.log.With("door", d.Name)
	d.watched = netbound.Watch(l, log)
	l = a.boundsClients(d, a.namesClients(d.Name, d.watched))
	if d.Counts {
		return l
	}
	o := netbound.Options{Max: a.capacity.parts[d.Name], Logger: log, Policy: d.Policy}
	if !d.Reserved {
		o.Busy = a.tooBusy
	}
	d.bound = netbound.New(l, o)
	return d.bound
}
