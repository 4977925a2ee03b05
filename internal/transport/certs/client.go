package certs

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
)

// ClientFiles are the PEM files of a client, and the server it expects.
type ClientFiles struct {
	CA         string // trusted authorities; empty for those of the system
	Cert, Key  string // the client's certificate and key; may be empty
	ServerName string // required name in the server's certificate; empty for the host that is called
	MinVersion uint16 // minimum version of TLS; 0 means TLS 1.2
}

// Client makes TLS connections with files that it follows.
type Client struct{ *follower }

// LoadClient reads the files. The error is an *Error.
func LoadClient(f ClientFiles, log *slog.Logger) (*Client, error) {
	var names []string
	for _, name := range []string{f.Cert, f.Key, f.CA} {
		if name != "" {
			names = append(names, name)
		}
	}
	follower, err := follow(names, log, f.Load)
	if err != nil {
		return nil, err
	}
	return &Client{follower}, nil
}

// Config returns the configuration for the next connection, from the current files.
func (c *Client) Config() *tls.Config { return c.current().Clone() }

// Load reads the files once, for callers that make their own connections. The error is an
// *Error.
func (f *ClientFiles) Load() (*tls.Config, error) {
	c := &tls.Config{MinVersion: max(f.MinVersion, tls.VersionTLS12), ServerName: f.ServerName}
	if (f.Cert == "") != (f.Key == "") {
		return nil, &Error{Key: "key", File: f.Key, Err: errors.New("cert and key must be set together")}
	}
	if f.Cert != "" {
		pair, err := readPair(f.Cert, f.Key)
		if err != nil {
			return nil, err
		}
		c.Certificates = []tls.Certificate{pair}
	}
	if f.CA != "" {
		var err error
		if c.RootCAs, err = readPool("ca", f.CA); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// Dialer returns a function for http.Transport.DialTLSContext that connects with dial and
// then by TLS. It offers the protocols by ALPN.
func (c *Client) Dialer(dial func(context.Context, string, string) (net.Conn, error), protocols ...string) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		nc, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		config := c.current().Clone()
		config.NextProtos = protocols
		if config.ServerName == "" {
			host, _, err := net.SplitHostPort(address)
			if err != nil {
				_ = nc.Close()
				return nil, err
			}
			config.ServerName = host
		}
		encrypted := tls.Client(nc, config)
		if err := encrypted.HandshakeContext(ctx); err != nil {
			_ = nc.Close()
			return nil, err
		}
		return encrypted, nil
	}
}
