package app

import (
	"context"
	"net"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/door"
	"github.com/headgate/headgate/internal/transport/netbound"
	"github.com/headgate/headgate/internal/transport/oneport"
)

// sharedDoor is the port that several doors share.
func (a *App) sharedDoor() door.Door {
	return door.Door{
		Name: config.DoorShared, ALPN: oneport.Protocols(), Policy: netbound.ByRead,
		Open: func(*door.Process) (door.Server, error) { return sharedPort{a.port}, nil },
	}
}

// openShared adds the doors that are behind the port.
func (a *App) openShared(root *openDoor) {
	c := a.options.Config
	a.port = oneport.New(root.listener, oneport.Options{TLS: a.tlsOf(root.Name), Timeout: c.Shared.HandshakeTimeout})
	for _, kind := range a.kinds {
		if c.OnShared(kind.Name) {
			a.add(&openDoor{Door: kind, listener: a.port.Listener(kind.Speaks), over: root.bound})
		}
	}
}

// sharedPort tells the connections of the port apart.
type sharedPort struct{ port *oneport.Port }

// Serve implements [door.Server].
func (s sharedPort) Serve(net.Listener) error { return s.port.Serve() }

// Drain implements [door.Drainer].
func (s sharedPort) Drain(ctx context.Context) { s.port.Drain(ctx) }

// Shutdown implements [door.Server].
func (s sharedPort) Shutdown(context.Context) error { return s.port.Close() }
