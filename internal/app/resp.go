package app

import (
	"fmt"

	"github.com/headgate/headgate/internal/door/resp"
)

// serveRESP answers at d, the door of the Redis protocol, in the background.
func (a *App) serveRESP(d *door) error {
	c := &a.options.Config.RESP
	o := resp.Options{
		Engine: a.engine, Store: a.store, Clients: a.clients, Clock: a.options.Clock, Logger: a.log,
		Password: string(c.Password), MaxConnections: int(c.MaxConnections), IdleTimeout: c.IdleTimeout,
		Version: a.options.Version, TLS: a.tlsOf(d.name),
	}
	d.resp = resp.New(o)
	a.log.Info("listening", "door", d.name, "address", d.listener.Addr().String(), "tls", a.isEncrypted(d.name))
	go func() {
		defer close(d.done)
		if err := d.resp.Serve(d.listener); err != nil {
			a.failures <- fmt.Errorf("%s: %w", d.name, err)
		}
	}()
	return nil
}

// serverOf returns what serves a door that does not speak HTTP.
func (a *App) serverOf(name string) func(*door) error {
	switch name {
	case DoorGRPC:
		return a.serveGRPC
	case DoorRESP:
		return a.serveRESP
	case DoorShared:
		return a.serveShared
	}
	return nil
}
