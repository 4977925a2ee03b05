package serving

import (
	"crypto/tls"

	"github.com/headgate/headgate/internal/door"
	"github.com/headgate/headgate/internal/transport/certs"
)

// loadCertificates reads those of the doors, so that what is wrong is known
// before a door is opened. The error is a *config.SourceError.
func (d *Doors) loadCertificates() error {
	for _, k := range d.kinds {
		t := &k.set.TLS
		if !t.Enabled() || !k.set.Open() {
			continue
		}
		var err error
		k.certificate, err = certs.Load(
			certs.Files{Cert: t.Cert, Key: t.Key, ClientCA: t.ClientCA, ClientNames: t.ClientNames},
			certs.Options{Protocols: k.ALPN, MinVersion: t.MinVersion, Logger: d.Logger.With("door", k.Name)},
		)
		if err != nil {
			return door.CertificateError(k.Name+".tls", err)
		}
	}
	return nil
}

// encryption returns what encrypts a door, or nil.
func (k *kind) encryption() *tls.Config {
	if k.certificate == nil {
		return nil
	}
	return k.certificate.Config()
}

// Reload reads all certificates now, and what else doors follow. What is wrong has
// been logged, and the old ones stay in use.
func (d *Doors) Reload() {
	for _, k := range d.kinds {
		if k.certificate != nil {
			_ = k.certificate.Reload()
		}
	}
	for _, o := range d.open {
		if r, ok := o.server.(door.Reloader); ok {
			r.Reload()
		}
	}
}
