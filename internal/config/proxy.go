package config

import (
	"cmp"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"
)

// CORS says which pages of other origins may read refusals; see proxy.CORS.
type CORS struct {
	Origins        []string
	PassPreflights bool
}

// Names of what becomes of header fields with an underscore.
func underscores() []string { return []string{"drop", "allow", "refuse"} }

// Abandoned bounds what the proxy does for requests whose client has gone; what
// is 0 has its default.
type Abandoned struct {
	// Timeout is how long it goes on reading the answer, and less than 0 not at
	// all; MaxBytes how much of it, MaxRequests of how many at once.
	Timeout               time.Duration
	MaxBytes, MaxRequests int64
}

// proxySettings are the keys of the proxy.
func proxySettings() []setting {
	return []setting{
		one("proxy.abandoned.timeout", func(c *Config, v string) (err error) {
			if c.Proxy.Abandoned.Timeout = -1; v != Off {
				c.Proxy.Abandoned.Timeout, err = duration(v, 100*time.Millisecond)
			}
			return err
		}),
		one("proxy.abandoned.max_bytes", func(c *Config, v string) (err error) {
			c.Proxy.Abandoned.MaxBytes, err = size(v)
			return err
		}),
		one("proxy.underscores", func(c *Config, v string) (err error) {
			c.Proxy.Underscores, err = choice(v, func(v string) (string, bool) { return v, slices.Contains(underscores(), v) }, underscores()...)
			return err
		}),
		{key: "proxy.trusted_headers", list: true, set: func(c *Config, v []string) (err error) {
			c.Proxy.Strangers, err = fieldNames(v)
			return err
		}},
		one("proxy.via", func(c *Config, v string) error {
			on, err := onOff(v)
			c.Proxy.NoVia = !on
			return err
		}),
		one("proxy.h2c", func(c *Config, v string) error {
			on, err := onOff(v)
			c.Proxy.NoCleartextHTTP2 = !on
			return err
		}),
		{key: "proxy.cors.origins", list: true, set: func(c *Config, v []string) (err error) {
			c.Proxy.CORS.Origins, err = origins(v)
			return err
		}},
		one("proxy.cors.preflights", func(c *Config, v string) (err error) {
			c.Proxy.CORS.PassPreflights, err = choice(v, func(v string) (bool, bool) { return v == "pass", v == "pass" || v == "count" }, "count", "pass")
			return err
		}),
		count("proxy.abandoned.max_requests", func(c *Config) *int64 { return &c.Proxy.Abandoned.MaxRequests }, 1_000_000),
	}
}

// fieldNames reads names of header fields; off alone is none.
func fieldNames(values []string) ([]string, error) {
	names := []string{}
	if len(values) == 1 && values[0] == Off {
		return names, nil
	}
	for _, v := range values {
		name, err := headerName(v)
		if err != nil {
			return nil, err
		}
		names = append(names, http.CanonicalHeaderKey(name))
	}
	return names, nil
}

// origins reads origins of pages.
func origins(values []string) ([]string, error) {
	for _, v := range values {
		if v == "*" {
			continue
		}
		u, err := url.Parse(v)
		if err != nil || u.Scheme == "" || u.Host == "" || u.Scheme+"://"+u.Host != v || v != strings.ToLower(v) {
			return nil, &hinted{fmt.Sprintf("%q is not an origin", v), `write one as browsers do, such as https://app.example, or "*"`}
		}
	}
	return values, nil
}

// upstream reads where requests go.
func upstream(v string) (*url.URL, error) {
	const hint = "write a URL such as http://127.0.0.1:9000"
	u, err := url.Parse(v)
	if err != nil {
		return nil, &hinted{fmt.Sprintf("%s is not a URL", shown(v)), hint}
	}
	if socket, ok := strings.CutPrefix(v, unixPrefix); ok {
		socket = strings.TrimPrefix(socket, "//")
		if !strings.HasPrefix(socket, "/") {
			return nil, &hinted{fmt.Sprintf("%q is not the path of a socket", v), hint}
		}
		return &url.URL{Scheme: "unix", Path: socket}, nil
	}
	switch {
	case u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "h2c":
		return nil, &hinted{fmt.Sprintf("%s does not begin with http:// or https://", shown(v)), hint}
	case u.Host == "" || u.Hostname() == "":
		return nil, &hinted{fmt.Sprintf("%s has no host", shown(v)), hint}
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, &hinted{"an upstream has no user, query or fragment", hint}
	}
	return u, nil
}

// checkUpstream finds an upstream that is the proxy itself, as far as addresses
// tell: each request would come back.
func (c *Config) checkUpstream() error {
	u := c.Proxy.Upstream
	if !c.Proxy.Open() || u.Scheme == "unix" {
		return nil
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"https": "443"}[u.Scheme]
		port = cmp.Or(port, "80")
	}
	own, ownPort, err := net.SplitHostPort(c.Proxy.Listen)
	if err != nil || ownPort != port || port == "0" || !reaches(u.Hostname(), own) {
		return nil
	}
	return &SourceError{
		Source: "proxy.upstream", Message: fmt.Sprintf("%s is the proxy itself, by proxy.listen: requests would go round in circles", u.Host),
		Hint: "name the address of the service behind the proxy, or let the proxy listen on another port",
	}
}

// reaches reports whether who connects to host comes to whoever listens at own.
func reaches(host, own string) bool {
	to, here := hostAddress(host), hostAddress(own)
	switch {
	case strings.EqualFold(host, own):
		return true
	case !to.IsValid():
		return false
	case own == "" || here.IsUnspecified():
		return (to.IsLoopback() || to.IsUnspecified()) && (own == "" || here.Is6() || to.Is4())
	}
	return to == here
}

// hostAddress returns the address that a host is without asking anybody.
func hostAddress(host string) netip.Addr {
	if strings.EqualFold(host, "localhost") {
		return netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	addr, _ := netip.ParseAddr(host)
	return addr.Unmap()
}
