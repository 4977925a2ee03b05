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
	// MaxConnections is how many may be open at once, MaxPerClient how many of
	// one client (negative: any number); 0 leaves the door's default.
	MaxConnections, MaxPerClient int64
	// IdleTimeout is how long a connection may be silent between commands; 0
	// for as long as it likes.
	IdleTimeout time.Duration
}

// respSettings are the keys of the Redis protocol.
func respSettings() []setting {
	return append(tlsSettings(DoorRESP, func(c *Config) *TLS { return &c.RESP.TLS }),
		one("listen.resp", func(c *Config, v string) (err error) { c.Listen.RESP, err = address(v); return err }),
		one("resp.password", func(c *Config, v string) error { c.RESP.Password = Secret(v); return nil }),
		secretFrom("resp.password_file", func(c *Config, v string) error { c.RESP.Password = Secret(v); return nil }),
		one("resp.max_connections", func(c *Config, v string) (err error) {
			c.RESP.MaxConnections, err = wholeNumber(v, 1_000_000)
			return err
		}),
		perClient(DoorRESP, func(c *Config) *int64 { return &c.RESP.MaxPerClient }),
		one("resp.idle_timeout", func(c *Config, v string) (err error) {
			c.RESP.IdleTimeout, err = duration(v, 0)
			return err
		}),
	)
}

// checkRESP refuses to open the Redis protocol to everybody who can reach it.
func (c *Config) checkRESP() error {
	l, source, tls := c.Listen.RESP, "listen.resp", &c.RESP.TLS
	if c.OnShared(DoorRESP) {
		l, source, tls = c.Listen.Shared, "listen.shared", &c.Shared.TLS
	}
	if l == "" || l == Off || IsLoopback(l) || c.RESP.Password != "" || tls.ClientCA != "" {
		return nil
	}
	return &SourceError{
		Source: source, Message: fmt.Sprintf("%s can be reached from other machines, and there is no password", l),
		Hint: "set HEADGATE_RESP_PASSWORD or resp.password, ask for client certificates with tls.client_ca, or listen on " + DefaultRESP,
	}
}
