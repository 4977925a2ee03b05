package accesslog_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/internal/replay/accesslog"
)

// update writes what is read into testdata/*.want, to be looked at.
var update = flag.Bool("update", false, "rewrite testdata/*.want")

// describe writes a record on a few lines.
func describe(r *accesslog.Record) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s %s", time.UnixMicro(r.Time).UTC().Format(time.RFC3339Nano), r.ClientAddr(), r.Method)
	fmt.Fprintf(&b, " host=%q path=%q query=%q status=%d", r.Host, r.Path, r.RawQuery, r.Status)
	if r.ForwardedFor != "" {
		fmt.Fprintf(&b, " forwarded=%q", r.ForwardedFor)
	}
	for _, f := range r.Fields {
		fmt.Fprintf(&b, "\n    %s %s=%q", [...]string{"header", "cookie", "query", "other"}[f.Kind], f.Name, f.Value)
	}
	return b.String() + "\n"
}

// readAll reads lines as a format.
func readAll(f accesslog.Format, text string) string {
	var b strings.Builder
	p := f.Parser(nil)
	var r accesslog.Record
	for line := range strings.Lines(text) {
		if err := p.Parse(strings.TrimRight(line, "\n"), &r); err != nil {
			fmt.Fprintf(&b, "error: %v\n", err)
			continue
		}
		b.WriteString(describe(&r))
	}
	return b.String()
}

// The samples of each format are recognised and read. They are written after
// the servers' documentation.
func TestSamples(t *testing.T) {
	files, err := filepath.Glob("testdata/*.log")
	if err != nil || len(files) < 10 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		f, err := accesslog.Detect(strings.Split(string(text), "\n"))
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		name := strings.TrimSuffix(filepath.Base(file), ".log")
		if f.Name() != name {
			t.Errorf("%s is taken for %s", file, f.Name())
		}
		got := readAll(f, string(text))
		want := strings.TrimSuffix(file, ".log") + ".want"
		if *update {
			if err := os.WriteFile(want, []byte(got), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		wanted, err := os.ReadFile(want)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(wanted), got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", file, diff)
		}
		// By its name it is read in the same way.
		named, err := accesslog.New(name, nil)
		if err != nil || readAll(named, string(text)) != got {
			t.Errorf("%s by name: %v", name, err)
		}
	}
}

