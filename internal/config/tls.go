package config

import (
	"crypto/tls"
	"os"
	"strings"

	"github.com/headgate/headgate/internal/transport/certs"
)

// TLS has the certificate files of a door, and its requirements for clients. What a door
// does not set of Cert, Key and MinVersion is that of all doors.
type TLS struct {
	// Cert and Key are PEM files with the certificate and its key. ClientCA is a file
	// with the authorities of client certificates.
	Cert, Key, ClientCA string
	// ClientNames are names of which a client certificate must have one; empty allows
	// any.
	ClientNames []string
	MinVersion  uint16 // minimum version, a constant of crypto/tls; 0 is 1.2
}

// Enabled reports whether there is a certificate.
func (t *TLS) Enabled() bool { return t.Cert != "" }

// check finds missing settings.
func (t *TLS) check(section string) error {
	wrong := func(key, message, hint string) error {
		return &SourceError{Source: section + "." + key, Message: message, Hint: hint}
	}
	switch {
	case t.Cert == "" && t.Key == "" && t.ClientCA == "" && len(t.ClientNames) == 0 && t.MinVersion == 0:
	case t.Cert == "":
		return wrong("cert", "no certificate is set, so nothing would be encrypted", "set it to the PEM file of the certificate and its chain")
	case t.Key == "":
		return wrong("key", "no key is set for the certificate", "set it to the PEM file of the private key")
	case len(t.ClientNames) > 0 && t.ClientCA == "":
		return wrong("client_names", "names cannot be checked without a certificate authority", "set "+section+".client_ca")
	}
	return nil
}

// tlsSettings returns the TLS settings of a door.
func tlsSettings(door string) []Setting {
	of := func(c *Config) *TLS { return &c.Door(door).TLS }
	at := door + ".tls."
	return []Setting{
		Path(at+"cert", func(c *Config) *string { return &of(c).Cert }).Means("that of all doors", "another certificate for this door"),
		Path(at+"key", func(c *Config) *string { return &of(c).Key }).Means("that of all doors", "its private key"),
		Path(at+"client_ca", func(c *Config) *string { return &of(c).ClientCA }).Means("none", "authority of client certificates, which makes them mandatory"),
		List(at+"client_names", func(c *Config, v []string) error { of(c).ClientNames = v; return nil }).Means("any", "names of which a client certificate must have one: DNS names, URIs (SPIFFE), addresses or e-mail addresses, without wildcards"),
	}
}

// generalTLS returns the settings of the certificate of all doors.
func generalTLS() []Setting {
	return []Setting{
		Path("tls.cert", func(c *Config) *string { return &c.TLS.Cert }).Means("none", "certificate chain of all doors, except unix sockets: [TLS](run/tls.md)"),
		Path("tls.key", func(c *Config) *string { return &c.TLS.Key }).Means("none", "its private key"),
		parsed("tls.min_version", func(c *Config) *uint16 { return &c.TLS.MinVersion }, tlsVersion).As("`1.2`, `1.3`").As("`1.2`, `1.3`").Means("`1.2`", "oldest version of TLS; in YAML in quotes"),
	}
}

// inheritTLS gives each door with an address of its own what it does not set itself. A
// unix socket needs no certificate.
func (c *Config) inheritTLS() {
	for _, d := range c.doors {
		if d.Address == "" || strings.HasPrefix(d.Address, UnixPrefix) {
			continue
		}
		if d.TLS.Cert == "" && d.TLS.Key == "" {
			d.TLS.Cert, d.TLS.Key = c.TLS.Cert, c.TLS.Key
		}
		if d.TLS.Enabled() {
			d.TLS.MinVersion = c.TLS.MinVersion
		}
	}
}

// ClientTLS returns the settings for TLS connections to another server.
func ClientTLS[S any](section string, of func(*S) *certs.ClientFiles) []Setting {
	return []Setting{
		Path(section+".ca", func(s *S) *string { return &of(s).CA }).Means("the system's", "trusted authorities"),
		Path(section+".cert", func(s *S) *string { return &of(s).Cert }).Means("none", "client certificate"),
		Path(section+".key", func(s *S) *string { return &of(s).Key }).Means("none", "its private key"),
		Text(section+".server_name", func(s *S) *string { return &of(s).ServerName }).Means("the host of the upstream", "expected name in its certificate"),
		parsed(section+".min_version", func(s *S) *uint16 { return &of(s).MinVersion }, tlsVersion).As("`1.2`, `1.3`").As("`1.2`, `1.3`").Means("`1.2`", "oldest version of TLS; in YAML in quotes"),
	}
}

func tlsVersion(v string) (uint16, error) {
	versions := map[string]uint16{"1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13}
	return choice(v, func(v string) (uint16, bool) { version, ok := versions[v]; return version, ok }, "1.2", "1.3")
}

// warnOfSecret warns if every user can read a file with a secret.
func (c *Config) warnOfSecret(key, file string, info os.FileInfo) {
	if info.Mode().IsRegular() && info.Mode().Perm()&0o004 != 0 {
		c.warn(key, "every user on this machine can read the secret in "+file, "run chmod o-r or chmod 600")
	}
}
