package client_test

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/request/client"
)

func newResolver(t testing.TB, c client.Config) *client.Resolver {
	t.Helper()
	r, err := client.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func networks(list ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// header returns a header with lines such as "X-Forwarded-For: 192.0.2.1".
func header(lines ...string) http.Header {
	h := http.Header{}
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		h.Add(name, value)
	}
	return h
}

func text(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

func TestResolve(t *testing.T) {
	t.Parallel()
	const xff, fwd = "X-Forwarded-For: ", "Forwarded: "
	tests := []struct {
		name   string
		remote string
		lines  []string
		want   string
	}{
		{"no header", "10.0.0.1:80", nil, "10.0.0.1"},
		{"an untrusted peer is the client", "192.0.2.9:80", []string{xff + "198.51.100.7"}, "192.0.2.9"},
		{"an untrusted peer that names a proxy", "192.0.2.9:80", []string{xff + "198.51.100.7, 10.0.0.1"}, "192.0.2.9"},
		{"one proxy", "10.0.0.1:80", []string{xff + "198.51.100.7"}, "198.51.100.7"},
		{"the left part is the client's invention", "10.0.0.1:80", []string{xff + "1.1.1.1, 2.2.2.2, 198.51.100.7"}, "198.51.100.7"},
		{"proxies in between are passed", "10.0.0.1:80", []string{xff + "6.6.6.6, 198.51.100.7, 10.0.0.3,10.0.0.2"}, "198.51.100.7"},
		{"a trusted address left of the client does not count", "10.0.0.1:80", []string{xff + "10.0.0.9, 198.51.100.7, 10.0.0.2"}, "198.51.100.7"},
		{"lines are joined in order", "10.0.0.1:80", []string{xff + "6.6.6.6", xff + "198.51.100.7, 10.0.0.3", xff + "10.0.0.2"}, "198.51.100.7"},
		{"only proxies", "10.0.0.1:80", []string{xff + "10.0.0.3, 10.0.0.2"}, "10.0.0.3"},
		{"with a port", "10.0.0.1:80", []string{xff + "198.51.100.7:4711"}, "198.51.100.7"},
		{"IPv6", "10.0.0.1:80", []string{xff + "2001:db8::1"}, "2001:db8::1"},
		{"IPv6 in brackets", "10.0.0.1:80", []string{xff + "[2001:db8::1]"}, "2001:db8::1"},
		{"IPv6 with a port", "10.0.0.1:80", []string{xff + "[2001:db8::1]:4711"}, "2001:db8::1"},
		{"IPv4-mapped", "10.0.0.1:80", []string{xff + "::ffff:198.51.100.7"}, "198.51.100.7"},
		{"IPv4-mapped with a port", "10.0.0.1:80", []string{xff + "4.4.4.4,[::ffff:188.0.2.128]:48483"}, "188.0.2.128"},
		{"IPv4-mapped in hexadecimal", "10.0.0.1:80", []string{fwd + `For="::ffff:bc15:0006"`}, "188.21.0.6"},
		{"NAT64 is not IPv4-mapped", "10.0.0.1:80", []string{xff + "64:ff9b::188.0.2.128"}, "64:ff9b::bc00:280"},
		{"a zone is dropped", "10.0.0.1:80", []string{xff + "fe80::382b:141b:fa4a:2a16%28"}, "fe80::382b:141b:fa4a:2a16"},
		{"the peer's zone is dropped", "[fe80::1%eth0]:9999", nil, "fe80::1"},
		{"a mapped peer is trusted as IPv4", "[::ffff:10.0.0.1]:80", []string{xff + "198.51.100.7"}, "198.51.100.7"},
		{"a trusted IPv6 peer", "[2001:db8:aa::1]:80", []string{xff + "198.51.100.7"}, "198.51.100.7"},
		{"a peer without a port", "10.0.0.1", []string{xff + "198.51.100.7"}, "198.51.100.7"},

		{"a name ends the walk", "10.0.0.1:80", []string{xff + "198.51.100.7, nope"}, "10.0.0.1"},
		{"a name behind a proxy ends it there", "10.0.0.1:80", []string{xff + "198.51.100.7, nope, 10.0.0.2"}, "10.0.0.2"},
		{"an empty element", "10.0.0.1:80", []string{xff + "198.51.100.7,, 10.0.0.2"}, "10.0.0.2"},
		{"an empty line", "10.0.0.1:80", []string{xff + "198.51.100.7", xff}, "10.0.0.1"},
		{"a trailing comma", "10.0.0.1:80", []string{xff + "198.51.100.7,"}, "10.0.0.1"},
		{"unknown", "10.0.0.1:80", []string{xff + "198.51.100.7, unknown"}, "10.0.0.1"},
		{"unspecified", "10.0.0.1:80", []string{xff + "198.51.100.7, 0.0.0.0"}, "10.0.0.1"},
		{"unspecified IPv6", "10.0.0.1:80", []string{xff + "198.51.100.7, ::"}, "10.0.0.1"},
		{"unspecified, mapped", "10.0.0.1:80", []string{xff + "198.51.100.7, ::ffff:0.0.0.0"}, "10.0.0.1"},
		{"a port too large", "10.0.0.1:80", []string{xff + "198.51.100.7:65536"}, "10.0.0.1"},
		{"an empty port", "10.0.0.1:80", []string{xff + "198.51.100.7:"}, "10.0.0.1"},
		{"five parts", "10.0.0.1:80", []string{xff + "7.7.7.7.7"}, "10.0.0.1"},
		{"a leading zero", "10.0.0.1:80", []string{xff + "198.051.100.7"}, "10.0.0.1"},
		{"IPv4 in brackets", "10.0.0.1:80", []string{xff + "[198.51.100.7]"}, "10.0.0.1"},
		{"text after the bracket", "10.0.0.1:80", []string{xff + "[2001:db8::1]x"}, "10.0.0.1"},
		{"an open bracket", "10.0.0.1:80", []string{xff + "[2001:db8::1"}, "10.0.0.1"},
		{"quotes do not belong in X-Forwarded-For", "10.0.0.1:80", []string{xff + `"198.51.100.7"`}, "10.0.0.1"},

		{"Forwarded", "10.0.0.1:80", []string{fwd + "for=198.51.100.7"}, "198.51.100.7"},
		{"Forwarded, any case and other parameters", "10.0.0.1:80", []string{fwd + "Host=blah;For=198.51.100.7;Proto=https"}, "198.51.100.7"},
		{"Forwarded, quoted", "10.0.0.1:80", []string{fwd + `for="198.51.100.7"`}, "198.51.100.7"},
		{"Forwarded, IPv6 with a port", "10.0.0.1:80", []string{fwd + `for="[2001:db8::1]:4711"`}, "2001:db8::1"},
		{"Forwarded, an obfuscated port", "10.0.0.1:80", []string{fwd + `for="[2001:db8::1]:_a.b-c"`}, "2001:db8::1"},
		{"Forwarded, unquoted with a port, as many write it", "10.0.0.1:80", []string{fwd + "for=198.51.100.7:8883"}, "198.51.100.7"},
		{"Forwarded, spaces after a semicolon", "10.0.0.1:80", []string{fwd + `for=198.51.100.7; proto=https`}, "198.51.100.7"},
		{"Forwarded, several", "10.0.0.1:80", []string{fwd + "for=6.6.6.6, for=198.51.100.7", fwd + "for=10.0.0.3,for=10.0.0.2"}, "198.51.100.7"},
		{"Forwarded, a comma in quotes", "10.0.0.1:80", []string{fwd + `for=198.51.100.7;host="a, for=6.6.6.6"`}, "198.51.100.7"},
		{"Forwarded, an escaped quote in quotes", "10.0.0.1:80", []string{fwd + `for=198.51.100.7;host="a\", for=6.6.6.6;b=\""`}, "198.51.100.7"},
		{"Forwarded, a quote that the client left open", "10.0.0.1:80", []string{fwd + `for="6.6.6.6, for=198.51.100.7`}, "198.51.100.7"},
		{"Forwarded, a quote that the client left open, the proxy quotes", "10.0.0.1:80", []string{fwd + `for="6.6.6.6, for="198.51.100.7"`}, "198.51.100.7"},
		{"Forwarded, a hidden client", "10.0.0.1:80", []string{fwd + "for=198.51.100.7, for=_hidden"}, "10.0.0.1"},
		{"Forwarded, an unknown client", "10.0.0.1:80", []string{fwd + "for=198.51.100.7, for=unknown, for=10.0.0.2"}, "10.0.0.2"},
		{"Forwarded, without for", "10.0.0.1:80", []string{fwd + "for=198.51.100.7, by=10.0.0.2"}, "10.0.0.1"},
		{"Forwarded, for twice", "10.0.0.1:80", []string{fwd + "for=6.6.6.6;for=198.51.100.7"}, "10.0.0.1"},
		{"Forwarded, only a port", "10.0.0.1:80", []string{fwd + "for=2.2.2.2,host=what;for=:48485;proto=https"}, "10.0.0.1"},
		{"Forwarded, an empty value", "10.0.0.1:80", []string{fwd + `For=198.51.100.7, For=""`}, "10.0.0.1"},
		{"Forwarded, no equals sign", "10.0.0.1:80", []string{fwd + "for"}, "10.0.0.1"},
		{"Forwarded, an open quote", "10.0.0.1:80", []string{fwd + `for="198.51.100.7`}, "10.0.0.1"},
		{"Forwarded, text after the quote", "10.0.0.1:80", []string{fwd + `for="198.51.100.7"x`}, "10.0.0.1"},
		{"Forwarded, a space before the equals sign", "10.0.0.1:80", []string{fwd + `for =198.51.100.7`}, "10.0.0.1"},

		{"both agree", "10.0.0.1:80", []string{xff + "198.51.100.7", fwd + "for=198.51.100.7"}, "198.51.100.7"},
		{"both disagree: one was sent by the client", "10.0.0.1:80", []string{xff + "198.51.100.7", fwd + "for=6.6.6.6"}, ""},

		{"trap T32: a Unix socket", "@", []string{xff + "198.51.100.7"}, ""},
		{"trap T32: no address", "", []string{xff + "198.51.100.7"}, ""},
		{"trap T32: a name", "localhost:80", nil, ""},
	}
	r := newResolver(t, client.Config{TrustedProxies: networks("10.0.0.0/8", "2001:db8:aa::/48")})
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := text(r.Resolve(tt.remote, header(tt.lines...))); got != tt.want {
				t.Errorf("Resolve(%q, %q) = %q, want %q", tt.remote, tt.lines, got, tt.want)
			}
		})
	}
}

