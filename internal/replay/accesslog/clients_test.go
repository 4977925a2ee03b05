package accesslog_test

import (
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/replay/accesslog"
)

// rest is a line of the combined format from the client's identity on.
const rest = ` - - [26/Nov/2026:12:29:09 +0000] "GET /a HTTP/1.1" 200 844 "-" "c"`

// The format of a log is the one in which clients are addresses, whatever stands
// before them: only the address of a client is taken for it.
func TestTheClientIsAnAddress(t *testing.T) {
	rows := []struct{ name, line, format, client, host string }{
		{"plain", "192.0.2.10" + rest, "combined", "192.0.2.10", ""},
		{"IPv6", "2001:db8::17" + rest, "combined", "2001:db8::17", ""},
		{"a virtual host", "drive.example.com 192.0.2.11" + rest, "vhost_combined", "192.0.2.11", "drive.example.com"},
		{"a virtual host with a port", "drive.example.com:443 192.0.2.11" + rest, "vhost_combined", "192.0.2.11", "drive.example.com"},
		{"a virtual host of one word", "localhost 192.0.2.11" + rest, "vhost_combined", "192.0.2.11", "localhost"},
		{"a virtual host that is an address", "192.0.2.80:443 192.0.2.11" + rest, "vhost_combined", "192.0.2.11", "192.0.2.80"},
		{"HostnameLookups", "node3.monitor.example.net" + rest, "combined", "node3.monitor.example.net", ""},
		{"HostnameLookups and a virtual host", "www.example.com node3.monitor.example.net" + rest, "vhost_combined", "node3.monitor.example.net", "www.example.com"},
		{"X-Forwarded-For", "203.0.113.6, 198.51.100.7, 10.0.0.113" + rest, "combined", "10.0.0.113", ""},
		{"IPv6 in X-Forwarded-For", "2001:db8::17, 10.0.0.113" + rest, "combined", "10.0.0.113", ""},
		{"two spaces", "192.0.2.10 " + rest, "combined", "192.0.2.10", ""},

		{"CRI", "2026-11-20T08:39:23.864113722Z stdout F 192.0.2.10" + rest, "combined in CRI lines", "192.0.2.10", ""},
		{"CRI with a virtual host", "2026-11-20T08:39:23.864113722+01:00 stderr F a.example.com 192.0.2.10" + rest, "vhost_combined in CRI lines", "192.0.2.10", "a.example.com"},
		{"syslog", "Nov 20 08:39:23 web-1 nginx: 192.0.2.10" + rest, "combined in syslog lines", "192.0.2.10", ""},
		{"journalctl", "Nov  2 08:39:23 web-1 nginx[4711]: 192.0.2.10" + rest, "combined in syslog lines", "192.0.2.10", ""},
		{"RFC 3164", "<190>Nov 20 08:39:23 web-1 nginx: 192.0.2.10" + rest, "combined in syslog lines", "192.0.2.10", ""},
		{"rsyslog", "2026-11-20T08:39:23.864113+00:00 web-1 nginx: 192.0.2.10" + rest, "combined in syslog lines", "192.0.2.10", ""},
		{"RFC 5424", "<190>1 2026-11-20T08:39:23.8Z web-1 nginx 4711 - - 192.0.2.10" + rest, "combined in syslog lines", "192.0.2.10", ""},
		{"docker compose", "web-1  | 192.0.2.10" + rest, "combined in lines with the name of a container", "192.0.2.10", ""},
		{"docker compose and Caddy", `caddy  | {"ts":1795262400.5,"request":{"remote_ip":"192.0.2.10","method":"GET","host":"a","uri":"/a"},"status":200}`, "caddy in lines with the name of a container", "192.0.2.10", "a"},
		{"kubectl logs --prefix", "[pod/web-5d4/nginx] 192.0.2.10" + rest, "combined in lines with the name of a container", "192.0.2.10", ""},
		{"docker logs --timestamps", "2026-11-20T08:39:23.864113722Z 192.0.2.10" + rest, "combined in lines with a time before", "192.0.2.10", ""},
		{"Docker's json-file", `{"log":"192.0.2.10 - - [20/Nov/2026:08:39:23 +0000] \"GET /a?a=1\u0026b=2 HTTP/1.1\" 200 1228 \"-\" \"Mozilla/5.0 (X11)\" \"-\" rid-1 \n","stream":"stdout","time":"2026-11-20T08:39:23.864113722Z"}`, "combined in Docker's JSON lines", "192.0.2.10", ""},
		{"Logstash", `{"@timestamp":"2026-11-20T10:00:00.000Z","message":"192.0.2.10 - - [20/Nov/2026:10:00:00 +0000] \"POST /a HTTP/1.1\" 200 5 \"-\" \"c\"","host":"web-1","clientip":"192.0.2.10","verb":"POST","request":"/a","response":"200"}`, "combined in Logstash's JSON lines", "192.0.2.10", ""},
		{"Logstash without the line", `{"@timestamp":"2026-11-20T10:00:00.000Z","clientip":"192.0.2.10","verb":"POST","request":"/a","response":"200"}`, "json", "192.0.2.10", ""},
		{"GCP", `{"httpRequest":{"requestMethod":"GET","requestUrl":"https://shop.example.com/a?x=1","status":200,"remoteIp":"192.0.2.10","userAgent":"c"},"timestamp":"2026-11-20T10:00:00.1Z"}`, "json", "192.0.2.10", "shop.example.com"},

		{"client is the software", `{"time":1795262400,"client":"ios-app","ip":"192.0.2.10","path":"/a"}`, "json", "192.0.2.10", ""},
		{"client is the software, after the address", `{"time":1795262400,"ip":"192.0.2.10","client":"ios-app","path":"/a"}`, "json", "192.0.2.10", ""},
		{"remote_host is a name", `{"time":1795262400,"remote_host":"a.example.net","remote_addr":"192.0.2.10","path":"/a"}`, "json", "192.0.2.10", ""},
		{"client_ip is not an address", `{"time":1795262400,"client_ip":"anonymous","remote_addr":"192.0.2.10:80","path":"/a"}`, "json", "192.0.2.10:80", ""},
		{"client alone, and an address", `{"time":1795262400,"client":"192.0.2.10","path":"/a"}`, "json", "192.0.2.10", ""},
		{"client alone, and none", `{"time":1795262400,"client":"ios-app","path":"/a"}`, "json", "", ""},
		{"client_ip is a list", `{"time":1795262400,"client_ip":"203.0.113.5, 10.0.0.1","path":"/a"}`, "json", "10.0.0.1", ""},
		{"host is the shipper", `{"time":1795262400,"host":"node-7","http_host":"shop.example.com","remote_addr":"192.0.2.10","request":"GET /a HTTP/1.1"}`, "json", "192.0.2.10", "shop.example.com"},
		{"host is the host", `{"time":1795262400,"host":"shop.example.com","remote_addr":"192.0.2.10","request":"GET /a HTTP/1.1"}`, "json", "192.0.2.10", "shop.example.com"},
		{"X-Forwarded-For alone", `{"time":1795262400,"x_forwarded_for":"203.0.113.5, 10.0.0.1","path":"/a"}`, "json", "10.0.0.1", ""},
	}
	for _, row := range rows {
		f, err := accesslog.Detect([]string{row.line, row.line})
		if err != nil {
			t.Errorf("%s: %v", row.name, err)
			continue
		}
		var r accesslog.Record
		err = f.Parser(nil).Parse(row.line, &r)
		if err != nil || f.Name() != row.format || r.Client != row.client || r.Host != row.host || r.Path != "/a" {
			t.Errorf("%s: %s, client %q, host %q, path %q, %v", row.name, f.Name(), r.Client, r.Host, r.Path, err)
		}
		if only := strings.Contains(row.line, ", 10.0.0."); r.OnlyForwarded != only || only && !strings.Contains(r.ForwardedFor, ", 10.0.0.") {
			t.Errorf("%s: only forwarded is %t, of %q", row.name, r.OnlyForwarded, r.ForwardedFor)
		}
	}
}

