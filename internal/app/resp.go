package app

import (
	"fmt"
	"net"

	"github.com/headgate/headgate/internal/door/resp"
	"github.com/headgate/headgate/internal/transport/overload"
)

// serveRESP answers at d, the door of the Redis protocol, in the background.
func (a *App) serveRESP(d *door) error {
	c := &a.options.Config.RESP
	o := resp.Options{
		Engine: a.engine, Store: a.store, Clients: a.clients, Clock: a.options.Clock, Logger: a.log,
		Password: string(c.Password), MaxConnections: a.respConnections(), IdleTimeout: c.IdleTimeout,
		Version: a.options.Version, TLS: a.tlsOf(d.name), Buffers: a.capacity.rooms.resp(),
		Misled: a.warnOfHTTP(d), Failures: a.wrong(DoorRESP), Full: a.tooBusy, Busy: func() bool { return a.sheds(overload.Request) },
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

// warnOfHTTP says, once a minute at most, that somebody speaks HTTP at the door of
// the Redis protocol: a health check that is set up wrong, or a page in a browser.
func (a *App) warnOfHTTP(d *door) func(remote net.Addr) {
	var told seldom
	return func(remote net.Addr) {
		if told.passes(a.options.Clock()) {
			a.log.Warn("HTTP at the door of the Redis protocol, connection closed, which is told once a minute",
				"door", d.name, "remote", remote.String(), "closed", d.resp.Stats().Misled)
		}
	}
}

// respConnections is how many connections the door of the Redis protocol has
// room for: its part of the descriptors, or of the shared port what is asked for.
func (a *App) respConnections() int {
	if part := a.capacity.parts[DoorRESP]; part > 0 {
		return part
	}
	return int(a.options.Config.RESP.MaxConnections)
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
