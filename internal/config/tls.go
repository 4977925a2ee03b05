package config

import (
	"crypto/tls"
	"fmt"
	"os"

	"github.com/headgate/headgate/internal/transport/certs"
)

// TLS has the files that encrypt a door, and what is asked of its clients.
type TLS struct {
	// Cert and Key are the certificate and its key, in PEM; ClientCA has the
	// authorities of clients' certificates.
	Cert, Key, ClientCA string
	// ClientNames are the names of which a client's certificate must have one;
	// any will do if there are none.
	ClientNames []string
	// MinVersion is the least version, as crypto/tls numbers them; 0 is the
	// default, 1.2.
	MinVersion uint16
}

// Enabled reports whether there is a certificate.
func (t *TLS) Enabled() bool { return t.Cert != "" }

// check finds what is missing.
func (t *TLS) check(door string) error {
	section := door + ".tls"
	switch {
	case t.Cert == "" && t.Key == "" && t.ClientCA == "" && len(t.ClientNames) == 0 && t.MinVersion == 0:
		return nil
	case t.Cert == "":
		return &SourceError{Source: section + ".cert", Message: "there is no certificate, and the door would not be encrypted", Hint: "name the PEM file of the certificate and its chain"}
	case t.Key == "":
		return &SourceError{Source: section + ".key", Message: "there is no key for the certificate", Hint: "name the PEM file of its private key"}
	case len(t.ClientNames) > 0 && t.ClientCA == "":
		return &SourceError{Source: section + ".client_names", Message: "names cannot be checked without the authority that vouches for them", Hint: "set " + section + ".client_ca"}
	}
	return nil
}

// tlsSettings are the keys of the TLS of a door.
func tlsSettings(door string) []Setting {
	of := func(c *Config) *TLS { return &c.Door(door).TLS }
	at := door + ".tls."
	return []Setting{
		Path(at+"cert", func(c *Config) *string { return &of(c).Cert }),
		Path(at+"key", func(c *Config) *string { return &of(c).Key }),
		Path(at+"client_ca", func(c *Config) *string { return &of(c).ClientCA }),
		List(at+"client_names", func(c *Config, v []string) error { of(c).ClientNames = v; return nil }),
		// The same for a single one.
		One(at+"client_name", func(c *Config, v string) error { of(c).ClientNames = []string{v}; return nil }),
		parsed(at+"min_version", func(c *Config) *uint16 { return &of(c).MinVersion }, tlsVersion),
	}
}

// ClientTLS are the keys of how somebody else is called by TLS.
func ClientTLS[S any](section string, of func(*S) *certs.ClientFiles) []Setting {
	return []Setting{
		Path(section+".ca", func(s *S) *string { return &of(s).CA }),
		Path(section+".cert", func(s *S) *string { return &of(s).Cert }),
		Path(section+".key", func(s *S) *string { return &of(s).Key }),
		Text(section+".server_name", func(s *S) *string { return &of(s).ServerName }),
		parsed(section+".min_version", func(s *S) *uint16 { return &of(s).MinVersion }, tlsVersion),
	}
}

func tlsVersion(v string) (uint16, error) {
	return choice(v, func(v string) (uint16, bool) {
		switch v {
		case "1.2":
			return tls.VersionTLS12, true
		case "1.3":
			return tls.VersionTLS13, true
		}
		return 0, false
	}, "1.2", "1.3")
}

// warnOfSecret warns of a file with a secret that everybody may read.
func (c *Config) warnOfSecret(key, file string, info os.FileInfo) {
	if !info.Mode().IsRegular() || info.Mode().Perm()&0o004 == 0 {
		return
	}
	c.Warnings = append(c.Warnings, &SourceError{
		Source: key, Message: fmt.Sprintf("everybody on this machine may read the secret in %s", file), Hint: "chmod o-r, or 600",
	})
}
