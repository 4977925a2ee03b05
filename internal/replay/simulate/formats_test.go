package simulate_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/replay/accesslog"
	"github.com/headgate/headgate/internal/replay/simulate"
)

func formatOf(t *testing.T, text string, mapping map[string]string) accesslog.Format {
	t.Helper()
	f, err := accesslog.New(text, mapping)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// written writes a log with 7 requests for /login, every 10 seconds, from a line
// in which TIME stands for the time.
func written(layout string, zone *time.Location, format string) string {
	var b strings.Builder
	for i := range 7 {
		when := noon.Add(time.Duration(10*i) * time.Second)
		text := when.In(zone).Format(layout)
		if layout == "" {
			text = fmt.Sprint(when.Unix())
		}
		b.WriteString(strings.ReplaceAll(format, "TIME", text) + "\n")
	}
	return b.String()
}

// The same requests get the same answers, whichever server has logged them and in
// which time zone: a bucket of one, filled every 12 seconds, refuses every second.
func TestAllFormatsSayTheSame(t *testing.T) {
	east := time.FixedZone("", 5*3600+1800)
	const clf = "02/Jan/2006:15:04:05 -0700"
	rows := []struct {
		name, layout string
		zone         *time.Location
		line         string
	}{
		{"common", clf, time.UTC, `198.51.100.7 - - [TIME] "POST /login HTTP/1.1" 200 12`},
		{"combined", clf, time.UTC, `198.51.100.7 - - [TIME] "POST /login HTTP/1.1" 200 12 "-" "curl"`},
		{"combined", clf, east, `198.51.100.7 - - [TIME] "POST /login HTTP/1.1" 200 12 "-" "curl"`},
		{"combined", clf, east, `198.51.100.7 - frank [TIME] "POST /login HTTP/1.1" 429 12 "https://example.com/" "a \"b\""`},
		{"vhost_combined", clf, time.UTC, `a.example:443 198.51.100.7 - - [TIME] "POST /login HTTP/1.1" 200 12 "-" "curl"`},
		{"traefik", clf, time.UTC, `198.51.100.7 - - [TIME] "POST /login HTTP/1.1" 200 12 "-" "curl" 1 "r@docker" "http://10.0.0.1" 2ms`},
		{"envoy", time.RFC3339, time.UTC, `[TIME] "POST /login HTTP/1.1" 200 - 0 12 1 1 "198.51.100.7" "curl" "id" "a.example" "10.0.0.1:80"`},
		{"json", time.RFC3339Nano, east, `{"time":"TIME","client_ip":"198.51.100.7","method":"POST","path":"/login","status":200}`},
		{"json", "", time.UTC, `{"ts":TIME,"remote_addr":"198.51.100.7","request":"POST /login HTTP/1.1","status":"200"}`},
		{"caddy", "", time.UTC, `{"ts":TIME,"request":{"remote_ip":"198.51.100.7","method":"POST","host":"a.example","uri":"/login"},"status":200}`},
		{"traefik-json", time.RFC3339, time.UTC, `{"StartUTC":"TIME","ClientHost":"198.51.100.7","RequestMethod":"POST","RequestPath":"/login","DownstreamStatus":200}`},
		{"envoy-json", time.RFC3339, time.UTC, `{"start_time":"TIME","x_forwarded_for":"198.51.100.7","downstream_remote_address":"198.51.100.7:4711","method":"POST","path":"/login","response_code":200}`},
	}
	for i, row := range rows {
		t.Run(fmt.Sprint(i, " ", row.name), func(t *testing.T) {
			log := bytesLog("access.log", []byte(written(row.layout, row.zone, row.line)))
			o := options(t, "domain: d\nlimits:\n  - {name: login, match: {method: POST, path: /login}, key: client_ip, rate: 5/minute, burst: 1}\n", log)
			r := run(t, o)
			if l := r.Logs[0]; l.Format != row.name || !l.Detected || l.Lines != 7 || l.Skipped != 0 || l.Late != 0 || l.Problem != "" {
				t.Errorf("%+v", l)
			}
			if !r.From.Equal(noon) || !r.To.Equal(noon.Add(time.Minute)) {
				t.Errorf("from %s to %s", r.From, r.To)
			}
			if k := r.Rules[0].Top; len(k) != 1 || k[0].Key != "client_ip=198.51.100.7" || k[0].Requests != 7 {
				t.Errorf("%+v", k)
			}
			if got := verdicts(t, o); got != "ararara" {
				t.Errorf("%s", got)
			}
		})
	}
}

// Times without a zone are of the one that is given, also over the hour that
// clocks skip or repeat.
func TestTimesWithoutZone(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	const format = `$remote_addr $time_iso8601 "$request"`
	for _, row := range []struct {
		zone     *time.Location
		in, want string
	}{
		{nil, "2026-11-21T12:00:00", "2026-11-21T12:00:00Z"},
		{time.UTC, "2026-11-21T12:00:00", "2026-11-21T12:00:00Z"},
		{berlin, "2026-11-21T12:00:00", "2026-11-21T11:00:00Z"},
		{berlin, "2026-07-01T12:00:00", "2026-07-01T10:00:00Z"},
		{berlin, "2026-03-29T01:59:59", "2026-03-29T00:59:59Z"},
		{berlin, "2026-03-29T03:00:00", "2026-03-29T01:00:00Z"},
		{berlin, "2026-07-01T12:00:00Z", "2026-07-01T12:00:00Z"},
		{berlin, "2026-07-01T12:00:00-02:00", "2026-07-01T14:00:00Z"},
	} {
		o := options(t, fivePerMinute, bytesLog("a.log", []byte("192.0.2.1 "+row.in+" \"GET /login HTTP/1.1\"\n")))
		o.Format, o.Zone = formatOf(t, format, nil), row.zone
		if got := run(t, o).From.Format(time.RFC3339); got != row.want {
			t.Errorf("%s in %v is %s, want %s", row.in, row.zone, got, row.want)
		}
	}
}

// A line that cannot be read is left out and shown with its reason; those around
// it count.
func TestBrokenLines(t *testing.T) {
	rows := []struct{ name, good, bad, why string }{
		{"no request", line(noon, "192.0.2.1", "GET /"), `192.0.2.1 - - [21/Nov/2026:12:00:00 +0000] "-" 400 0 "-" "-"`, "the line has no request"},
		{"TLS on a plain port", line(noon, "192.0.2.1", "GET /"), `192.0.2.1 - - [21/Nov/2026:12:00:00 +0000] "\x16\x03\x01" 400 0 "-" "-"`, "the line has no request"},
		{"a day that is none", line(noon, "192.0.2.1", "GET /"), `192.0.2.1 - - [32/Nov/2026:12:00:00 +0000] "GET / HTTP/1.1" 200 0 "-" "-"`, "is not a time"},
		{"a status that is none", line(noon, "192.0.2.1", "GET /"), `192.0.2.1 - - [21/Nov/2026:12:00:00 +0000] "GET / HTTP/1.1" 2000 0 "-" "-"`, "the status is not a three-digit number"},
		{"cut off", line(noon, "192.0.2.1", "GET /"), `192.0.2.1 - - [21/Nov/2026:12:00:00 +0000] "GET / HT`, "of the format, at character"},
		{"JSON that breaks off", `{"time":1795262400,"path":"/","client_ip":"192.0.2.1"}` + "\n", `{"time":1795262400,"path":"/`, "invalid JSON: truncated"},
		{"JSON without a time", `{"time":1795262400,"path":"/","client_ip":"192.0.2.1"}` + "\n", `{"path":"/"}`, "the line has no time"},
		{"JSON with something behind it", `{"time":1795262400,"path":"/","client_ip":"192.0.2.1"}` + "\n", `{"time":1795262400,"path":"/"} x`, "unexpected text after the JSON object"},
		{"no JSON", `{"time":1795262400,"path":"/","client_ip":"192.0.2.1"}` + "\n", `starting up`, "not a JSON object"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			r := run(t, options(t, fivePerMinute, bytesLog("a.log", []byte(row.good+row.good+row.bad+"\n"+row.good))))
			if r.Requests != 3 || r.Skipped != 1 || r.Logs[0].Lines != 4 || len(r.Samples) != 1 {
				t.Fatalf("%d requests, %d skipped, %+v", r.Requests, r.Skipped, r.Samples)
			}
			if s := r.Samples[0]; s.File != "a.log" || s.Line != 3 || !strings.Contains(s.Why, row.why) || !strings.HasPrefix(row.bad, strings.TrimSuffix(s.Text, "…")) {
				t.Errorf("%+v", s)
			}
		})
	}
}

