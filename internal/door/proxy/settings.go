package proxy

import (
	"cmp"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/decide/adaptive"
	"github.com/headgate/headgate/internal/request/reading"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/transport/certs"
	"github.com/headgate/headgate/store"
)

// DefaultAddress is where the proxy listens by default.
const DefaultAddress = "127.0.0.1:8000"

// Settings are the settings that only this door has.
type Settings struct {
	Domain string // domain of its rules; if empty, the only one
	// Upstream is where requests go: an http, https, h2c (HTTP/2 without TLS) or unix
	// URL (with the path of a socket); nil for no proxy.
	Upstream    *url.URL
	UpstreamTLS certs.ClientFiles // for an https Upstream
	Paths       reading.Policy    // what to do with paths that servers may read differently
	// MaxWaiting is how many requests may wait at once, MaxUpstream how many
	// connections to the upstream may be open; 0 is the default.
	MaxWaiting, MaxUpstream int64
	// BodyTimeout is how long a client may be silent in the middle of a body; 0 is the
	// default, and below 0 forever.
	BodyTimeout time.Duration
	Abandoned   Abandoned // limits the work for requests whose client has gone
	// Underscores is what to do with header fields with an underscore in their name:
	// drop, allow or refuse; empty for the default.
	Underscores string
	TrustedOnly []string // the fields that only trusted proxies may send; nil for the default
	NoVia       bool     // turns off the Via field
	CORS        CORS     // for pages of other origins
	// LimitsPath is where callers read their limits; empty for the default, "off" for
	// nowhere.
	LimitsPath string
	Adaptive   Adaptive // limits what the upstream works on at once
}

// Adaptive are the settings of [adaptive.Limiter].
type Adaptive struct {
	Mode     string // on, shadow or off; empty is off
	Min, Max int64  // 0 is the default
	Headroom []Kept // on top of the limit
}

// Kept is the part of the limit of the highest class that is kept for a class.
type Kept struct {
	Class string
	Part  uint32 // in millionths
}

const shadow = "shadow"

// limiter returns the limiter of an upstream, or nil if it is off.
func (a *Adaptive) limiter(to *url.URL) *adaptive.Limiter {
	if a.Mode == "" || a.Mode == config.Off {
		return nil
	}
	return adaptive.New(adaptive.Options{
		Min: int(cmp.Or(a.Min, 3)), Max: int(cmp.Or(a.Max, 1000)), Name: to.Redacted(), Shadow: a.Mode == shadow,
	})
}

// section declares the settings.
func section() config.Section {
	return config.Section{
		Name: name, Means: "[proxy](connect/proxy.md), if there is an upstream", Key: "proxy.listen", Default: DefaultAddress, Public: true, OverHTTP: true, OnlyHTTP: true,
		Needs: "proxy.upstream", Has: func(own any) bool {
			s, ok := own.(*Settings)
			return ok && s.Upstream != nil
		},
		Own: func() any { return new(Settings) }, Settings: settings(), Check: checkSettings, Settle: settle,
	}
}

