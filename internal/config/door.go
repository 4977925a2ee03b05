package config

import (
	"fmt"
	"strings"
	"time"
)

// API is the HTTP API.
type API struct {
	// Tokens are those of which a caller has to know one; with none nobody is
	// asked.
	Tokens []Secret
	// Hosts are names, besides those of this machine, that callers may come by.
	Hosts []string
	// Explain opens or closes POST /v1/explain; see [Config.Explains].
	Explain Explain
	TLS     TLS
	HTTP    HTTP
}

// Shared is the port that several doors share.
type Shared struct {
	TLS TLS
	// MaxConnections is how many may be open at once, MaxPerClient how many of
	// one client (negative: any number), HandshakeTimeout how long one may take
	// until it is known what it speaks; 0 leaves the default.
	MaxConnections, MaxPerClient int64
	HandshakeTimeout             time.Duration
}

// HTTP bounds what callers of a door over HTTP may do. What is 0 has the
// default of the door.
type HTTP struct {
	// MaxConnections is how many may be open at once, MaxPerClient how many of
	// one client (negative: any number), MaxStreams how many requests one of
	// HTTP/2 may have under way.
	MaxConnections, MaxPerClient, MaxStreams int64
	// MaxHeader is how large the header of a request may be, in bytes.
	MaxHeader int64
	// HeaderTimeout is how long the header may take, ReadTimeout the whole
	// request, WriteTimeout everything from there to the end of the answer,
	// and IdleTimeout the time until the next request.
	HeaderTimeout, ReadTimeout, WriteTimeout, IdleTimeout time.Duration
}

// doorSettings are the keys of the HTTP API, of the shared port, and those that
// doors have in common.
func doorSettings() []setting {
	all := []setting{
		one("listen.shared", func(c *Config, v string) (err error) { c.Listen.Shared, err = address(v); return err }),
		{key: "api.token", list: true, set: func(c *Config, v []string) error { return c.API.setTokens(v) }},
		secretFrom("api.token_file", func(c *Config, v string) error { return c.API.setTokens(lines(v)) }),
		{key: "api.hosts", list: true, set: func(c *Config, v []string) (err error) { c.API.Hosts, err = hostNames(v); return err }},
		one("api.explain", func(c *Config, v string) (err error) { c.API.Explain, err = parseExplain(v); return err }),
		count("shared.max_connections", func(c *Config) *int64 { return &c.Shared.MaxConnections }, 1_000_000),
		perClient(DoorShared, func(c *Config) *int64 { return &c.Shared.MaxPerClient }),
		period("shared.handshake_timeout", func(c *Config) *time.Duration { return &c.Shared.HandshakeTimeout }),
	}
	all = append(all, tlsSettings(DoorShared, func(c *Config) *TLS { return &c.Shared.TLS })...)
	for _, d := range []struct {
		name string
		tls  func(*Config) *TLS
		http func(*Config) *HTTP
	}{
		{DoorAPI, func(c *Config) *TLS { return &c.API.TLS }, func(c *Config) *HTTP { return &c.API.HTTP }},
		{DoorProxy, func(c *Config) *TLS { return &c.Proxy.TLS }, func(c *Config) *HTTP { return &c.Proxy.HTTP }},
		{DoorAdmin, func(c *Config) *TLS { return &c.Admin.TLS }, func(c *Config) *HTTP { return &c.Admin.HTTP }},
	} {
		all = append(append(all, tlsSettings(d.name, d.tls)...), httpSettings(d.name, d.http)...)
	}
	return append(all, upstreamSettings()...)
}

// connectionSettings are the bounds of the connections of a door.
func connectionSettings(door string, of func(*Config) *HTTP) []setting {
	return []setting{
		count(door+".max_connections", func(c *Config) *int64 { return &of(c).MaxConnections }, 1_000_000),
		perClient(door, func(c *Config) *int64 { return &of(c).MaxPerClient }),
	}
}

// httpSettings are the bounds of a door over HTTP.
func httpSettings(door string, of func(*Config) *HTTP) []setting {
	return append(connectionSettings(door, of),
		count(door+".max_streams", func(c *Config) *int64 { return &of(c).MaxStreams }, 100_000),
		one(door+".max_header", func(c *Config, v string) (err error) {
			of(c).MaxHeader, err = messageSize(v)
			return err
		}),
		period(door+".header_timeout", func(c *Config) *time.Duration { return &of(c).HeaderTimeout }),
		period(door+".read_timeout", func(c *Config) *time.Duration { return &of(c).ReadTimeout }),
		period(door+".write_timeout", func(c *Config) *time.Duration { return &of(c).WriteTimeout }),
		period(door+".idle_timeout", func(c *Config) *time.Duration { return &of(c).IdleTimeout }),
	)
}

// perClient is how many connections of a door one client may have open at once.
func perClient(door string, of func(*Config) *int64) setting {
	return one(door+".max_connections_per_client", func(c *Config, v string) (err error) {
		if *of(c) = -1; v != Off {
			*of(c), err = wholeNumber(v, 1_000_000)
		}
		return err
	})
}

func (a *API) setTokens(values []string) error {
	tokens := make([]Secret, len(values))
	for i, v := range values {
		var err error
		if tokens[i], err = token(v); err != nil {
			return err
		}
	}
	a.Tokens = tokens
	return nil
}

// hostNames checks names such as example.org, *.example.org or *.
func hostNames(values []string) ([]string, error) {
	for _, v := range values {
		name := strings.TrimPrefix(v, "*.")
		if v != "*" && (name == "" || strings.ContainsAny(name, "*:/ []")) {
			return nil, &hinted{fmt.Sprintf("%q is not the name of a host", v), "write it without scheme and port, such as api.example.org or *.example.org"}
		}
	}
	return values, nil
}

// StrangersReach reports whether other machines can reach the HTTP API.
func (c *Config) StrangersReach() bool {
	address := c.Listen.API
	if c.OnShared(DoorAPI) {
		address = c.Listen.Shared
	}
	return !IsLoopback(address)
}

func onOff(v string) (bool, error) {
	switch v {
	case "on":
		return true, nil
	case Off:
		return false, nil
	}
	if yes, err := boolean(v); err == nil {
		return yes, nil
	}
	return false, &hinted{fmt.Sprintf("%q is neither on nor off", v), ""}
}

// checkDoors finds TLS that is not whole, or that would have no effect.
func (c *Config) checkDoors() Errors {
	errs := c.checkTLS()
	u := &c.Proxy.UpstreamTLS
	switch {
	case (u.Cert == "") != (u.Key == ""):
		errs = append(errs, &SourceError{Source: "proxy.upstream_tls", Message: "a certificate needs its key, and a key its certificate", Hint: "set both cert and key"})
	case *u != (UpstreamTLS{}) && c.Proxy.Upstream != nil && c.Proxy.Upstream.Scheme != "https":
		errs = append(errs, &SourceError{Source: "proxy.upstream_tls", Message: "the upstream is called by http, without encryption", Hint: "write https:// in proxy.upstream"})
	}
	return errs
}

// settleRequests tells those who read rules what the requests at the doors have.
// Claims are known to the proxy and to forward-auth, which asks on behalf of a
// trusted proxy, if tokens are verified; to other callers anyway.
func (c *Config) settleRequests() {
	c.RuleOptions.OnlyHTTP = c.onlyProxy()
	c.RuleOptions.PlainFields = c.Proxy.Open() && c.Proxy.Underscores != "allow"
	c.RuleOptions.NoTokens = !c.JWT.Enabled() && (c.Proxy.Open() || len(c.TrustedProxies) > 0)
}