func TestTrustedNetworks(t *testing.T) {
	t.Parallel()
	// A chain through every kind of network that may be trusted.
	r := newResolver(t, client.Config{TrustedProxies: networks(
		"2.2.2.2/32", "2607:f8b0:4004:83f::200e/128", "3.3.0.0/16", "2001:db7::/64",
		"::ffff:4.4.4.4/124", "64:ff9b::188.0.2.128/112",
	)})
	h := header(
		`Forwarded: For=99.99.99.99, For=4.4.4.8, For="[2607:f8b0:4004:83f::200e]:4747"`,
		`Forwarded: For=2.2.2.2:8883, For=64:ff9b::188.0.2.200, For=3.3.5.5, For=2001:db7::abcd`,
	)
	if got := text(r.Resolve("3.3.3.3:1", h)); got != "99.99.99.99" {
		t.Errorf("got %s, want 99.99.99.99", got)
	}
}

func TestHops(t *testing.T) {
	t.Parallel()
	tests := []struct {
		hops   int
		remote string
		xff    string
		want   string
	}{
		{1, "192.0.2.1:80", "198.51.100.7", "198.51.100.7"},
		{1, "192.0.2.1:80", "6.6.6.6, 198.51.100.7", "198.51.100.7"},
		{1, "192.0.2.1:80", "198.51.100.7, 10.0.0.2", "198.51.100.7"}, // also trusted by address
		{2, "192.0.2.1:80", "6.6.6.6, 198.51.100.7, 192.0.2.2", "198.51.100.7"},
		{2, "192.0.2.1:80", "198.51.100.7", "198.51.100.7"}, // the outer proxy was bypassed
		{2, "192.0.2.1:80", "6.6.6.6, nope", "192.0.2.1"},
		{1, "@", "6.6.6.6, 198.51.100.7", "198.51.100.7"}, // a proxy on a Unix socket
		{1, "@", "unix:", ""},
	}
	for _, tt := range tests {
		r := newResolver(t, client.Config{Hops: tt.hops, TrustedProxies: networks("10.0.0.0/8")})
		if got := text(r.Resolve(tt.remote, header("X-Forwarded-For: "+tt.xff))); got != tt.want {
			t.Errorf("%d hops, %s, %q: %q, want %q", tt.hops, tt.remote, tt.xff, got, tt.want)
		}
	}
}

