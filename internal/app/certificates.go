package app

import (
	"crypto/tls"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/door"
	"github.com/headgate/headgate/internal/transport/certs"
)

// loadCertificates reads those of the doors, so that what is wrong is known
// before a door is opened. The error is a *config.SourceError.
func (a *App) loadCertificates() error {
	a.certificates = map[string]*certs.Server{}
	for _, kind := range a.kinds {
		set := a.options.Config.Door(kind.Name)
		if !set.TLS.Enabled() || !set.Open() {
			continue
		}
		server, err := certs.Load(certs.Files{
			Cert: set.TLS.Cert, Key: set.TLS.Key, ClientCA: set.TLS.ClientCA, ClientNames: set.TLS.ClientNames,
		}, certs.Options{Protocols: kind.ALPN, MinVersion: set.TLS.MinVersion, Logger: a.log.With("door", kind.Name)})
		if err != nil {
			return door.CertificateError(kind.Name+".tls", err)
		}
		a.certificates[kind.Name] = server
	}
	return nil
}

// tlsOf returns what encrypts a door, or nil.
func (a *App) tlsOf(name string) *tls.Config {
	if s := a.certificates[name]; s != nil {
		return s.Config()
	}
	return nil
}

// isEncrypted reports whether callers of a door speak TLS, be it to the port
// that it shares with others.
func (a *App) isEncrypted(name string) bool {
	if a.options.Config.OnShared(name) {
		name = config.DoorShared
	}
	return a.certificates[name] != nil
}

// reloadCertificates reads them all now, and what else doors follow. What is
// wrong has been logged, and the old ones stay in use.
func (a *App) reloadCertificates() {
	for _, s := range a.certificates {
		_ = s.Reload()
	}
	for _, d := range a.doors {
		if r, ok := d.server.(door.Reloader); ok {
			r.Reload()
		}
	}
}