// All broken lines are counted; a few are shown, shortened.
func TestManyBrokenLines(t *testing.T) {
	good := line(noon, "192.0.2.1", "GET /")
	bad := strings.Repeat("ä", 300) + "\n"
	r := run(t, options(t, fivePerMinute, bytesLog("a.log", []byte(strings.Repeat(good, 30)+strings.Repeat(bad, 20)))))
	if r.Requests != 30 || r.Skipped != 20 || len(r.Samples) != 5 {
		t.Fatalf("%d requests, %d skipped, %d samples", r.Requests, r.Skipped, len(r.Samples))
	}
	for i, s := range r.Samples {
		if s.Line != int64(31+i) || len(s.Text) > 130 || !strings.HasSuffix(s.Text, "…") {
			t.Errorf("%+v", s)
		}
	}
}

// Windows line ends, a byte order mark and comments are accepted.
func TestLinesOfOtherSystems(t *testing.T) {
	text := "\xef\xbb\xbf#Fields: nothing\r\n" + strings.ReplaceAll(at(0, 1, 2), "\n", "\r\n") + "\r\n" + strings.TrimSuffix(at(3), "\n")
	r := run(t, options(t, fivePerMinute, bytesLog("a.log", []byte(text))))
	if r.Requests != 4 || r.Skipped != 0 || r.Logs[0].Lines != 4 {
		t.Errorf("%+v", r.Logs)
	}
}