// Formats that users define.
func TestDefinedFormats(t *testing.T) {
	rows := []struct{ name, format, line, want string }{
		{
			"nginx with a precise time and a duration", `$remote_addr $host [$time_local] $msec "$request" $status $request_time "$http_x_api_key" $cookie_session $arg_q $tenant`,
			`192.0.2.1 example.com [21/Nov/2026:12:00:00 +0000] 1795262400.750 "GET /a HTTP/1.1" 200 0.250 "k\x221" s1 - t1`,
			"2026-11-21T12:00:00.5Z 192.0.2.1 GET host=\"example.com\" path=\"/a\" query=\"\" status=200\n" +
				"    header X-Api-Key=\"k\\\"1\"\n    cookie session=\"s1\"\n    other tenant=\"t1\"\n",
		},
		{
			"nginx with parts of the request", `${remote_addr}|$time_iso8601|$request_method|$scheme://$http_host$request_uri|$http_x_forwarded_for`,
			`192.0.2.1|2026-11-21T13:00:00+01:00|PUT|https://example.com/a%2Bb?c|203.0.113.5, 198.51.100.1`,
			"2026-11-21T12:00:00Z 192.0.2.1 PUT host=\"example.com\" path=\"/a%2Bb\" query=\"c\" status=0 forwarded=\"203.0.113.5, 198.51.100.1\"\n    other scheme=\"https\"\n",
		},
		{
			"nginx, path that is decoded", `$remote_addr [$time_local] $request_method $uri$is_args$args $status`,
			`192.0.2.1 [21/Nov/2026:12:00:00 +0000] GET /a%b?x=1 200`,
			"2026-11-21T12:00:00Z 192.0.2.1 GET host=\"\" path=\"/a%b\" query=\"x=1\" status=200\n",
		},
		{
			"nginx with the time of the decision", `$remote_addr [$time_local] $msec $request_time "$request" $status $upstream_http_x_headgate_time`,
			`192.0.2.1 [21/Nov/2026:12:00:01 +0000] 1795262401.000 0.900 "GET /a HTTP/1.1" 200 1795262400.500250`,
			"2026-11-21T12:00:00.50025Z 192.0.2.1 GET host=\"\" path=\"/a\" query=\"\" status=200\n",
		},
		{
			"Apache with the time of the decision", `%h %t \"%r\" %>s %D %{X-Headgate-Time}o`,
			`192.0.2.1 [21/Nov/2026:12:00:01 +0000] "GET /a HTTP/1.1" 200 900000 1795262400.500250`,
			"2026-11-21T12:00:00.50025Z 192.0.2.1 GET host=\"\" path=\"/a\" query=\"\" status=200\n",
		},
		{
			"Envoy with the time of the decision", "[%START_TIME%] %DOWNSTREAM_REMOTE_ADDRESS% %REQ(:METHOD)% %REQ(:PATH)% %RESP(X-HEADGATE-TIME)%\n",
			`[2026-11-21T12:00:00.400Z] 192.0.2.1:4711 GET /a 1795262400.500250`,
			"2026-11-21T12:00:00.50025Z 192.0.2.1 GET host=\"\" path=\"/a\" query=\"\" status=0\n",
		},
		{
			"Apache with modifiers", `%{c}a %a %t \"%r\" %>s %{X-Api-Key}i %{session}C %D`,
			`10.0.0.1 192.0.2.1 [21/Nov/2026:12:00:00 +0000] "GET /a HTTP/1.1" 200 k1 s1 250000`,
			"2026-11-21T12:00:00Z 192.0.2.1 GET host=\"\" path=\"/a\" query=\"\" status=200\n" +
				"    header X-Api-Key=\"k1\"\n    cookie session=\"s1\"\n",
		},
		{
			"Apache with a time in microseconds", `%h %{usec}t %m %U%q %>s`, `192.0.2.1 1795262400500000 GET /a?b=c 200`,
			"2026-11-21T12:00:00.5Z 192.0.2.1 GET host=\"\" path=\"/a\" query=\"b=c\" status=200\n",
		},
		{
			"Envoy", "[%START_TIME(%s.%3f)%] %DOWNSTREAM_REMOTE_ADDRESS% %REQ(:METHOD)% %REQ(:PATH)% %REQ(X-API-KEY):12% %RESPONSE_CODE%\n",
			`[1795262400.500] 192.0.2.1:4711 GET /a?b=c k1 200`,
			"2026-11-21T12:00:00.5Z 192.0.2.1 GET host=\"\" path=\"/a\" query=\"b=c\" status=200\n    header X-Api-Key=\"k1\"\n",
		},
	}
	for _, row := range rows {
		f, err := accesslog.New(row.format, nil)
		if err != nil {
			t.Errorf("%s: %v", row.name, err)
			continue
		}
		if got := readAll(f, row.line); got != row.want {
			t.Errorf("%s:\n%s\nwant\n%s", row.name, got, row.want)
		}
	}
}