// A log in which it is unclear who the client is has no known format.
func TestWhoTheClientIsMayBeUnclear(t *testing.T) {
	rows := []struct{ name, line, want string }{
		{"two addresses", "192.0.2.10 203.0.113.5" + rest, `there is an address, "203.0.113.5", in value 2 of the format`},
		{"an address as the user", `a.example.com - 192.0.2.10 [26/Nov/2026:12:29:09 +0000] "GET /a HTTP/1.1" 200 844 "-" "c"`, `there is an address, "192.0.2.10", in value 3`},
		{"an unknown prefix", "Friday 8.39 stage web-1 192.0.2.10" + rest, "there is an address"},
		{"no name and no address", "<b>" + rest, `the client "<b>" is neither an address nor a host name`},
		{"JSON without a request", `{"time":1795262400,"client_ip":"192.0.2.10","level":"info"}`, "name it with --map path=KEY"},
	}
	for _, row := range rows {
		if f, err := accesslog.Detect([]string{row.line, row.line}); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v, %v; want %s", row.name, f, err, row.want)
		}
	}
}

// A known format does not take a prefix of one line for its client.
func TestALineOfAnotherFormat(t *testing.T) {
	f, err := accesslog.New("combined", nil)
	if err != nil {
		t.Fatal(err)
	}
	var r accesslog.Record
	for _, prefix := range []string{"a.example.com ", "2026-11-20T08:39:23Z stdout F ", "Nov 20 08:39:23 web-1 nginx: "} {
		if err := f.Parser(nil).Parse(prefix+"192.0.2.10"+rest, &r); err == nil {
			t.Errorf("%s: the client is %q", prefix, r.Client)
		}
	}
}

