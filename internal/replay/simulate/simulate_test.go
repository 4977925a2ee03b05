package simulate_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/headgate/headgate/internal/replay/accesslog"
	"github.com/headgate/headgate/internal/replay/simulate"
	"github.com/headgate/headgate/internal/request/client"
	"github.com/headgate/headgate/internal/rules/rulefile"
)

// noon is the start of the logs in the tests.
var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// line is a line of the combined format.
func line(at time.Time, ip, request string) string {
	return fmt.Sprintf("%s - - [%s] \"%s HTTP/1.1\" 200 12 \"-\" \"curl\"\n", ip, at.Format("02/Jan/2006:15:04:05 -0700"), request)
}

const fivePerMinute = `
domain: d
limits:
  - {name: login, match: {path: /login}, key: client_ip, rate: 5/minute}
  - {name: other, match: {path: /other}, rate: 1/minute}
`

func run(t *testing.T, o simulate.Options) *simulate.Report {
	t.Helper()
	r, err := simulate.Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// The clock is the log: a bucket of five refills one every 12 seconds.
func TestReplay(t *testing.T) {
	var log strings.Builder
	for range 7 {
		log.WriteString(line(noon, "198.51.100.7", "POST /login"))
	}
	log.WriteString(line(noon.Add(11*time.Second), "198.51.100.7", "POST /login"))
	log.WriteString(line(noon.Add(12*time.Second), "198.51.100.7", "POST /login"))
	log.WriteString(line(noon.Add(12*time.Second), "198.51.100.8", "POST /login"))
	log.WriteString(line(noon.Add(13*time.Second), "198.51.100.8", "GET /nothing"))
	r := run(t, options(t, fivePerMinute, bytesLog("a.log", []byte(log.String()))))
	if r.Requests != 11 || r.Allowed != 8 || r.Refused != 3 || r.Skipped != 0 {
		t.Errorf("%d requests, %d allowed, %d refused, %d skipped", r.Requests, r.Allowed, r.Refused, r.Skipped)
	}
	login, other := r.Rules[0], r.Rules[1]
	if login.Name != "login" || login.Requests != 10 || login.Allowed != 7 || login.Refused != 3 || login.Keys != 2 || login.RefusedKeys != 1 ||
		login.PeakUse != 1 || !login.FirstRefusal.Equal(noon) || !login.LastRefusal.Equal(noon.Add(11*time.Second)) {
		t.Errorf("%+v", login)
	}
	if k := login.Top[0]; k.Key != "client_ip=198.51.100.7" || k.Requests != 9 || k.Refused != 3 || k.Peak != 5 || k.Limit != 5 || k.Busiest != 9 {
		t.Errorf("%+v", k)
	}
	if other.Name != "other" || other.Requests != 0 {
		t.Errorf("%+v", other)
	}
	if !r.From.Equal(noon) || !r.To.Equal(noon.Add(13*time.Second)) {
		t.Errorf("from %s to %s", r.From, r.To)
	}
}

// Several logs are one by their times, compressed or not, whatever their order
// and number of workers.
func TestLogsAreMerged(t *testing.T) {
	var whole, odd, even bytes.Buffer
	for i := range 2000 {
		text := line(noon.Add(time.Duration(i)*time.Second/2), fmt.Sprintf("198.51.100.%d", i%3), "POST /login")
		whole.WriteString(text)
		if i%2 == 0 {
			even.WriteString(text)
		} else {
			odd.WriteString(text)
		}
	}
	var zipped, zstandard bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, _ = z.Write(odd.Bytes())
	_ = z.Close()
	s, err := zstd.NewWriter(&zstandard)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = s.Write(even.Bytes())
	_ = s.Close()
	want := run(t, options(t, fivePerMinute, bytesLog("whole", whole.Bytes())))
	got := run(t, options(t, fivePerMinute, bytesLog("odd.gz", zipped.Bytes()), bytesLog("even.zst", zstandard.Bytes())))
	if got.Requests != 2000 || got.Refused != want.Refused || want.Refused == 0 || got.Rules[0].Keys != 3 {
		t.Errorf("%d requests, %d refused, want %d", got.Requests, got.Refused, want.Refused)
	}
	if got.Logs[0].Compression+got.Logs[1].Compression != "zstdgzip" && got.Logs[0].Compression+got.Logs[1].Compression != "gzipzstd" {
		t.Errorf("%+v", got.Logs)
	}
	later := run(t, options(t, fivePerMinute,
		bytesLog("second", whole.Bytes()[whole.Len()/2:]), bytesLog("first", whole.Bytes()[:whole.Len()/2])))
	// A line is cut in two between them.
	if later.Requests < 1998 || later.Skipped > 2 || later.Logs[0].Name != "first" {
		t.Errorf("%d requests, %+v", later.Requests, later.Logs)
	}
}

// times replays lines at some seconds after noon, and returns the virtual
// times of the decisions.
func times(t *testing.T, reorder time.Duration, seconds ...int) ([]int, *simulate.Report) {
	t.Helper()
	var log strings.Builder
	for _, s := range seconds {
		log.WriteString(line(noon.Add(time.Duration(s)*time.Second), "198.51.100.7", "GET /"))
	}
	o := options(t, fivePerMinute, bytesLog("a.log", []byte(log.String())))
	o.Reorder = reorder
	var got []int
	o.Decided = func(r simulate.Request) { got = append(got, int((r.At-noon.UnixMicro())/1e6)) }
	report := run(t, o)
	return got, report
}

// Clocks jump, and lines are out of order.
func TestTimesArePutRight(t *testing.T) {
	const day, year = 86400, 365 * 86400
	rows := []struct {
		name          string
		seconds, want []int
		late, skipped int64
	}{
		{"out of order within the window", []int{0, 5, 3, 8, 4}, []int{0, 3, 4, 5, 8}, 0, 0},
		{"one line much too late", []int{0, 20, 21, 1, 22}, []int{0, 20, 21, 21, 22}, 1, 0},
		{"a clock that is set back", []int{0, 100, 20, 21, 22, 30}, []int{0, 100, 100, 101, 102, 110}, 1, 0},
		{"and catches up", []int{0, 100, 20, 21, 101}, []int{0, 100, 100, 101, 101}, 1, 0},
		{"one line from the future", []int{0, 1, 20 * year, 2, 3}, []int{0, 1, 2, 3}, 0, 1},
		{"a quiet night", []int{0, 1, day, day + 1}, []int{0, 1, day, day + 1}, 0, 0},
		{"a request a day", []int{0, day, 2 * day, 3 * day}, []int{0, day, 2 * day, 3 * day}, 0, 0},
	}
	for _, row := range rows {
		got, r := times(t, 10*time.Second, row.seconds...)
		if fmt.Sprint(got) != fmt.Sprint(row.want) || r.Logs[0].Late != row.late || r.Skipped != row.skipped {
			t.Errorf("%s: %v, want %v; %d late, %d skipped", row.name, got, row.want, r.Logs[0].Late, r.Skipped)
		}
	}
}

// Unreadable lines are counted and shown, and stop nothing.
func TestBadInput(t *testing.T) {
	good := line(noon, "198.51.100.7", "POST /login")
	long := strings.Repeat("x", 10<<20) + "\n"
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	for i := range 20000 {
		_, _ = z.Write([]byte(line(noon.Add(time.Duration(i)*time.Second), fmt.Sprintf("198.51.%d.%d", i/250, i*7919%250), "GET /")))
	}
	_ = z.Close()
	junk := make([]byte, 1<<20)
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := range junk {
		junk[i] = byte(rnd.Uint32())
	}
	t.Run("lines", func(t *testing.T) {
		r := run(t, options(t, fivePerMinute, bytesLog("a.log", []byte(good+good+"rubbish\n"+good+"\x00\xff\n"+long+good+"\n# comment\r\n"+good))))
		if r.Requests != 5 || r.Skipped != 3 || len(r.Samples) != 3 || r.Samples[0].Line != 3 || r.Samples[1].Text != "\x00\uFFFD" ||
			r.Samples[2].Line != 6 || r.Samples[2].Why != "the line is longer than 1 MiB" {
			t.Errorf("%d requests, %d skipped, %+v", r.Requests, r.Skipped, r.Samples)
		}
	})
	t.Run("cut off", func(t *testing.T) {
		r := run(t, options(t, fivePerMinute, bytesLog("a.log.gz", zipped.Bytes()[:zipped.Len()/2])))
		if r.Requests < 1000 || r.Requests > 19000 || r.Logs[0].Problem != accesslog.ErrCutOff.Error() {
			t.Errorf("%d requests, %+v", r.Requests, r.Logs)
		}
	})
	t.Run("no client", func(t *testing.T) {
		text := good + strings.Replace(strings.Repeat(good, 3), "198.51.100.7 ", "- ", 2)
		if r := run(t, options(t, fivePerMinute, bytesLog("a.log", []byte(text)))); r.Requests != 4 || r.NoClient != 2 {
			t.Errorf("%d of %d requests without a client", r.NoClient, r.Requests)
		}
		if r := run(t, options(t, "domain: api\nlimits:\n  - {name: all, key: method, rate: 1/hour}\n", bytesLog("a.log", []byte(text)))); r.NoClient != 0 {
			t.Errorf("%d requests without a client, although no rule counts by it", r.NoClient)
		}
	})
	t.Run("empty", func(t *testing.T) {
		if r := run(t, options(t, fivePerMinute, bytesLog("a.log", nil), bytesLog("b.log", []byte("\n\n")))); r.Requests != 0 || r.Skipped != 0 {
			t.Errorf("%+v", r)
		}
	})
	for name, row := range map[string]struct{ text, want string }{
		"junk":         {string(junk), "unknown log format"},
		"long":         {long, "unknown log format"},
		"other format": {"a b c\n", "a.log: unknown log format: the closest is combined, but line 1"},
		"xz":           {"\xfd7zXZ\x00 and so on", "xz compression is not supported"},
		"zip":          {"PK\x03\x04", "zip archive"},
		"no gzip":      {"\x1f\x8b, it is not", "gzip"},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := simulate.Run(t.Context(), options(t, fivePerMinute, bytesLog("a.log", []byte(row.text))))
			if name == "long" && err == nil && r.Requests == 0 && r.Skipped == 1 {
				return
			}
			if err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("%v, want %s", err, row.want)
			}
		})
	}
	t.Run("wrong format", func(t *testing.T) {
		o := options(t, fivePerMinute, bytesLog("a.log", []byte(good)))
		var err error
		if o.Format, err = accesslog.New("caddy", nil); err != nil {
			t.Fatal(err)
		}
		_, err = simulate.Run(t.Context(), o)
		if e, ok := errors.AsType[*simulate.LogError](err); !ok || !strings.Contains(e.Hint, "it looks like the format combined") {
			t.Errorf("%v", err)
		}
	})
}