func TestSource(t *testing.T) {
	t.Parallel()
	h := header("X-Forwarded-For: 198.51.100.7", "Forwarded: for=203.0.113.9")
	for source, want := range map[client.Source]string{
		client.Either:        "",
		client.XForwardedFor: "198.51.100.7",
		client.Forwarded:     "203.0.113.9",
	} {
		r := newResolver(t, client.Config{TrustedProxies: networks("10.0.0.0/8"), Source: source})
		if got := text(r.Resolve("10.0.0.1:80", h)); got != want {
			t.Errorf("%s: %s, want %s", source, got, want)
		}
	}
}

func TestHugeHeaders(t *testing.T) {
	t.Parallel()
	r := newResolver(t, client.Config{TrustedProxies: networks("10.0.0.0/8")})
	tests := []struct{ name, line, want string }{
		{"many proxies", "X-Forwarded-For: 6.6.6.6" + strings.Repeat(", 10.0.0.2", 100_000), "10.0.0.2"},
		{"63 proxies", "X-Forwarded-For: 198.51.100.7" + strings.Repeat(", 10.0.0.2", 63), "198.51.100.7"},
		{"64 proxies", "X-Forwarded-For: 198.51.100.7" + strings.Repeat(", 10.0.0.2", 64), "10.0.0.2"},
		{"a long element", "X-Forwarded-For: 6.6.6.6, " + strings.Repeat("1", 1<<20), "10.0.0.1"},
		{"long, then a proxy", "X-Forwarded-For: 6.6.6.6" + strings.Repeat(" ", 1<<20) + ",10.0.0.2", "10.0.0.2"},
		{"backslashes", `Forwarded: for=6.6.6.6, for="` + strings.Repeat(`\`, 1<<20) + `"`, "10.0.0.1"},
		{"commas", "Forwarded: for=6.6.6.6" + strings.Repeat(",", 1<<20), "10.0.0.1"},
	}
	for _, tt := range tests {
		if got := text(r.Resolve("10.0.0.1:80", header(tt.line))); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

func TestGroup(t *testing.T) {
	t.Parallel()
	tests := []struct {
		v4, v6     int
		addr, want string
	}{
		{0, 0, "198.51.100.7", "198.51.100.7"},
		{0, 0, "2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"},
		{0, 0, "::ffff:198.51.100.7", "198.51.100.7"},
		{0, 0, "fe80::1%eth0", "fe80::/64"},
		{0, 0, "64:ff9b::c633:6407", "198.51.100.7"},
		{0, 0, "64:ff9b:1::c633:6407", "64:ff9b:1::/64"},
		{24, 48, "198.51.100.7", "198.51.100.0/24"},
		{24, 48, "2001:db8:1:2::1", "2001:db8:1::/48"},
		{32, 128, "2001:db8:1:2::1", "2001:db8:1:2::1"},
	}
	for _, tt := range tests {
		r := newResolver(t, client.Config{IPv4Prefix: tt.v4, IPv6Prefix: tt.v6})
		if got := r.Group(netip.MustParseAddr(tt.addr)); got != tt.want {
			t.Errorf("/%d /%d: Group(%s) = %s, want %s", tt.v4, tt.v6, tt.addr, got, tt.want)
		}
	}
	// Trap T32: clients without an address share a bucket.
	if got := newResolver(t, client.Config{}).Group(netip.Addr{}); got != client.Unknown {
		t.Errorf("Group of no address = %q, want %q", got, client.Unknown)
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	tests := []struct {
		config client.Config
		want   string
	}{
		{client.Config{IPv4Prefix: 33}, "IPv4 prefix length is 33, want 1 to 32"},
		{client.Config{IPv4Prefix: -1}, "IPv4 prefix length is -1, want 1 to 32"},
		{client.Config{IPv6Prefix: 129}, "IPv6 prefix length is 129, want 1 to 128"},
		{client.Config{Hops: -1}, "hops is -1, want 0 to 64"},
		{client.Config{Hops: 65}, "hops is 65, want 0 to 64"},
		{client.Config{Source: 3}, "unknown header field: source(3)"},
		{client.Config{TrustedProxies: []netip.Prefix{{}}}, "trusted proxies: invalid network invalid Prefix"},
		{client.Config{TrustedProxies: networks("::ffff:1.2.3.4/95")}, "trusted proxies: invalid network ::ffff:1.2.3.4/95"},
	}
	for _, tt := range tests {
		_, err := client.New(tt.config)
		if err == nil || err.Error() != tt.want {
			t.Errorf("New(%+v): %v, want %s", tt.config, err, tt.want)
		}
	}
}

func TestResolveDoesNotAllocate(t *testing.T) {
	r := newResolver(t, client.Config{TrustedProxies: networks("10.0.0.0/8")})
	for _, line := range []string{
		"X-Forwarded-For: 6.6.6.6, 2001:db8::1, 10.0.0.2",
		`Forwarded: for=6.6.6.6, for="[2001:db8::1]:4711";proto=https, for=10.0.0.2`,
		"Forwarded: for=unknown",
	} {
		h := header(line)
		dst := make([]byte, 0, 64)
		if n := testing.AllocsPerRun(100, func() {
			dst = r.AppendGroup(dst[:0], r.Resolve("10.0.0.1:80", h))
		}); n != 0 {
			t.Errorf("%s: %v allocations, want 0", line, n)
		}
	}
}

func TestTrustsAndReading(t *testing.T) {
	t.Parallel()
	r := newResolver(t, client.Config{TrustedProxies: networks("10.0.0.0/8")})
	for remote, want := range map[string]bool{"10.0.0.1:80": true, "[::ffff:10.0.0.1]:80": true, "192.0.2.1:80": false, "@": false, "": false} {
		if got := r.Trusts(remote); got != want {
			t.Errorf("%q is trusted: %v, want %v", remote, got, want)
		}
	}
	forged := header("X-Forwarded-For: 198.51.100.7", "Forwarded: for=6.6.6.6")
	for source, want := range map[client.Source]string{client.Either: "", client.XForwardedFor: "198.51.100.7", client.Forwarded: "6.6.6.6"} {
		if got := text(r.Reading(source).Resolve("10.0.0.1:80", forged)); got != want {
			t.Errorf("reading %s: %s, want %s", source, got, want)
		}
	}
	for source, want := range map[client.Source]string{client.Either: "[198.51.100.7 6.6.6.6]", client.XForwardedFor: "[]"} {
		if got := fmt.Sprint(r.Reading(source).Disputed("10.0.0.1:80", forged)); got != want {
			t.Errorf("disputed when reading %s: %s, want %s", source, got, want)
		}
	}
	if got := r.Disputed("192.0.2.1:80", forged); got != nil {
		t.Errorf("the peer is the client, and yet it is disputed: %v", got)
	}
	configured := newResolver(t, client.Config{TrustedProxies: networks("10.0.0.0/8"), Source: client.Forwarded})
	if got := text(configured.Reading(client.XForwardedFor).Resolve("10.0.0.1:80", forged)); got != "6.6.6.6" {
		t.Errorf("over what was configured: %s", got)
	}
}