// Formats are read from server configurations.
func TestFormatsFromConfigurations(t *testing.T) {
	rows := []struct{ format, line, want string }{
		{
			"testdata/nginx.conf:main", `192.0.2.1 - - [21/Nov/2026:12:00:00 +0000] "GET /a HTTP/1.1" 200 12 "-" "curl" "203.0.113.5"`,
			"2026-11-21T12:00:00Z 192.0.2.1 GET host=\"\" path=\"/a\" query=\"\" status=200 forwarded=\"203.0.113.5\"\n    header User-Agent=\"curl\"\n" +
				"",
		},
		{
			"testdata/nginx.conf:precise", `{"at":1795262400.750,"ip":"192.0.2.1","line":"GET /\"a\" HTTP/1.1","key":"k\u00fc","took":0.250}`,
			"2026-11-21T12:00:00.5Z 192.0.2.1 GET host=\"\" path=\"/\\\"a\\\"\" query=\"\" status=0\n    header X-Api-Key=\"kü\"\n",
		},
	}
	for _, row := range rows {
		f, err := accesslog.New(row.format, nil)
		if err != nil {
			t.Errorf("%s: %v", row.format, err)
			continue
		}
		if got := readAll(f, row.line); got != row.want {
			t.Errorf("%s:\n%s\nwant\n%s", row.format, got, row.want)
		}
	}
	f, err := accesslog.New("testdata/apache2.conf", nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := readAll(f, `192.0.2.1 - - 2026-11-21T12:00:00.250 "GET /a?b=c HTTP/1.1" 200 12 k1`); !strings.Contains(got, `192.0.2.1 GET host="" path="/a" query="b=c" status=200`) {
		t.Error(got)
	}
}

// Errors in formats are reported.
func TestFormatsThatAreWrong(t *testing.T) {
	rows := []struct{ format, want string }{
		{"$remote_addr $request", "the format has no time"},
		{"$remote_addr [$time_local]", "the format has no request"},
		{"$remote_addr$request $msec", "needs a separator between values 1 and 2"},
		{"${remote_addr $msec", "${ without a }"},
		{"$", "a $ without a name"},
		{"%{X", "%{ without a }"},
		{"%h %", "ends in %"},
		{"%START_TIME% %REQ(:PATH", "has no )"},
		{"combine", `not a known format (alb, `},
		{"nowhere.conf", "or a file"},
		{"testdata/nginx.conf", "several log formats (main, precise): choose one, for example testdata/nginx.conf:main"},
		{"testdata/nginx.conf:old", `no log format "old": it has main, precise`},
		{"testdata/combined.log", "defines no log format"},
		{"testdata", "is not an nginx or Apache configuration"},
	}
	for _, row := range rows {
		if _, err := accesslog.New(row.format, nil); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v, want %s", row.format, err, row.want)
		}
	}
	if _, err := accesslog.New("combined", map[string]string{"path": "p"}); err == nil {
		t.Error("a mapping of a text format is accepted")
	}
	if _, err := accesslog.New("", map[string]string{"header:": "p"}); err == nil {
		t.Error("an attribute without a name is accepted")
	}
}

// JSON with custom names is read with a mapping.
func TestMapping(t *testing.T) {
	f, err := accesslog.New("", map[string]string{
		"client_ip": "who.ip", "path": "what", "time": "when", "header:x-api-key": "who.key", "tenant": "org", "method": "how",
	})
	if err != nil {
		t.Fatal(err)
	}
	got := readAll(f, `{"when": 1795262400250, "who": {"ip": "[2001:db8::17]:80", "key": "k1"}, "what": "/a?b=c", "how": "GET", "org": "t1", "path": "/no", "status": 200}`)
	want := "2026-11-21T12:00:00.25Z 2001:db8::17 GET host=\"\" path=\"/a\" query=\"b=c\" status=200\n    header X-Api-Key=\"k1\"\n    other tenant=\"t1\"\n"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// An unknown log is refused, with the closest format and a reason.
func TestDetectSaysWhy(t *testing.T) {
	rows := []struct {
		sample []string
		want   string
	}{
		{[]string{"hello", "world"}, `the closest is combined, but line 1: no " " after value 1 of the format`},
		{[]string{`{"a": 1}`, `{"a": 2}`}, "the closest is json, but line 1: the line has no time"},
		{[]string{"", " "}, "the log has no lines"},
		{[]string{
			`192.0.2.1 - - [21/Nov/2026:12:00:00 +0000] "GET / HTTP/1.1" 200 12 "-" "-"`, "x", "y", "z",
		}, "the closest is combined, but line 2"},
	}
	for _, row := range rows {
		if f, err := accesslog.Detect(row.sample); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%q: %v, %v; want %s", row.sample, f, err, row.want)
		}
	}
}

