package config

import (
	"fmt"
	"time"
)

// DefaultRESP is the address of the Redis protocol.
const DefaultRESP = "127.0.0.1:6380"

// RESP is the door of the Redis protocol.
type RESP struct {
	// Password is what AUTH must give; empty for no question.
	Password Secret
	TLS      TLS
	// MaxConnections is how many may be open at once; 0 leaves the door's
	// default.
	MaxConnections int64
	// IdleTimeout is how long a connection may be silent between commands; 0
	// for as long as it likes.
	IdleTimeout time.Duration
}

// respSettings are the keys of the Redis protocol.
func respSettings() []setting {
	file := func(key string, field func(*TLS) *string) setting {
		return setting{key: key, path: true, set: func(c *Config, v []string) error { *field(&c.RESP.TLS) = v[0]; return nil }}
	}
	return []setting{
		one("listen.resp", func(c *Config, v string) (err error) { c.Listen.RESP, err = address(v); return err }),
		one("resp.password", func(c *Config, v string) error { c.RESP.Password = Secret(v); return nil }),
		file("resp.tls.cert", func(t *TLS) *string { return &t.Cert }),
		file("resp.tls.key", func(t *TLS) *string { return &t.Key }),
		file("resp.tls.client_ca", func(t *TLS) *string { return &t.ClientCA }),
		one("resp.tls.client_name", func(c *Config, v string) error { c.RESP.TLS.ClientName = v; return nil }),
		one("resp.max_connections", func(c *Config, v string) (err error) {
			c.RESP.MaxConnections, err = wholeNumber(v, 1_000_000)
			return err
		}),
		one("resp.idle_timeout", func(c *Config, v string) (err error) {
			c.RESP.IdleTimeout, err = duration(v, 0)
			return err
		}),
	}
}

// checkRESP refuses to open the Redis protocol to everybody who can reach it.
func (c *Config) checkRESP() error {
	l := c.Listen.RESP
	if l == "" || l == Off || IsLoopback(l) || c.RESP.Password != "" || c.RESP.TLS.ClientCA != "" {
		return nil
	}
	return &SourceError{
		Source: "listen.resp", Message: fmt.Sprintf("%s can be reached from other machines, and there is no password", l),
		Hint: "set HEADGATE_RESP_PASSWORD or resp.password, ask for client certificates with resp.tls.client_ca, or listen on " + DefaultRESP,
	}
}