// FuzzRun gives the whole reader anything.
func FuzzRun(f *testing.F) {
	f.Add([]byte(line(noon, "198.51.100.7", "POST /login") + "x\n"))
	f.Add([]byte("\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"))
	f.Add([]byte("\x28\xb5\x2f\xfd\x04\x00"))
	f.Add([]byte(`{"time":1795262400,"path":"/login","client_ip":"192.0.2.1"}` + "\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := simulate.Run(t.Context(), options(t, fivePerMinute, bytesLog("a.log", text)))
		if err == nil && r.Requests != r.Allowed+r.Refused {
			t.Errorf("%+v", r)
		}
	})
}

// Old rules and new ones on the same traffic.
func TestCompare(t *testing.T) {
	var log strings.Builder
	for i := range 6 {
		log.WriteString(line(noon.Add(time.Duration(i)*time.Second), "198.51.100.7", "POST /login"))
		log.WriteString(line(noon.Add(time.Duration(i)*time.Second), "198.51.100.8", "GET /other"))
	}
	o := options(t, fivePerMinute, bytesLog("a.log", []byte(log.String())))
	candidate := side(t, `
domain: d
limits:
  - {name: login, match: {path: /login}, key: client_ip, rate: 3/minute}
  - {name: other, match: {path: /other}, rate: 5/minute}
`)
	o.Candidate = &candidate
	c := run(t, o).Compare
	if c.NewlyRefused != 2 || c.NewlyAllowed != 4 || c.SameAllowed != 4 || c.SameRefused != 2 || c.New.Refused != 4 {
		t.Errorf("%+v", c)
	}
	if len(c.By) != 2 || c.By[0].Rule != "other" || c.By[0].NewlyAllowed != 4 || c.By[0].Keys != 1 ||
		c.By[1].Rule != "login" || c.By[1].NewlyRefused != 2 || c.By[1].Top[0].Key != "client_ip=198.51.100.7" {
		t.Errorf("%+v", c.By)
	}
}

