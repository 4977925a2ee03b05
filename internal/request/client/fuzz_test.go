package client_test

import (
	"net/http"
	"net/netip"
	"net/textproto"
	"net/url"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/request/client"
)

// FuzzXForwardedFor: whatever header a client sends, once proxies have appended to it the
// client is found.
func FuzzXForwardedFor(f *testing.F) {
	f.Add("6.6.6.6")
	f.Add("10.0.0.1, 6.6.6.6,")
	f.Add(`"6.6.6.6, [`)
	trusting := newResolver(f, client.Config{TrustedProxies: networks("10.0.0.0/8")})
	f.Fuzz(func(t *testing.T, sent string) {
		checkSent(t, trusting, "X-Forwarded-For", sent, "198.51.100.7, 10.0.0.2")
	})
}

// FuzzForwarded is FuzzXForwardedFor for RFC 7239, where quotes could hide elements.
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
	// Alone, the header may be trusted, but the address must be valid.
	got := trusting.Resolve("10.0.0.1:80", http.Header{name: {sent}})
	if got.Is4In6() || got.Zone() != "" {
		t.Errorf("%q: %s is mapped or has a zone", sent, got)
	}
}

// FuzzQuery: what is clear is what net/url reads first.
func FuzzQuery(f *testing.F) {
	f.Add("a=1&b=2", "b")
	f.Add("a%20b=c+d", "a b")
	f.Add("a+b=1", "a+b")
	f.Add("a=%zz&a=2", "a")
	f.Add("a;b=1&a", "a")
	f.Add("a.b=1&a_b=2&A.b[]=3;a%5fb[x]=1", "a_b")
	f.Fuzz(func(t *testing.T, raw, name string) {
		parsed, _ := url.ParseQuery(raw)
		v := client.ReadQuery(raw, name)
		if v.Unclear {
			return
		}
		for _, want := range parsed[name] {
			if want = strings.Trim(want, " \t"); !v.OK || v.Text != want {
				t.Errorf("%+v, and net/url reads %q", v, want)
			}
		}
	})
}

// FuzzCookie is FuzzQuery for cookies and net/http.
func FuzzCookie(f *testing.F) {
	f.Add("a=1; b=2", "b")
	f.Add(`a="x y"; a=2`, "a")
	f.Add(`a="; a=2`, "a")
	f.Add("=1; a=; a==; a=\t1 ", "a")
	f.Fuzz(func(t *testing.T, line, name string) {
		h := http.Header{"Cookie": {"first=1", line}}
		if name == "" {
			return // no cookie has such a name
		}
		v := client.ReadCookie(h, name)
		if v.Unclear {
			return
		}
		for _, c := range (&http.Request{Header: h}).CookiesNamed(name) {
			if c.Quoted {
				c.Value = `"` + c.Value + `"`
			}
			if c.Value = textproto.TrimString(c.Value); !v.OK || v.Text != c.Value {
				t.Errorf("%+v, and net/http reads %q", v, c.Value)
			}
		}
	})
}
