package app

import (
	"net"
	"slices"

	"github.com/headgate/headgate/internal/door"
	"github.com/headgate/headgate/internal/transport/proxyproto"
)

// namesClients puts the PROXY protocol around the listener of a door, if the
// door is to speak it.
func (a *App) namesClients(name string, l net.Listener) net.Listener {
	c := &a.options.Config.ProxyProtocol
	if !slices.Contains(c.Doors, name) {
		return l
	}
	var told door.Seldom
	return proxyproto.NewListener(l, proxyproto.Options{
		Trusts: a.clients.TrustsAddr, Untrusted: c.Untrusted,
		Refused: func(peer net.Addr, err error) {
			if !told.Passes(a.options.Clock()) {
				a.log.Debug("connection refused", "door", name, "peer", peer.String(), "err", err)
				return
			}
			a.log.Warn("connection refused; others within a minute are told at level debug",
				"door", name, "peer", peer.String(), "err", err)
		},
	})
}