func settings() []config.Setting {
	onOff := func(key string, field func(*Settings) *bool) config.Setting {
		return config.One(key, func(s *Settings, v string) error {
			on, err := config.OnOff(v)
			*field(s) = !on
			return err
		})
	}
	return append([]config.Setting{
		config.Text("proxy.domain", func(s *Settings) *string { return &s.Domain }).Means("the only domain", "whose rules apply"),
		config.Word("proxy.adaptive.mode", func(s *Settings) *string { return &s.Adaptive.Mode }, config.Off, shadow, "on").Means("`off`", "[find out how much the upstream can work on at once](run/overload.md#a-slow-upstream), and answer 503 to more; `shadow` only counts"),
		config.Count("proxy.adaptive.min", func(s *Settings) *int64 { return &s.Adaptive.Min }, 1_000_000).Means("3", "requests to the upstream that it always lets pass at once"),
		config.Count("proxy.adaptive.max", func(s *Settings) *int64 { return &s.Adaptive.Max }, 1_000_000).Means("1000", "requests that it lets pass at once at most"),
		config.List("proxy.adaptive.headroom", func(s *Settings, v []string) (err error) { s.Adaptive.Headroom, err = kept(v); return err }).Pairs().As("`{critical: 20%}`").Means("none", "what it keeps for [classes](run/overload.md#classes), on top"),
		config.Count("proxy.max_upstream_connections", func(s *Settings) *int64 { return &s.MaxUpstream }, 1_000_000).Means("10,000", "open connections to the [upstream](run/overload.md)"),
		config.Choice("proxy.paths", func(s *Settings) *reading.Policy { return &s.Paths }, reading.ParsePolicy, "forward", "clean", "refuse").Means("`forward`", "what happens to [ambiguous paths](connect/proxy.md#paths)"),
		config.Count("proxy.max_waiting", func(s *Settings) *int64 { return &s.MaxWaiting }, 1_000_000).Means("10,000", "requests that may [wait](more/outcomes.md#delay) at once; half of them for [shadow bans](more/outcomes.md#shadow-ban)"),
		config.DurationOrOff("proxy.body_timeout", func(s *Settings) *time.Duration { return &s.BodyTimeout }).Means("`1m`", "longest pause in a [request body](run/tls.md#slow-uploads)"),
		config.One("proxy.upstream", func(s *Settings, v string) (err error) { s.Upstream, err = parseUpstream(v); return err }).As("URL").Means("none", "the [backend](connect/proxy.md): `http://`, `https://`, `h2c://` (HTTP/2 without TLS) or `unix:/run/app.sock`; the proxy needs it").ForRules(),
		config.DurationOrOff("proxy.abandoned.timeout", func(s *Settings) *time.Duration { return &s.Abandoned.Time }).Means("`1m`", "how long an answer is still read after its client has gone ([`from_response`](more/charge-on.md#a-client-that-goes-away), [`concurrency`](more/concurrency.md#a-client-that-goes-away)); `off`: not at all"),
		config.Word("proxy.underscores", func(s *Settings) *string { return &s.Underscores }, "drop", "allow", "refuse").Means("`drop`", "what happens to header names with anything but letters, digits and hyphens; `refuse` answers 400").ForRules(),
		config.List("proxy.trusted_headers", func(s *Settings, v []string) (err error) { s.TrustedOnly, err = fieldNames(v); return err }).Means("`True-Client-IP`, `X-Original-URL` and [others](connect/proxy.md#headers-sent-to-the-upstream)", "headers that only `trusted_proxies` may send, or `off`"),
		onOff("proxy.via", func(s *Settings) *bool { return &s.NoVia }).As("`on`, `off`").Means("`on`", "add `Via`, and answer [loops](connect/proxy.md#loops) with 508"),
		config.List("proxy.cors.origins", func(s *Settings, v []string) (err error) { s.CORS.Origins, err = origins(v); return err }).Means("none", "[pages that may read refusals](connect/proxy.md#cors): `[https://app.example]` or `\"*\"`"),
		config.One("proxy.limits_path", func(s *Settings, v string) (err error) { s.LimitsPath, err = limitsPath(v); return err }).As("path, `off`").Means("`/.headgate/limits`", "where callers read [their own limits](connect/self-service.md)"),
		config.Choice("proxy.cors.preflights", func(s *Settings) *bool { return &s.CORS.PassPreflights },
			func(v string) (bool, bool) { return v == "pass", v == "pass" || v == "count" }, "count", "pass").Means("`count`", "`pass`: do not count their preflights"),
	}, config.ClientTLS("proxy.upstream_tls", func(s *Settings) *certs.ClientFiles { return &s.UpstreamTLS })...)
}

// kept parses what is kept for classes.
func kept(values []string) (all []Kept, _ error) {
	sum := uint32(0)
	for _, v := range values {
		class, text, _ := strings.Cut(v, "=")
		part, ok := rules.ParsePart(text)
		if !ok {
			return nil, config.Hinted(fmt.Sprintf("%q is not a part of the limit, more than 0%% and less than 100%%", text), "write a class and a part, such as {critical: 20%}")
		}
		all = append(all, Kept{class, part})
		if sum += part; sum >= store.Whole {
			return nil, config.Hinted("100% or more is kept", "leave something for the other classes")
		}
	}
	return all, nil
}

// settle sets which header fields rules can match, and warns of what is off.
func settle(c *config.Config) {
	s, d := config.Own[Settings](c), c.Door(name)
	c.RuleOptions.PlainFields, c.RuleOptions.NoProxy = d.Open() && s.Underscores != "allow", !d.Open()
	if d.Open() {
		c.RuleOptions.ProxyDomain = s.Domain
	}
	if a := &s.Adaptive; a.Mode == "" && (a.Min > 0 || a.Max > 0 || len(a.Headroom) > 0) {
		c.Warnings = append(c.Warnings, &config.SourceError{
			Source: "proxy.adaptive", Message: "it is off without a mode", Hint: "set mode: shadow, which refuses nothing, or mode: on",
		})
	}
}

