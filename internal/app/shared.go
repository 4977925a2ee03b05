package app

import (
	"context"
	"fmt"

	"github.com/headgate/headgate/internal/transport/oneport"
)

// openShared opens the port that several doors share, and those doors.
func (a *App) openShared(ctx context.Context) error {
	c := a.options.Config
	if err := a.open(ctx, DoorShared, c.Listen.Shared); err != nil {
		return err
	}
	root := a.doors[len(a.doors)-1]
	root.port = oneport.New(root.listener, oneport.Options{
		TLS: a.tlsOf(DoorShared), Timeout: c.Shared.HandshakeTimeout,
	})
	for _, d := range [...]struct {
		name   string
		speaks oneport.Protocol
	}{{DoorAPI, oneport.HTTP}, {DoorGRPC, oneport.GRPC}, {DoorRESP, oneport.RESP}} {
		if c.OnShared(d.name) {
			a.add(&door{name: d.name, listener: root.port.Listener(d.speaks), over: root.bound, done: make(chan struct{})})
		}
	}
	return nil
}

// serveShared tells the connections of d apart in the background.
func (a *App) serveShared(d *door) error {
	d.started = true
	a.log.Info("listening", "door", d.name, "address", d.listener.Addr().String(), "tls", a.isEncrypted(d.name))
	go func() {
		defer close(d.done)
		if err := d.port.Serve(); err != nil {
			a.failures <- fmt.Errorf("%s: %w", d.name, err)
		}
	}()
	return nil
}