// Each log is reported once its format is known, and progress never decreases: at
// the end all bytes have been read.
func TestToldAndProgress(t *testing.T) {
	first, second := combined(20_000), []byte(at(86400))
	o := options(t, fivePerMinute, bytesLog("second.log", second), bytesLog("first.log", first))
	var told []string
	o.Told = func(l simulate.LogReport) { told = append(told, l.Name+" "+l.Format) }
	var last simulate.Progress
	calls := 0
	o.Progress = func(p simulate.Progress) {
		calls++
		if p.Lines < last.Lines || p.Bytes < last.Bytes || p.Total != int64(len(first)+len(second)) {
			t.Errorf("%+v after %+v", p, last)
		}
		last = p
	}
	run(t, o)
	if !slices.Equal(told, []string{"second.log combined", "first.log combined"}) {
		t.Errorf("%q", told)
	}
	if calls < 2 || last.Lines != 20_001 || last.Bytes != last.Total {
		t.Errorf("%d calls, the last %+v", calls, last)
	}
}

// One unknown size makes the total unknown.
func TestProgressWithoutSize(t *testing.T) {
	unknown := bytesLog("pipe", []byte(at(0)))
	unknown.Size, unknown.Once = 0, true
	o := options(t, fivePerMinute, bytesLog("a.log", []byte(at(1))), unknown)
	o.Progress = func(p simulate.Progress) {
		if p.Total != 0 {
			t.Errorf("%+v", p)
		}
	}
	if r := run(t, o); r.Requests != 2 {
		t.Errorf("%d requests", r.Requests)
	}
}

// Every log that cannot be read is reported, not only the first.
func TestAllLogsThatAreWrongAreTold(t *testing.T) {
	gone := simulate.Log{Name: "gone.log", Open: func() (io.ReadCloser, error) {
		return os.Open(filepath.Join(t.TempDir(), "gone.log"))
	}}
	_, err := simulate.Run(t.Context(), options(t, fivePerMinute,
		bytesLog("a.log", []byte("a b c\n")), gone, bytesLog("ok.log", []byte(at(0))), bytesLog("b.log", []byte("PK\x03\x04"))))
	if !errors.Is(err, os.ErrNotExist) || !errors.Is(err, accesslog.ErrUnknownFormat) {
		t.Fatal(err)
	}
	for _, want := range []string{"a.log: unknown log format", "gone.log", "b.log: zip archives are not supported"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %v", want, err)
		}
	}
	var of *simulate.LogError
	if !errors.As(err, &of) || of.Name != "a.log" || !strings.Contains(of.Hint, "set --format") {
		t.Errorf("%+v", of)
	}
}

// A log that can be opened only once is not opened twice to find out its format.
func TestStandardInputIsReadOnce(t *testing.T) {
	opened := 0
	log := bytesLog("standard input", []byte(at(0, 1, 2)))
	open := log.Open
	log.Once, log.Open = true, func() (io.ReadCloser, error) {
		opened++
		return open()
	}
	if r := run(t, options(t, fivePerMinute, log)); r.Requests != 3 || opened != 1 {
		t.Errorf("%d requests, opened %d times", r.Requests, opened)
	}
}

// A read error ends that log; the others continue.
func TestALogThatBreaksOff(t *testing.T) {
	broken := errors.New("the disk is gone")
	log := simulate.Log{Name: "broken.log", Once: true, Open: func() (io.ReadCloser, error) {
		return io.NopCloser(io.MultiReader(strings.NewReader(at(0, 1)), failing{broken})), nil
	}}
	r := run(t, options(t, fivePerMinute, log, bytesLog("whole.log", []byte(at(2, 3, 4)))))
	i := slices.IndexFunc(r.Logs, func(l simulate.LogReport) bool { return l.Name == "broken.log" })
	if r.Requests != 5 || i < 0 || r.Logs[i].Problem != "the disk is gone" || r.Logs[1-i].Problem != "" {
		t.Errorf("%d requests, %+v", r.Requests, r.Logs)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// Overlapping logs are merged by time, whatever their order.
func TestVisitIsInOrder(t *testing.T) {
	o := options(t, fivePerMinute, bytesLog("b.log", []byte(at(1, 3, 5))), bytesLog("a.log", []byte(at(0, 2, 4, 6))), bytesLog("c.log", []byte(at(100))))
	var got []int64
	err := simulate.Visit(t.Context(), o.Reading, func(at int64, client string) {
		if client != "198.51.100.7" {
			t.Errorf("%q", client)
		}
		got = append(got, (at-noon.UnixMicro())/1e6)
	})
	if err != nil || !slices.Equal(got, []int64{0, 1, 2, 3, 4, 5, 6, 100}) {
		t.Errorf("%v, %v", got, err)
	}
}
