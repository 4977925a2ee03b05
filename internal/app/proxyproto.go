package app

import (
	"net"
	"slices"

	"github.com/headgate/headgate/internal/transport/proxyproto"
)

// namesClients puts the PROXY protocol around the listener of a door, if the
// door is to speak it.
func (a *App) namesClients(door string, l net.Listener) net.Listener {
	c := &a.options.Config.ProxyProtocol
	if !slices.Contains(c.Doors, door) {
		return l
	}
	var told seldom
	return proxyproto.NewListener(l, proxyproto.Options{
		Trusts: a.clients.TrustsAddr, Untrusted: c.Untrusted,
		Refused: func(peer net.Addr, err error) {
			if !told.passes(a.options.Clock()) {
				a.log.Debug("connection refused", "door", door, "peer", peer.String(), "err", err)
				return
			}
			a.log.Warn("connection refused; others within a minute are told at level debug",
				"door", door, "peer", peer.String(), "err", err)
		},
	})
}
