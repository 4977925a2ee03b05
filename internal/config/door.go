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

// OnShared reports whether a door is on the shared port: there is one, the door
// is the API, gRPC or the Redis protocol, and has no address of its own.
func (c *Config) OnShared(door string) bool {
	if c.Listen.Shared == "" || c.Listen.Shared == Off {
		return false
	}
	switch door {
	case DoorAPI:
		return c.Listen.API == ""
	case DoorGRPC:
		return c.Listen.GRPC == ""
	case DoorRESP:
		return c.Listen.RESP == ""
	}
	return false
}

// placeDoors gives those doors their default address that have none and are not
// on the shared port.
func (c *Config) placeDoors() {
	if c.Listen.Shared != "" && c.Listen.Shared != Off {
		return
	}
	for _, d := range []struct {
		address   *string
		otherwise string
	}{{&c.Listen.API, DefaultAPI}, {&c.Listen.GRPC, DefaultGRPC}, {&c.Listen.RESP, DefaultRESP}} {
		if *d.address == "" {
			*d.address = d.otherwise
		}
	}
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

// httpSettings are the bounds of a door over HTTP.
func httpSettings(door string, of func(*Config) *HTTP) []setting {
	return []setting{
		count(door+".max_connections", func(c *Config) *int64 { return &of(c).MaxConnections }, 1_000_000),
		perClient(door, func(c *Config) *int64 { return &of(c).MaxPerClient }),
		count(door+".max_streams", func(c *Config) *int64 { return &of(c).MaxStreams }, 100_000),
		one(door+".max_header", func(c *Config, v string) (err error) {
			of(c).MaxHeader, err = messageSize(v)
			return err
		}),
		period(door+".header_timeout", func(c *Config) *time.Duration { return &of(c).HeaderTimeout }),
		period(door+".read_timeout", func(c *Config) *time.Duration { return &of(c).ReadTimeout }),
		period(door+".write_timeout", func(c *Config) *time.Duration { return &of(c).WriteTimeout }),
		period(door+".idle_timeout", func(c *Config) *time.Duration { return &of(c).IdleTimeout }),
	}
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
func (c *Config) checkDoors() (errs Errors) {
	for _, d := range []struct {
		name string
		tls  *TLS
	}{
		{DoorAPI, &c.API.TLS},
		{DoorGRPC, &c.GRPC.TLS},
		{DoorRESP, &c.RESP.TLS},
		{DoorProxy, &c.Proxy.TLS},
		{DoorAdmin, &c.Admin.TLS},
		{DoorShared, &c.Shared.TLS},
	} {
		if err := d.tls.check(d.name); err != nil {
			errs = append(errs, err)
		} else if d.tls.Enabled() && c.OnShared(d.name) {
			errs = append(errs, &SourceError{
				Source: d.name + ".tls", Message: "this door is on the shared port, which has its own certificate",
				Hint: "set shared.tls, or give the door an address of its own: listen." + d.name,
			})
		}
	}
	for _, door := range c.ProxyProtocol.Doors {
		if c.OnShared(door) {
			errs = append(errs, &SourceError{
				Source: "proxy_protocol", Message: fmt.Sprintf("the door %s is on the shared port, whose connections begin alike for all", door),
				Hint: "name shared in its place",
			})
		}
	}
	u := &c.Proxy.UpstreamTLS
	switch {
	case (u.Cert == "") != (u.Key == ""):
		errs = append(errs, &SourceError{Source: "proxy.upstream_tls", Message: "a certificate needs its key, and a key its certificate", Hint: "set both cert and key"})
	case *u != (UpstreamTLS{}) && c.Proxy.Upstream != nil && c.Proxy.Upstream.Scheme != "https":
		errs = append(errs, &SourceError{Source: "proxy.upstream_tls", Message: "the upstream is called by http, without encryption", Hint: "write https:// in proxy.upstream"})
	}
	return errs
}

// Exposure is what an operator should know about a door that other machines can
// reach.
type Exposure struct {
	// Door is its name, Why what is wrong, and Hint what helps.
	Door, Why, Hint string
	// Anybody is set if that is that nobody is asked.
	Anybody bool
}

// Exposed returns the doors that other machines can reach without TLS, or where
// nobody is asked who he is.
func (c *Config) Exposed() []Exposure {
	var all []Exposure
	for _, d := range []struct {
		name, address, asks string
		asked               bool
		tls                 *TLS
	}{
		{DoorAPI, c.Listen.API, "api.token", len(c.API.Tokens) > 0, &c.API.TLS},
		{DoorGRPC, c.Listen.GRPC, "", false, &c.GRPC.TLS},
		{DoorRESP, c.Listen.RESP, "resp.password", c.RESP.Password != "", &c.RESP.TLS},
		{DoorAdmin, c.Listen.Admin, "admin.token", c.Admin.Token != "", &c.Admin.TLS},
	} {
		where := d.name
		if c.OnShared(d.name) {
			where, d.address, d.tls = DoorShared, c.Listen.Shared, &c.Shared.TLS
		}
		if d.address == "" || d.address == Off || IsLoopback(d.address) || strings.HasPrefix(d.address, unixPrefix) {
			continue
		}
		if !d.asked && d.tls.ClientCA == "" {
			hint := "set " + where + ".tls.client_ca"
			if d.asks != "" {
				hint = "set " + d.asks + " or " + where + ".tls.client_ca"
			}
			all = append(all, Exposure{Door: d.name, Why: "everybody who reaches " + d.address + " may use it", Hint: hint, Anybody: true})
		}
		if !d.tls.Enabled() {
			all = append(all, Exposure{Door: d.name, Why: "it is not encrypted on " + d.address, Hint: "set " + where + ".tls.cert and .key"})
		}
	}
	return all
}

// settleRequests tells those who read rules what the requests at the doors have.
// Claims are known to the proxy and to forward-auth, which asks on behalf of a
// trusted proxy, if tokens are verified; to other callers anyway.
func (c *Config) settleRequests() {
	c.RuleOptions.OnlyHTTP = c.onlyProxy()
	c.RuleOptions.NoTokens = !c.JWT.Enabled() && (c.Proxy.Open() || len(c.TrustedProxies) > 0)
}

// onlyProxy reports whether all requests come by the reverse proxy, so that none
// has other attributes than HTTP requests have.
func (c *Config) onlyProxy() bool {
	if !c.Proxy.Open() {
		return false
	}
	for _, address := range []string{c.Listen.API, c.Listen.GRPC, c.Listen.RESP, c.Listen.Shared} {
		if address != "" && address != Off {
			return false
		}
	}
	return true
}
