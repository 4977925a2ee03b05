package hosts_test

import (
	"net/http"
	"testing"

	"github.com/headgate/headgate/internal/request/hosts"
)

func TestIsLocal(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]bool{
		"localhost": true, "LOCALHOST:8080": true, "127.0.0.1": true, "127.9.9.9:1": true, "[::1]:80": true, "::1": true, "[::ffff:127.0.0.1]": true,
		"": false, "evil.example": false, "localhost.evil.example": false, "127.0.0.1.evil.example:80": false, "10.0.0.1": false,
		"[::1": false, "localhost:": true, "a:b:c": false, "127.0.0.1evil": false, "[::1].evil.example": false,
	} {
		if got := hosts.IsLocal(host); got != want {
			t.Errorf("%q: %v", host, got)
		}
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	known := []string{"api.example.org", "*.svc.cluster.local", "Headgate"}
	const page = "http://evil.example"
	for _, row := range []struct {
		options      hosts.Options
		host, origin string
		want         bool
	}{
		// On loopback: all callers.
		{hosts.Options{Strict: true}, "localhost:8080", "", true},
		{hosts.Options{Strict: true}, "127.0.0.1:8080", "", true},
		{hosts.Options{Strict: true}, "[::1]:8080", "", true},
		{hosts.Options{Strict: true}, "192.0.2.1:8080", "", true},
		{hosts.Options{Strict: true}, "", "", true},
		{hosts.Options{Strict: true}, "evil.example:8080", "", false},
		{hosts.Options{Strict: true}, "localhost.evil.example", "", false},
		{hosts.Options{Strict: true}, "127.0.0.1.evil.example", "", false},
		{hosts.Options{Strict: true}, "headgate:8080", "", false},
		// Reachable from other machines, with unknown names: only browsers.
		{hosts.Options{}, "headgate:8080", "", true},
		{hosts.Options{}, "headgate.prod.svc.cluster.local", "", true},
		{hosts.Options{}, "evil.example", "", true},
		{hosts.Options{}, "evil.example", page, false},
		{hosts.Options{}, "192.0.2.1:8080", page, true}, // another check decides about the page
		// Only the configured names.
		{hosts.Options{Known: known}, "API.example.ORG.", "", true},
		{hosts.Options{Known: known}, "api.example.org:443", page, true},
		{hosts.Options{Known: known}, "headgate:8080", "", true},
		{hosts.Options{Known: known}, "a.b.svc.cluster.local:8080", "", true},
		{hosts.Options{Known: known}, "svc.cluster.local:8080", "", false},
		{hosts.Options{Known: known}, ".svc.cluster.local", "", false},
		{hosts.Options{Known: known}, "evilsvc.cluster.local", "", false},
		{hosts.Options{Known: known}, "xapi.example.org", "", false},
		{hosts.Options{Known: known}, "evil.example", "", false},
		{hosts.Options{Known: known, Strict: true}, "localhost", "", true},
		{hosts.Options{Known: []string{"*"}, Strict: true}, "evil.example", page, true},
	} {
		r := &http.Request{Host: row.host, Header: http.Header{}}
		if row.origin != "" {
			r.Header.Set("Origin", row.origin)
		}
		if got := hosts.New(row.options).Allows(r); got != row.want {
			t.Errorf("%+v: %q from %q: %v", row.options, row.host, row.origin, got)
		}
	}
}

// A browser that sends a GET over plain HTTP to another machine does not say which page
// it is for, but is still recognized.
func TestNamesByGET(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, method, host string
		header             []string
		want               bool
	}{
		{"a browser", "GET", "evil.example", []string{"Accept-Language", "en-US,en;q=0.5"}, false},
		{"a browser whose page changes what it can", "GET", "evil.example", []string{"Accept-Language", ""}, false},
		{"a browser", "HEAD", "evil.example", []string{"Accept-Language", "de"}, false},
		{"a browser, by an address", "GET", "192.0.2.1:8080", []string{"Accept-Language", "de"}, true},
		{"a program", "GET", "headgate:8080", nil, true},
		{"Node.js", "GET", "headgate:8080", []string{"Accept-Language", "*", "Sec-Fetch-Mode", "cors"}, true},
		{"a program that posts", "POST", "headgate:8080", []string{"Accept-Language", "*"}, true},
	} {
		r := &http.Request{Method: row.method, Host: row.host, Header: http.Header{}}
		for i := 0; i < len(row.header); i += 2 {
			r.Header.Set(row.header[i], row.header[i+1])
		}
		if got := hosts.New(hosts.Options{}).Allows(r); got != row.want {
			t.Errorf("%s: %t", row.name, got)
		}
	}
}