// Times in all the forms that servers write.
func TestTimes(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	f, err := accesslog.New("", map[string]string{"time": "t", "path": "p"})
	if err != nil {
		t.Fatal(err)
	}
	rows := []struct{ text, want string }{
		{`1795262400`, "2026-11-21T12:00:00Z"},
		{`1795262400.25`, "2026-11-21T12:00:00.25Z"},
		{`"1795262400.250"`, "2026-11-21T12:00:00.25Z"},
		{`1795262400250`, "2026-11-21T12:00:00.25Z"},
		{`1795262400250123`, "2026-11-21T12:00:00.250123Z"},
		{`1795262400250123456`, "2026-11-21T12:00:00.250123Z"},
		{`1.7952624e9`, "2026-11-21T12:00:00Z"},
		{`"21/Nov/2026:12:00:00 +0000"`, "2026-11-21T12:00:00Z"},
		{`"[21/Nov/2026:13:00:00.5 +0100]"`, "2026-11-21T12:00:00.5Z"},
		{`"2026-11-21T12:00:00Z"`, "2026-11-21T12:00:00Z"},
		{`"2026-11-21 13:00:00,250 +01:00"`, "2026-11-21T12:00:00.25Z"},
		{`"2026/11/21 13:00:00"`, "2026-11-21T12:00:00Z"}, // in the zone given
		{`"2026-07-21T14:00:00"`, "2026-07-21T12:00:00Z"},
		{`"Sat, 21 Nov 2026 12:00:00 GMT"`, "2026-11-21T12:00:00Z"},
		{`"2026-02-31T12:00:00Z"`, ""},
		{`"2026-13-01T12:00:00Z"`, ""},
		{`"yesterday"`, ""},
		{`17`, ""},
		{`-1795262400`, ""},
	}
	p := f.Parser(berlin)
	for _, row := range rows {
		var r accesslog.Record
		err := p.Parse(`{"p": "/", "t": `+row.text+`}`, &r)
		got := time.UnixMicro(r.Time).UTC().Format(time.RFC3339Nano)
		if (err != nil) != (row.want == "") || err == nil && got != row.want {
			t.Errorf("%s: %s, %v; want %s", row.text, got, err, row.want)
		}
	}
}

// Addresses as logs write them.
func TestAddress(t *testing.T) {
	for text, want := range map[string]string{
		"192.0.2.1": "192.0.2.1", "192.0.2.1:80": "192.0.2.1", "2001:db8::1": "2001:db8::1", "[2001:db8::1]:80": "2001:db8::1",
		"[2001:db8::1]": "2001:db8::1", "::ffff:192.0.2.1": "192.0.2.1", "fe80::1%eth0": "fe80::1",
		"": "", "-": "", "unix:": "", "host.example": "", "192.0.2.1:80:90": "", "[2001:db8::1]x": "", "[": "",
	} {
		got := accesslog.Address(text)
		if got.IsValid() != (want != "") || want != "" && got.String() != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

// No line makes a parser fail otherwise than by an error, and none gets more
// out than it has put in.
func FuzzParse(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.log")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		for line := range bytes.Lines(text) {
			f.Add(string(bytes.TrimRight(line, "\n")))
		}
	}
	var parsers []accesslog.Parser
	texts := []string{
		"testdata/nginx.conf:main", "testdata/nginx.conf:precise", `%h %{usec}t "%m %U%q" %D %{X-Api-Key}i`,
		`$remote_addr $msec $request_method $request_uri $request_time`, `[%START_TIME%] %REQ(:METHOD)% %REQ(:PATH)% "%REQ(X-FORWARDED-FOR)%"`,
	}
	for _, text := range append(texts, accesslog.Names()...) {
		format, err := accesslog.New(text, nil)
		if err != nil {
			f.Fatal(err)
		}
		parsers = append(parsers, format.Parser(time.UTC))
	}
	f.Fuzz(func(t *testing.T, line string) {
		var r accesslog.Record
		for _, p := range parsers {
			if err := p.Parse(line, &r); err != nil {
				continue
			}
			if r.Time == 0 || r.Method != "" && strings.ContainsAny(r.Method, " \t") {
				t.Errorf("%q: %s", line, describe(&r))
			}
			size := len(r.Path) + len(r.RawQuery) + len(r.Client)
			if size > 2*len(line)+2 {
				t.Errorf("%q: %s", line, describe(&r))
			}
			_ = r.ClientAddr()
		}
	})
}

// Any text may be given as a format.
func FuzzFormat(f *testing.F) {
	for _, text := range []string{
		`$remote_addr [$time_local] "$request"`, `%h %t "%r" %{X}i %>s`, `[%START_TIME(%s)%] %REQ(:PATH?X):10%`, "${", "%{", "%%",
	} {
		f.Add(text, "192.0.2.1 [21/Nov/2026:12:00:00 +0000] \"GET / HTTP/1.1\"")
	}
	f.Fuzz(func(_ *testing.T, text, line string) {
		if !strings.ContainsAny(text, "$%") {
			return // a file
		}
		format, err := accesslog.New(text, nil)
		if err != nil {
			return
		}
		var r accesslog.Record
		_ = format.Parser(nil).Parse(line, &r) // that it ends is what counts
	})
}
