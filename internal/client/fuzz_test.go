package client_test

import (
	"net/http"
	"net/netip"
	"net/url"
	"testing"

	"github.com/headgate/headgate/internal/client"
)

// FuzzXForwardedFor has the client send any header, and proxies append to it
// as proxies do. Whatever it sent, the answer is the client.
func FuzzXForwardedFor(f *testing.F) {
	f.Add("6.6.6.6")
	f.Add("10.0.0.1, 6.6.6.6,")
	f.Add(`"6.6.6.6, [`)
	trusting := newResolver(f, client.Config{TrustedProxies: networks("10.0.0.0/8")})
	f.Fuzz(func(t *testing.T, sent string) {
		checkSent(t, trusting, "X-Forwarded-For", sent, "198.51.100.7, 10.0.0.2")
	})
}

// FuzzForwarded is FuzzXForwardedFor for RFC 7239, with quotes in which
// elements could hide.
func FuzzForwarded(f *testing.F) {
	f.Add("for=6.6.6.6")
	f.Add(`for="6.6.6.6`)
	f.Add(`for="6.6.6.6\`)
	f.Add(`for=6.6.6.6;host="a,b\",for=7.7.7.7"`)
	trusting := newResolver(f, client.Config{TrustedProxies: networks("10.0.0.0/8")})
	f.Fuzz(func(t *testing.T, sent string) {
		checkSent(t, trusting, "Forwarded", sent, `for="198.51.100.7:80";host="a,b\"c", for=10.0.0.2;proto=http`)
	})
}

func checkSent(t *testing.T, trusting *client.Resolver, name, sent, appended string) {
	t.Helper()
	want := netip.MustParseAddr("198.51.100.7")
	for _, h := range []http.Header{
		{name: {sent + ", " + appended}},
		{name: {sent, appended}},
	} {
		if got := trusting.Resolve("10.0.0.1:80", h); got != want {
			t.Errorf("%q: %s, want %s", h, got, want)
		}
	}
	// Without proxies the peer is the client.
	if got := newResolver(t, client.Config{}).Resolve("192.0.2.1:80", http.Header{name: {sent}}); got != netip.MustParseAddr("192.0.2.1") {
		t.Errorf("%q with no trusted proxy: %s, want the peer", sent, got)
	}
	// Alone it may be believed, but must come out clean.
	got := trusting.Resolve("10.0.0.1:80", http.Header{name: {sent}})
	if got.Is4In6() || got.Zone() != "" {
		t.Errorf("%q: %s is mapped or has a zone", sent, got)
	}
}

func FuzzQuery(f *testing.F) {
	f.Add("a=1&b=2", "b")
	f.Add("a%20b=c+d", "a b")
	f.Add("a+b=1", "a+b")
	f.Add("a=%zz&a=2", "a")
	f.Add("a;b=1&a", "a")
	f.Fuzz(func(t *testing.T, raw, name string) {
		values, _ := url.ParseQuery(raw)
		want, found := values.Get(name), values.Has(name)
		if got, ok := client.Query(raw, name); got != want || ok != found {
			t.Errorf("Query(%q, %q) = %q, %v, want %q, %v", raw, name, got, ok, want, found)
		}
	})
}

func FuzzCookie(f *testing.F) {
	f.Add("a=1; b=2", "b")
	f.Add(`a="x y"; a=2`, "a")
	f.Add(`a="; a=2`, "a")
	f.Add("=1; a", "a")
	f.Fuzz(func(t *testing.T, line, name string) {
		h := http.Header{"Cookie": {"first=1", line}}
		want, found := "", false
		if c, err := (&http.Request{Header: h}).Cookie(name); err == nil {
			want, found = c.Value, true
		}
		if got, ok := client.Cookie(h, name); got != want || ok != found {
			t.Errorf("Cookie(%q, %q) = %q, %v, want %q, %v", line, name, got, ok, want, found)
		}
	})
}
