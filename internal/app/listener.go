package app

import (
	"cmp"
	"net"
	"time"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/transport/membound"
	"github.com/headgate/headgate/internal/transport/netbound"
	"github.com/headgate/headgate/internal/transport/overload"
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
func (a *App) wrap(d *door, l net.Listener) net.Listener {
	log := a.log.With("door", d.name)
	d.watched = netbound.Watch(l, log)
	l = a.boundsClients(d, a.namesClients(d.name, d.watched))
	if d.name == backendDoor || d.name == DoorRESP {
		return l // it is our own; it has a bound of its own, which tells
	}
	o := netbound.Options{Max: a.capacity.parts[d.name], Logger: log}
	if d.name != DoorAdmin {
		o.Busy = a.tooBusy
	}
	switch d.name {
	case DoorGRPC, DoorShared:
		o.Policy = netbound.ByRead
	case DoorAPI, DoorAdmin: // not the proxy, whose requests may last for hours
		o.Policy = netbound.ByStateThenRead
	}
	d.bound = netbound.New(l, o)
	return d.bound
}

// tooBusy reports whether the doors for data are to have no more connections than
// they have.
func (a *App) tooBusy() bool { return a.sheds(overload.Connection) }

// The bounds on requests over HTTP, where nobody says otherwise.
const (
	maxHeaderBytes = 64 << 10
	maxStreams     = 250
)

// boundsOf returns what callers of a door over HTTP may do: by what the process
// was made with, by the configuration, by default.
func (a *App) boundsOf(door string) bounds {
	var h config.HTTP
	var room *membound.Bound // not of the proxy, which hands on what comes
	switch c := a.options.Config; door {
	case DoorAPI:
		h, room = c.API.HTTP, a.capacity.rooms.api()
	case DoorProxy:
		h = c.Proxy.HTTP
	case DoorAdmin:
		h, room = c.Admin.HTTP, a.capacity.rooms.admin()
	}
	t := a.options.Timeouts.of(door)
	given := &a.options.Timeouts
	for _, v := range []struct {
		to           *time.Duration
		given, wants time.Duration
	}{
		{&t.Header, given.Header, h.HeaderTimeout},
		{&t.Read, given.Read, h.ReadTimeout},
		{&t.Write, given.Write, h.WriteTimeout},
		{&t.Idle, given.Idle, h.IdleTimeout},
	} {
		if v.given == 0 && v.wants > 0 {
			*v.to = v.wants
		}
	}
	return bounds{
		Timeouts: t, header: int(cmp.Or(h.MaxHeader, maxHeaderBytes)), streams: int(cmp.Or(h.MaxStreams, maxStreams)),
		cleartext: door == DoorProxy && !a.options.Config.Proxy.NoCleartextHTTP2, room: room,
	}
}