// Delays of a leaky bucket, and rules in shadow mode.
func TestDelaysAndShadow(t *testing.T) {
	log := strings.Repeat(line(noon, "198.51.100.7", "GET /a"), 4)
	r := run(t, options(t, `
domain: d
limits:
  - {name: slow, rate: 1/second, burst: 3, algorithm: leaky_bucket}
  - {name: watch, rate: 1/minute, mode: shadow}
`, bytesLog("a.log", []byte(log))))
	slow, watch := r.Rules[0], r.Rules[1]
	if slow.Delayed == 0 || slow.Delayed != r.Delayed || slow.MaxDelay < 1000 || slow.Refused == 0 {
		t.Errorf("%+v", slow)
	}
	if watch.Refused != 0 || watch.WouldRefuse == 0 || watch.Mode != "shadow" || r.WouldRefuse == 0 {
		t.Errorf("%+v", watch)
	}
}

// Marked requests are counted, and how much is used above a limit that passes.
func TestMarkedRequests(t *testing.T) {
	log := strings.Repeat(line(noon, "198.51.100.7", "GET /a"), 5)
	r := run(t, options(t, `
domain: d
limits:
  - {name: near, rate: 4/hour, soft: 50%}
  - {name: fair, rate: 2/hour, on_limit: pass}
`, bytesLog("a.log", []byte(log))))
	near, fair := r.Rules[0], r.Rules[1]
	if near.Outcomes["marked"] != 2 || near.Refused != 1 || fair.Outcomes["marked"] != 2 || fair.Refused != 0 || fair.PeakUse != 2 || r.Marked != 2 || r.Allowed != 4 {
		t.Errorf("%d marked\n%+v\n%+v", r.Marked, near, fair)
	}
}

