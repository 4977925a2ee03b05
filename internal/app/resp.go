package app

import (
	"fmt"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/door/resp"
	"github.com/headgate/headgate/internal/door/rls"
)

// serveRESP answers at d, the door of the Redis protocol, in the background.
func (a *App) serveRESP(d *door) error {
	c := &a.options.Config.RESP
	o := resp.Options{
		Engine: a.engine, Store: a.store, Clients: a.clients, Clock: a.options.Clock, Logger: a.log,
		Password: string(c.Password), MaxConnections: int(c.MaxConnections), IdleTimeout: c.IdleTimeout,
		Version: a.options.Version,
	}
	if t := c.TLS; t != (config.TLS{}) {
		var err error
		if o.TLS, err = (rls.TLSFiles{Cert: t.Cert, Key: t.Key, ClientCA: t.ClientCA, ClientName: t.ClientName}).Load(); err != nil {
			return &config.SourceError{Source: "resp.tls", Message: err.Error()}
		}
	}
	d.resp = resp.New(o)
	a.log.Info("listening", "door", d.name, "address", d.listener.Addr().String(), "tls", o.TLS != nil)
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
	}
	return nil
}
