package httprequest_test

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/headgate/headgate/internal/door/httprequest"
	"github.com/headgate/headgate/internal/request/client"
	"github.com/headgate/headgate/internal/rules"
)

func newClients(t testing.TB) *client.Resolver {
	t.Helper()
	clients, err := client.New(client.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return clients
}

func TestAttributes(t *testing.T) {
	t.Parallel()
	r := httptest.NewRequest(http.MethodPut, "http://shop.example:8080/a%20b/%2e%2e?q=1+2&q=3", nil)
	r.RemoteAddr = "[2001:db8:1:2:3::9]:4711"
	r.Header = http.Header{"X-Tenant": {"red", "blue"}, "Cookie": {"a=b; session=s1"}, "Host": {"forged"}}
	var q httprequest.Request
	q.SetRequest(r, newClients(t), client.Identity{})
	if q.ClientIP() != netip.MustParseAddr("2001:db8:1:2:3::9") {
		t.Errorf("client %s", q.ClientIP())
	}
	for name, want := range map[string]string{
		"method": "PUT", "path": "/a%20b/%2e%2e", "host": "shop.example:8080", "client_ip": "2001:db8:1:2::/64",
		"header:x-tenant": "red", "header:host": "shop.example:8080", "query:q": "1 2", "cookie:session": "s1",
		"header:x-none": "", "query:none": "", "cookie:none": "", "jwt:sub": "", "anything": "",
	} {
		a, err := rules.ParseAttribute(name)
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := q.Attribute(a); got != want || ok != (want != "") {
			t.Errorf("%s: %q, %v; want %q", name, got, ok, want)
		}
	}
}

func TestNobodyKnowsTheClient(t *testing.T) {
	t.Parallel()
	q := httprequest.Request{}
	q.SetClient(netip.Addr{}, newClients(t), client.Identity{})
	if got, ok := q.Attribute(rules.Attribute{Kind: rules.ClientIP}); got != client.Unknown || !ok {
		t.Errorf("counted as %q, %v", got, ok)
	}
	for _, kind := range []rules.AttributeKind{rules.Host, rules.Header} {
		if got, ok := q.Attribute(rules.Attribute{Kind: kind, Name: "Host"}); ok {
			t.Errorf("%s: %q of a request without a host", kind, got)
		}
	}
}

func TestHosts(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]bool{
		"": true, "a-b.example:8080": true, "xn--bcher-kva.example": true, "[::1]": true, "[2001:db8::1]:80": true, "[fe80::1%eth0]:80": true, "[fe80::1%25eth0]": true,
		"a.example.": true, "a:": true, "A:0080": true, "127.0.0.1:80": true, "[::1]:": true,
		":": false, ":80": false, ":a": false, "a:b": false, "a:80a": false, "a:+80": false, "a:80:80": false, "::1": false, "[::1]:a": false, "[::1]:80:80": false, "[::1%a:b]": false,
		".": false, "..": false, "a..b": false, ".a": false, "a..": false, "a..:80": false,
		"a,b": false, "%61": false, "a b": false, "a/b": false, "[admin.example.com": false, "[admin.example.com]": false, "[::1": false, "[::1]admin": false, "[::1]:80,b": false, "[::1%a,b]": false, "[]": false,
	} {
		if got := httprequest.IsHost(host); got != want {
			t.Errorf("%q: %v", host, got)
		}
	}
}