// A logged header field chooses the class of a request if a trusted proxy has sent it, as at the
// proxy.
func TestTrustedProxiesChooseClasses(t *testing.T) {
	clients, err := client.New(client.Config{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8::/32")}})
	if err != nil {
		t.Fatal(err)
	}
	for peer, trusted := range map[string]bool{
		`"client_ip":"10.1.2.3"`:                                  true,
		`"client_ip":"10.1.2.3:4711"`:                             true,
		`"client_ip":"::ffff:10.1.2.3"`:                           true,
		`"client_ip":"[2001:db8::7]:4711"`:                        true,
		`"client_ip":"10.1.2.3","x_forwarded_for":"198.51.100.7"`: true,
		`"client_ip":"198.51.100.7"`:                              false,
		`"client_ip":"198.51.100.7","x_forwarded_for":"10.1.2.3"`: false,
		`"x_forwarded_for":"198.51.100.7, 10.1.2.3"`:              false, // nobody knows the peer
	} {
		one := fmt.Sprintf(`{"time":%q,%s,"method":"GET","path":"/","request_X-Class":"critical"}`, noon.Format(time.RFC3339), peer)
		o := options(t, `
domain: d
priorities:
  classes: [critical, high, default]
  from: "header:X-Class"
limits:
  - {name: fleet, rate: 10/hour, headroom: {critical: 50%}}
`, bytesLog("a.log", []byte(strings.Repeat(one+"\n", 12))))
		o.Clients = clients
		want := int64(5)
		if trusted {
			want = 10
		}
		if r := run(t, o); r.Requests != 12 || r.Allowed != want {
			t.Errorf("%s: %d of %d requests allowed, want %d", peer, r.Allowed, r.Requests, want)
		}
	}
}

// endless is a log of ever new clients, made while it is read.
type endless struct {
	left int
	n    int
	rest []byte
}

func (e *endless) Read(p []byte) (int, error) {
	for len(e.rest) < len(p) && e.left > 0 {
		e.left--
		e.n++
		ip := fmt.Sprintf("10.%d.%d.%d", e.n>>16&255, e.n>>8&255, e.n&255)
		e.rest = append(e.rest, line(noon.Add(time.Duration(e.n)*time.Second), ip, "POST /login")...)
	}
	n := copy(p, e.rest)
	e.rest = e.rest[n:]
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

// Memory depends on active keys, not on all keys of the log.
func TestMemoryIsBoundedByLiveKeys(t *testing.T) {
	if testing.Short() {
		t.Skip("replays 750,000 lines")
	}
	heap := func(lines int) uint64 {
		most := uint64(0)
		o := options(t, fivePerMinute, simulate.Log{Name: "endless", Once: true, Open: func() (io.ReadCloser, error) {
			return io.NopCloser(&endless{left: lines}), nil
		}})
		n := 0
		o.Decided = func(simulate.Request) {
			if n++; n%100_000 == 0 {
				runtime.GC()
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				most = max(most, m.HeapAlloc)
			}
		}
		r := run(t, o)
		if r.Requests != int64(lines) || r.Memory.Evicted != 0 || r.Rules[0].Keys != int64(lines) {
			t.Errorf("%d requests of %d keys, %d evicted", r.Requests, r.Rules[0].Keys, r.Memory.Evicted)
		}
		return most
	}
	small, large := heap(300_000), heap(450_000)
	if large > small+small/4+(16<<20) {
		t.Errorf("%d MiB with 300,000 keys, %d MiB with 450,000", small>>20, large>>20)
	}
}

// A simulation can be cancelled.
func TestRunEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	o := options(t, fivePerMinute, bytesLog("a.log", combined(100_000)))
	n := 0
	o.Decided = func(simulate.Request) {
		if n++; n == 1000 {
			cancel()
		}
	}
	if _, err := simulate.Run(ctx, o); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// What is suggested is a rule file, and on the same traffic it refuses no more
// of the keys than was promised.
func TestSuggestionsKeepTheirPromise(t *testing.T) {
	for seed := range uint64(6) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		var log strings.Builder
		at := noon
		clients := 50 + rnd.IntN(500)
		for range 8_000 {
			at = at.Add(time.Duration(rnd.ExpFloat64() * float64(time.Second) / 3))
			ip := fmt.Sprintf("198.51.%d.%d", seed, int(float64(clients)*rnd.Float64()*rnd.Float64()))
			for range 1 + rnd.IntN(3)*rnd.IntN(2) {
				log.WriteString(line(at, ip, []string{"GET /a", "GET /b"}[rnd.IntN(2)]))
			}
		}
		o := options(t, fivePerMinute, bytesLog("a.log", []byte(log.String())))
		promise := []float64{0.9, 0.99, 1}[seed%3]
		s, err := simulate.Suggest(t.Context(), simulate.SuggestOptions{
			Reading: o.Reading, Domain: "d", Keys: [][]string{{"client_ip"}, {"client_ip", "path"}}, Unaffected: promise,
		})
		if err != nil {
			t.Fatal(err)
		}
		rs, problems := rulefile.Parse(rulefile.Source{Name: "suggested.yaml", Data: []byte(s.Text())})
		if rs == nil || len(problems) > 0 {
			t.Fatalf("%v\n%s", problems, s.Text())
		}
		o.Side = simulate.Side{Rules: rs, Domain: "d"}
		r := run(t, o)
		for i, rule := range r.Rules {
			most := int64(float64(rule.Keys)*(1-promise) + 1e-6)
			if rule.RefusedKeys > most || rule.Keys != int64(s.Proposals[i].Keys) || rule.RefusedKeys > int64(s.Proposals[i].Affected) {
				t.Errorf("seed %d: %s refuses %d of %d keys, promised at most %d; proposed %+v", seed, rule.Name, rule.RefusedKeys, rule.Keys, most, s.Proposals[i])
			}
		}
	}
}

// The reports are whole, and what clients have chosen does no harm in them.
func TestReports(t *testing.T) {
	log := strings.Repeat(`192.0.2.1 - - [21/Nov/2026:12:00:00 +0000] "GET /?k=%3Cscript%3E HTTP/1.1" 200 1 "-" "=cmd()<script>alert(1)</script>\x1b[31m"`+"\n", 5) + "<u>\n"
	o := options(t, `
domain: d
limits:
  - {name: agents, key: ["header:User-Agent"], rate: 2/minute}
`, bytesLog("<em>.log", []byte(log)))
	candidate := side(t, "domain: d\nlimits:\n  - {name: none, rate: 1/minute}\n")
	o.Candidate, o.AllKeys = &candidate, true
	r := run(t, o)
	var text, csv bytes.Buffer
	if err := errors.Join(r.WriteText(&text, 5), r.WriteCSV(&csv)); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(text.String(), "\x1b") {
		t.Errorf("%s", text.String())
	}
	want := "rule,key,requests,allowed,refused,delayed,busiest_period,peak,limit,first_refusal,last_refusal\nagents,"
	if !strings.HasPrefix(csv.String(), want) || !strings.Contains(csv.String(), ",5,2,3,0,5,2,2,2026-11-21T12:00:00Z,2026-11-21T12:00:00Z\n") {
		t.Errorf("%s", csv.String())
	}
}