// Values that are not quoted may be lists, media types and -, and may be missing.
func TestUnquotedValues(t *testing.T) {
	rows := []struct{ name, format, line, client, key string }{
		{"a media type", `$remote_addr [$time_local] "$request" $sent_http_content_type $http_x_api_key`, `192.0.2.1 [21/Nov/2026:12:00:00 +0000] "GET /a HTTP/1.1" text/html; charset=utf-8 key-1`, "192.0.2.1", "key-1"},
		{"upstreams", `$remote_addr [$time_local] "$request" $upstream_addr $http_x_api_key`, `192.0.2.1 [21/Nov/2026:12:00:00 +0000] "GET /a HTTP/1.1" 10.0.0.1:80, 10.0.0.2:80 key-1`, "192.0.2.1", "key-1"},
		{"X-Forwarded-For and the peer", `$http_x_forwarded_for $remote_addr [$time_local] "$request" $http_x_api_key`, `203.0.113.5, 198.51.100.7 192.0.2.1 [21/Nov/2026:12:00:00 +0000] "GET /a HTTP/1.1" key-1`, "192.0.2.1", "key-1"},
		{"X-Forwarded-For alone", `$http_x_forwarded_for [$time_local] "$request" $http_x_api_key`, `203.0.113.5, 198.51.100.7 [21/Nov/2026:12:00:00 +0000] "GET /a HTTP/1.1" key-1`, "198.51.100.7", "key-1"},
		{"a local socket", `$remote_addr [$time_local] "$request" $http_x_api_key`, `unix: [21/Nov/2026:12:00:00 +0000] "GET /a HTTP/1.1" key-1`, "", "key-1"},
	}
	for _, row := range rows {
		f, err := accesslog.New(row.format, nil)
		if err != nil {
			t.Fatal(err)
		}
		var r accesslog.Record
		err = f.Parser(nil).Parse(row.line, &r)
		if key, _ := r.Field(accesslog.Header, "X-Api-Key"); err != nil || r.Client != row.client || key != row.key {
			t.Errorf("%s: client %q, key %q, %v", row.name, r.Client, key, err)
		}
	}
	for name, lines := range map[string][]string{
		"traefik": {
			`127.0.0.1 - - [13/Mar/2026:18:49:07 +0000] "GET /a HTTP/1.1" 200 2 "-" "-" 1 "ping@internal" - 0ms`,
			`127.0.0.1 - - [13/Mar/2026:18:49:07 +0000] "GET /a HTTP/1.1" 200 2 - "a - b" 1 - - 0ms`,
			`127.0.0.1 - - [13/Mar/2026:18:49:07 +0000] "GET /a HTTP/1.1" 200 2 "-" "\"a\" - b" 1 "r" "http://10.0.0.2:80" 0ms`,
		},
		"alb": {`http 2026-11-21T12:00:00.186641Z app/a/5  127.0.0.1:2817 192.0.2.1:80 0.000  0.001 0.000  200 200 34  366 "GET http://www.example.com:80/a HTTP/1.1" "curl/7.46.0" - - arn "Root=1" "-" "-" 0  2026-11-21T11:59:59.364000Z "forward" "-"`},
	} {
		f, err := accesslog.New(name, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range lines {
			var r accesslog.Record
			if err := f.Parser(nil).Parse(line, &r); err != nil || r.ClientAddr().String() != "127.0.0.1" || r.Path != "/a" || r.Status != 200 {
				t.Errorf("%s: %+v, %v", line, r, err)
			}
		}
	}
}

// A format that is given is found inside wrapped lines as well.
func TestAGivenFormatInWrappedLines(t *testing.T) {
	f, err := accesslog.New(`$remote_addr|$msec|$request_uri`, nil)
	if err != nil {
		t.Fatal(err)
	}
	const line = `{"log":"192.0.2.10|1795262400|/a\n","stream":"stdout"}`
	wrapped := accesslog.Unwrap(f, []string{line, `{"log":"192.0.2.10|1795262400|/b\r\n"}`})
	if wrapped == nil {
		t.Fatal("not found")
	}
	var r accesslog.Record
	if err := wrapped.Parser(nil).Parse(line, &r); err != nil || r.Client != "192.0.2.10" || r.Path != "/a" {
		t.Errorf("%+v, %v", r, err)
	}
	if other := accesslog.Unwrap(f, []string{`192.0.2.10|1795262400|/a`}); other != nil {
		t.Errorf("lines that are not wrapped: %s", other.Name())
	}
}
