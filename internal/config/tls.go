package config

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// The names of the doors, which are also those of their sections.
const (
	DoorAPI    = "api"
	DoorGRPC   = "grpc"
	DoorRESP   = "resp"
	DoorProxy  = "proxy"
	DoorAdmin  = "admin"
	DoorShared = "shared"
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

// UpstreamTLS is how an upstream is called by https.
type UpstreamTLS struct {
	// CA has the authorities that are believed; if empty, those of the system.
	CA string
	// Cert and Key say who we are, ServerName whom to expect if not the host.
	Cert, Key, ServerName string
	// MinVersion is as of TLS.
	MinVersion uint16
}

// tlsSettings are the keys of the TLS of a door.
func tlsSettings(door string, of func(*Config) *TLS) []setting {
	file := func(name string, field func(*TLS) *string) setting {
		return setting{key: door + ".tls." + name, path: true, set: func(c *Config, v []string) error { *field(of(c)) = v[0]; return nil }}
	}
	return []setting{
		file("cert", func(t *TLS) *string { return &t.Cert }),
		file("key", func(t *TLS) *string { return &t.Key }),
		file("client_ca", func(t *TLS) *string { return &t.ClientCA }),
		{key: door + ".tls.client_names", list: true, set: func(c *Config, v []string) error { of(c).ClientNames = v; return nil }},
		// The same for a single one.
		one(door+".tls.client_name", func(c *Config, v string) error { of(c).ClientNames = []string{v}; return nil }),
		one(door+".tls.min_version", func(c *Config, v string) (err error) { of(c).MinVersion, err = tlsVersion(v); return err }),
	}
}

// upstreamSettings are the keys of the TLS of the upstream.
func upstreamSettings() []setting {
	return clientSettings("proxy.upstream_tls", func(c *Config) *UpstreamTLS { return &c.Proxy.UpstreamTLS })
}

// clientSettings are the keys of how somebody else is called by TLS.
func clientSettings(section string, of func(*Config) *UpstreamTLS) []setting {
	set := func(name string, path bool, field func(*UpstreamTLS) *string) setting {
		return setting{key: section + "." + name, path: path, set: func(c *Config, v []string) error {
			*field(of(c)) = v[0]
			return nil
		}}
	}
	return []setting{
		set("ca", true, func(t *UpstreamTLS) *string { return &t.CA }),
		set("cert", true, func(t *UpstreamTLS) *string { return &t.Cert }),
		set("key", true, func(t *UpstreamTLS) *string { return &t.Key }),
		set("server_name", false, func(t *UpstreamTLS) *string { return &t.ServerName }),
		one(section+".min_version", func(c *Config, v string) (err error) {
			of(c).MinVersion, err = tlsVersion(v)
			return err
		}),
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

// maxSecret is the size of the largest file with a secret, in bytes.
const maxSecret = 64 << 10

// secretFrom reads a secret from a file, as container platforms mount them. A
// line break at its end is not part of it.
func secretFrom(key string, set func(*Config, string) error) setting {
	return setting{key: key, path: true, set: func(c *Config, v []string) error {
		f, err := os.Open(v[0])
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }() // it was only read
		if info, err := f.Stat(); err == nil {
			c.warnOfSecret(key, v[0], info)
		}
		text, err := io.ReadAll(io.LimitReader(f, maxSecret+1))
		switch {
		case err != nil:
			return err
		case len(text) > maxSecret:
			return fmt.Errorf("%s: the file is larger than 64 KiB", v[0])
		}
		text = bytes.TrimRight(text, "\r\n")
		if len(text) == 0 {
			return fmt.Errorf("%s: the file is empty", v[0])
		}
		if err := set(c, string(text)); err != nil {
			if h, ok := errors.AsType[*hinted](err); ok {
				return &hinted{v[0] + ": " + h.message, h.hint}
			}
			return fmt.Errorf("%s: %w", v[0], err)
		}
		return nil
	}}
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

// lines returns those of a text that are not empty.
func lines(text string) []string {
	var all []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			all = append(all, line)
		}
	}
	return all
}

// count is a setting with a number from 1 to most.
func count(key string, field func(*Config) *int64, most int64) setting {
	return one(key, func(c *Config, v string) (err error) { *field(c), err = wholeNumber(v, most); return err })
}

// period is a setting with a duration of at least a tenth of a second.
func period(key string, field func(*Config) *time.Duration) setting {
	return one(key, func(c *Config, v string) (err error) { *field(c), err = duration(v, 100*time.Millisecond); return err })
}
