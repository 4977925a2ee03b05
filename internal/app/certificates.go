package app

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"time"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/transport/certs"
	"github.com/headgate/headgate/internal/transport/oneport"
)

// certificates are those of the doors that have some, and of the proxy towards
// its upstream.
type certificates struct {
	doors    map[string]*certs.Server
	upstream *certs.Client // nil if there is nothing particular about it
}

// loadCertificates reads all of them, so that what is wrong is known before a
// door is opened. The error is a *config.SourceError.
func (a *App) loadCertificates() error {
	c := a.options.Config
	a.certificates.doors = map[string]*certs.Server{}
	for _, d := range []struct {
		name, address string
		tls           *config.TLS
		protocols     []string
	}{
		{DoorAPI, c.Listen.API, &c.API.TLS, []string{"h2", "http/1.1"}},
		{DoorGRPC, c.Listen.GRPC, &c.GRPC.TLS, []string{"h2"}},
		{DoorRESP, c.Listen.RESP, &c.RESP.TLS, nil},
		{DoorAdmin, c.Listen.Admin, &c.Admin.TLS, []string{"h2", "http/1.1"}},
		{DoorProxy, c.Proxy.Listen, &c.Proxy.TLS, []string{"h2", "http/1.1"}},
		{DoorShared, c.Listen.Shared, &c.Shared.TLS, oneport.Protocols()},
	} {
		if !d.tls.Enabled() || !isOpen(d.address) || d.name == DoorProxy && !a.proxyOpen() {
			continue
		}
		server, err := certs.Load(certs.Files{
			Cert: d.tls.Cert, Key: d.tls.Key, ClientCA: d.tls.ClientCA, ClientNames: d.tls.ClientNames,
		}, certs.Options{Protocols: d.protocols, MinVersion: d.tls.MinVersion, Logger: a.log.With("door", d.name)})
		if err != nil {
			return wrongCertificate(d.name+".tls", err)
		}
		a.certificates.doors[d.name] = server
	}
	u := c.Proxy.UpstreamTLS
	if u == (config.UpstreamTLS{}) || !c.Proxy.Open() {
		return nil
	}
	var err error
	a.certificates.upstream, err = certs.LoadClient(clientFiles(&u), a.log.With("for", "upstream"))
	if err != nil {
		return wrongCertificate("proxy.upstream_tls", err)
	}
	return nil
}

// clientFiles are those that t names.
func clientFiles(t *config.UpstreamTLS) certs.ClientFiles {
	return certs.ClientFiles{CA: t.CA, Cert: t.Cert, Key: t.Key, ServerName: t.ServerName, MinVersion: t.MinVersion}
}

// wrongCertificate names the key of the file that is wrong.
func wrongCertificate(section string, err error) error {
	source := section
	if wrong, ok := errors.AsType[*certs.Error](err); ok {
		source += "." + wrong.Key
		err = &certs.Error{Key: wrong.File, Err: wrong.Err}
	}
	return &config.SourceError{Source: source, Message: err.Error()}
}

// tlsOf returns what encrypts a door, or nil.
func (a *App) tlsOf(door string) *tls.Config {
	if s := a.certificates.doors[door]; s != nil {
		return s.Config()
	}
	return nil
}

// isEncrypted reports whether callers of a door speak TLS, be it to the port
// that it shares with others.
func (a *App) isEncrypted(door string) bool {
	if a.options.Config.OnShared(door) {
		door = DoorShared
	}
	return a.certificates.doors[door] != nil
}

// reloadCertificates reads them all now. What is wrong has been logged, and the
// old ones stay in use.
func (a *App) reloadCertificates() {
	for _, s := range a.certificates.doors {
		_ = s.Reload()
	}
	if c := a.certificates.upstream; c != nil {
		_ = c.Reload()
	}
}

// upstreamTimeout is how long it may take to reach an upstream by TLS.
const upstreamTimeout = 10 * time.Second

// dialUpstream returns what calls the upstream by https, if there is something
// particular about that; otherwise nil.
func (a *App) dialUpstream(dial func(context.Context, string, string) (net.Conn, error)) func(context.Context, string, string) (net.Conn, error) {
	if a.certificates.upstream == nil {
		return nil
	}
	call := a.certificates.upstream.Dialer(dial, "h2", "http/1.1")
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, upstreamTimeout)
		defer cancel()
		return call(ctx, network, address)
	}
}