// checkSettings finds settings that contradict each other.
func checkSettings(c *config.Config) (errs config.Errors) {
	s := config.Own[Settings](c)
	if err := checkUpstream(c.Door(name), s.Upstream); err != nil {
		errs = append(errs, err)
	}
	if a := s.Adaptive; cmp.Or(a.Min, 3) > cmp.Or(a.Max, 1000) {
		errs = append(errs, &config.SourceError{
			Source: "proxy.adaptive", Message: fmt.Sprintf("min (%d) is above max (%d)", cmp.Or(a.Min, 3), cmp.Or(a.Max, 1000)), Hint: "set max to at least min",
		})
	}
	u := &s.UpstreamTLS
	switch {
	case (u.Cert == "") != (u.Key == ""):
		errs = append(errs, &config.SourceError{Source: "proxy.upstream_tls", Message: "cert and key must be set together", Hint: "set both cert and key"})
	case *u != (certs.ClientFiles{}) && s.Upstream != nil && s.Upstream.Scheme != "https":
		errs = append(errs, &config.SourceError{Source: "proxy.upstream_tls", Message: "upstream_tls is set, but the upstream URL is not https", Hint: "use https:// in proxy.upstream"})
	}
	return errs
}

// fieldNames parses names of header fields; a single "off" means none.
func fieldNames(values []string) ([]string, error) {
	names := []string{}
	if len(values) == 1 && values[0] == config.Off {
		return names, nil
	}
	for _, v := range values {
		name, err := config.HeaderName(v)
		if err != nil {
			return nil, err
		}
		names = append(names, http.CanonicalHeaderKey(name))
	}
	return names, nil
}

// origins parses origins of pages.
func origins(values []string) ([]string, error) {
	for _, v := range values {
		if v == "*" {
			continue
		}
		u, err := url.Parse(v)
		if err != nil || u.Scheme == "" || u.Host == "" || u.Scheme+"://"+u.Host != v || v != strings.ToLower(v) {
			return nil, config.Hinted(fmt.Sprintf("%q is not an origin", v), `use the form that browsers send, such as https://app.example, or "*"`)
		}
	}
	return values, nil
}

// parseUpstream parses the URL of the upstream.
func parseUpstream(v string) (*url.URL, error) {
	const hint = "write a URL such as http://127.0.0.1:9000"
	u, err := url.Parse(v)
	if err != nil {
		return nil, config.Hinted(fmt.Sprintf("%s is not a URL", config.Shown(v)), hint)
	}
	if socket, ok := strings.CutPrefix(v, config.UnixPrefix); ok {
		socket = strings.TrimPrefix(socket, "//")
		if !strings.HasPrefix(socket, "/") {
			return nil, config.Hinted(fmt.Sprintf("%q is not a socket path", v), hint)
		}
		return &url.URL{Scheme: "unix", Path: socket}, nil
	}
	switch {
	case u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "h2c":
		return nil, config.Hinted(fmt.Sprintf("%s does not start with http:// or https://", config.Shown(v)), hint)
	case u.Host == "" || u.Hostname() == "":
		return nil, config.Hinted(fmt.Sprintf("%s has no host", config.Shown(v)), hint)
	case !validPort(u.Port()):
		return nil, config.Hinted(fmt.Sprintf("the port of %s is not a number from 1 to 65535", config.Shown(v)), hint)
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, config.Hinted("the URL must not have a user, query or fragment", hint)
	}
	return u, nil
}

// validPort reports whether a port is one, or none is given.
func validPort(port string) bool {
	n, err := strconv.ParseUint(port, 10, 16)
	return port == "" || err == nil && n > 0
}

// checkUpstream reports an upstream whose address is the proxy's own: requests would
// loop.
func checkUpstream(d *config.Door, u *url.URL) error {
	if !d.Open() || u.Scheme == "unix" {
		return nil
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"https": "443"}[u.Scheme]
		port = cmp.Or(port, "80")
	}
	own, ownPort, err := net.SplitHostPort(d.Address)
	if err != nil || ownPort != port || port == "0" || !reaches(u.Hostname(), own) {
		return nil
	}
	return &config.SourceError{
		Source: "proxy.upstream", Message: fmt.Sprintf("%s is the address of the proxy itself (proxy.listen): requests would loop", u.Host),
		Hint: "use the address of the service behind the proxy, or change proxy.listen",
	}
}

// reaches reports whether a connection to host reaches a listener on own.
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

// hostAddress returns the address of a host if it is known without DNS.
func hostAddress(host string) netip.Addr {
	if strings.EqualFold(host, "localhost") {
		return netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	addr, _ := netip.ParseAddr(host)
	return addr.Unmap()
}
