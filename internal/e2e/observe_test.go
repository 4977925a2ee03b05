package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/app"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/door/admin"
	"github.com/headgate/headgate/internal/observe/metrics"
)

func withAdmin(c *config.Config) { c.Door("admin").Address = "127.0.0.1:0" }

func hashing(c *config.Config) { adminOf(c).Keys = admin.HashedKeys }

func (f *fixture) adminURL(path string) string { return "http://" + f.Addr(doorAdmin) + path }

// login checks a login with the API and returns the status.
func (f *fixture) login(t *testing.T, ip string) int {
	t.Helper()
	res, err := f.client.Post(f.apiURL("/v1/check"), "application/json", strings.NewReader(
		`{"domain":"api","attributes":{"method":"POST","path":"/login","client_ip":"`+ip+`"}}`))
	if err != nil {
		t.Fatal(err)
	}
	read(t, res)
	return res.StatusCode
}

// metric returns the value of a line at /metrics.
func (f *fixture) metric(t *testing.T, series string) string {
	t.Helper()
	_, body := f.get(t, f.adminURL("/metrics"))
	m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(series) + ` (.*)$`).FindStringSubmatch(body)
	if m == nil {
		return "none"
	}
	return m[1]
}

// answerOf reads JSON from the admin door.
func answerOf[T any](t *testing.T, f *fixture, path string) (out T) {
	t.Helper()
	res, body := f.get(t, f.adminURL(path))
	if res.StatusCode != http.StatusOK {
		t.Fatalf("%s: %d %s", path, res.StatusCode, body)
	}
	if err := json.Unmarshal([]byte(body), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// events reads the events of a stream.
type events struct{ lines *bufio.Scanner }

func (f *fixture) stream(t *testing.T, path string) *events {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, f.adminURL(path), http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	res, err := f.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = res.Body.Close() })
	if res.StatusCode != http.StatusOK {
		t.Fatalf("%s: %d %s", path, res.StatusCode, read(t, res))
	}
	e := &events{bufio.NewScanner(res.Body)}
	e.lines.Buffer(nil, 1<<20)
	return e
}

// next returns the data of the next event of that name.
func (e *events) next(t *testing.T, name string) string {
	t.Helper()
	for e.lines.Scan() {
		if e.lines.Text() == "event: "+name && e.lines.Scan() {
			return strings.TrimPrefix(e.lines.Text(), "data: ")
		}
	}
	t.Fatalf("no more %s: %v", name, e.lines.Err())
	return ""
}

// any returns the next event, with any name.
func (e *events) any(t *testing.T) (name, data string) {
	t.Helper()
	for e.lines.Scan() {
		if name, ok := strings.CutPrefix(e.lines.Text(), "event: "); ok && name != "alive" && e.lines.Scan() {
			return name, strings.TrimPrefix(e.lines.Text(), "data: ")
		}
	}
	t.Fatalf("no more events: %v", e.lines.Err())
	return "", ""
}

// ended reports whether the stream has ended.
func (e *events) ended() bool {
	for e.lines.Scan() {
	}
	return e.lines.Err() == nil
}

// TestNumbersAreThoseOfTheLoad: every page shows exactly what concurrent clients have
// counted, to the last request.
func TestNumbersAreThoseOfTheLoad(t *testing.T) {
	t.Parallel()
	f := run(t, loginRules, nil, withAdmin)
	live := f.stream(t, "/v1/live")
	live.next(t, "hello")
	const callers, each = 8, 60
	statuses := make([][]int, callers)
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			for j := range each {
				statuses[i] = append(statuses[i], f.login(t, fmt.Sprintf("198.51.100.%d", j%3)))
			}
		})
	}
	wg.Wait()
	count := map[int]int{}
	for _, s := range slices.Concat(statuses...) {
		count[s]++
	}
	if count[200] != 15 || count[429] != callers*each-15 {
		t.Fatalf("the callers counted %v", count)
	}
	for series, want := range map[string]int{
		`headgate_decisions_total{domain="api",outcome="allowed",rule="login"}`: count[200],
		`headgate_decisions_total{domain="api",outcome="refused",rule="login"}`: count[429],
		`headgate_requests_total{door="api",outcome="allowed"}`:                 count[200],
		`headgate_requests_total{door="api",outcome="refused"}`:                 count[429],
	} {
		if got := f.metric(t, series); got != fmt.Sprint(want) {
			t.Errorf("%s: %s, want %d", series, got, want)
		}
	}
	var seen metrics.Outcomes
	for seen.Sum() < uint64(callers*each) {
		var tick metrics.Tick
		if err := json.Unmarshal([]byte(live.next(t, "tick")), &tick); err != nil {
			t.Fatal(err)
		}
		for _, r := range tick.Rules {
			seen.Allowed, seen.Refused = seen.Allowed+r.Allowed, seen.Refused+r.Refused
		}
		if len(tick.Rules) > 0 && tick.Rules[0].Sum() != tick.Totals.Requests {
			t.Errorf("%+v", tick)
		}
	}
	if seen.Allowed != 15 || seen.Refused != uint64(count[429]) {
		t.Errorf("the ticks counted %+v", seen)
	}
	for by, want := range map[string]int64{"refused": int64(count[429]), "active": callers * each} {
		got := answerOf[admin.TopRules](t, f, "/v1/top?rule=login&by="+by)
		// The fixture's clock does not move, so everything happens at one time, for
		// which each core counts the first 64 one by one.
		if len(got.Rules) != 1 || len(got.Rules[0].Keys) != 3 || got.Rules[0].Sampled == 0 && got.Rules[0].Total != want {
			t.Errorf("%s: %+v, want %d", by, got, want)
		}
	}
}

func TestStatusAndRules(t *testing.T) {
	f := run(t, loginRules, nil, withAdmin)
	f.login(t, "198.51.100.7")
	f.clock.advance(90 * time.Second)
	s := answerOf[admin.Status](t, f, "/v1/status")
	if !s.Ready || s.UptimeS != 90 || s.Store.Kind != "memory" || !s.Store.Healthy || s.Store.Circuit != "closed" || s.Store.MaxKeys != 1_000_000 ||
		s.Rules.Rules != 1 || s.Rules.Source != "files" || s.Rules.ReloadsOK != 1 || len(s.Doors) != 2 {
		t.Errorf("%+v", s)
	}
	list := answerOf[struct{ Rules []admin.RuleStatus }](t, f, "/v1/rules").Rules
	want := admin.RuleStatus{
		Domain: "api", Name: "login", File: f.config.Rules[0], Line: 4, Limit: 5, PeriodMS: 60_000, Rate: "5/minute", Algorithm: "sliding_window",
		Burst: 5, Key: []string{"client_ip"}, Match: "path is /login", Mode: "enforce", Percent: 100, Action: "reject", OnStoreError: "allow",
	}
	if len(list) != 1 || fmt.Sprint(list[0]) != fmt.Sprint(want) {
		t.Errorf("%+v, want %+v", list, want)
	}
	writeFile(t, f.config.Rules[0], `
domain: api
limits:
  - {name: a, rate: 300/3h}
  - {name: b, rate: 2/week}
  - {name: c, rate: 60/90s}
  - {name: d, rate: 7/month, algorithm: fixed_window}
  - {name: e, rate: 1/90m}
`)
	if err := f.Reload(); err != nil {
		t.Fatal(err)
	}
	var rates []string
	for _, r := range answerOf[struct{ Rules []admin.RuleStatus }](t, f, "/v1/rules?domain=api").Rules {
		rates = append(rates, r.Rate)
	}
	if got := strings.Join(rates, " "); got != "300/3h 2/week 60/1m30s 7/month 1/1h30m" {
		t.Error(got)
	}
	writeFile(t, f.config.Rules[0], "domain: api\nlimits: [{nam: x}]\n")
	if err := f.Reload(); err == nil {
		t.Fatal("the rules are wrong")
	}
	// The watcher may have tried too.
	if s = answerOf[admin.Status](t, f, "/v1/status"); s.Rules.ReloadsFailed < 1 || !strings.Contains(s.Rules.LastError, "nam") {
		t.Errorf("%+v", s.Rules)
	}
	if got := f.metric(t, "headgate_reload_last_successful"); got != "0" {
		t.Error(got)
	}
}

func TestEventsAreFiltered(t *testing.T) {
	f := run(t, loginRules, nil, withAdmin)
	refused := f.stream(t, "/v1/events?outcome=refused&rule=login")
	mine := f.stream(t, "/v1/events?domain=api&key=100.8")
	refused.lines.Scan() // both have joined
	mine.lines.Scan()
	for range 6 {
		f.login(t, "198.51.100.7")
	}
	f.login(t, "198.51.100.8")
	var e metrics.Event
	if err := json.Unmarshal([]byte(refused.next(t, "decision")), &e); err != nil {
		t.Fatal(err)
	}
	if e.Rule != "login" || e.Outcome != "refused" || e.Reason != "limited" || e.Limit != 5 || e.Remaining != 0 ||
		e.RetryAfter == nil || *e.RetryAfter <= 0 || e.Door != "api" || e.Method != http.MethodPost || e.Path != "/login" ||
		len(e.Parts) != 1 || *e.Parts[0] != "198.51.100.7" || !e.T.Equal(f.clock.Now()) {
		t.Errorf("%+v", e)
	}
	if err := json.Unmarshal([]byte(mine.next(t, "decision")), &e); err != nil || *e.Parts[0] != "198.51.100.8" || e.Outcome != "allowed" || e.Remaining != 4 {
		t.Errorf("%+v, %v", e, err)
	}
}

// Events show no path that a rule counts by in secret.
func TestEventsShowNoSecretPath(t *testing.T) {
	for key, options := range map[string][]set{"hash:path": {withAdmin}, "hash:path:2": {withAdmin}, "path": {withAdmin, hashing}} {
		f := run(t, "domain: api\nlimits:\n  - {name: all, rate: 9/minute}\n  - {name: bots, key: [\""+key+"\"], rate: 9/minute}\n", nil, options...)
		s := f.stream(t, "/v1/events")
		s.lines.Scan()
		if status, text := f.post(t, "/v1/check", `{"domain":"api","attributes":{"path":"/bot/SECRET"}}`); status != http.StatusOK {
			t.Fatal(status, text)
		}
		for range 2 {
			if text := s.next(t, "decision"); strings.Contains(text, "SECRET") {
				t.Errorf("%s: %s", key, text)
			}
		}
	}
}

// Events above the limit are lost, and the next event that is sent reports how many.
// When that is depends on the machine, but the sums do not.
func TestNoMoreEventsASecondThanPromised(t *testing.T) {
	f := run(t, loginRules, nil, withAdmin)
	s := f.stream(t, "/v1/events")
	s.lines.Scan()
	const batch = (metrics.MaxPerSecond + 5) / 5
	checks := strings.Repeat(`,{"domain":"api","attributes":{"method":"POST","path":"/login","client_ip":"198.51.100.7"}}`, batch)[1:]
	for range 5 {
		if status, text := f.post(t, "/v1/check", `{"checks":[`+checks+`]}`); status != http.StatusOK {
			t.Fatal(status, text)
		}
	}
	f.clock.advance(time.Second)
	f.login(t, "198.51.100.7")
	lost := 0
	for seen := 0; seen < metrics.MaxPerSecond+1; {
		name, data := s.any(t)
		if name == "decision" {
			seen++
			continue
		}
		var n struct{ Lost int }
		if err := json.Unmarshal([]byte(data), &n); err != nil || name != "lost" {
			t.Fatal(name, data, err)
		}
		lost += n.Lost
	}
	if lost != 5 {
		t.Errorf("%d were told to be lost, want 5", lost)
	}
}

func TestKeysCanBeHashed(t *testing.T) {
	f := run(t, loginRules, nil, withAdmin, hashing)
	s := f.stream(t, "/v1/events")
	s.lines.Scan()
	f.login(t, "198.51.100.7")
	f.login(t, "198.51.100.7")
	got := answerOf[admin.TopRules](t, f, "/v1/top?by=active")
	if len(got.Rules) != 1 || len(got.Rules[0].Keys) != 1 || got.Rules[0].Keys[0].Parts != nil || len(got.Rules[0].Keys[0].Hash) != 16 {
		t.Fatalf("%+v", got)
	}
	text := s.next(t, "decision")
	if !strings.Contains(text, `"key":null,"key_hash":"`+got.Rules[0].Keys[0].Hash+`"`) || strings.Contains(text, "198.51") {
		t.Error(text)
	}
}

func TestWrongQuestionsToTheAdminDoor(t *testing.T) {
	f := run(t, loginRules, nil, withAdmin)
	for path, want := range map[string]string{
		"/v1/top?by=activ":            `400 by is "activ", did you mean "active"?`,
		"/v1/top?n=0":                 `400 n is "0", must be a number from 1 to 128`,
		"/v1/top?rule=logn":           `404 unknown rule "logn", did you mean "login"?`,
		"/v1/top?domain=apy":          `404 unknown domain "apy", did you mean "api"?`,
		"/v1/top?rul=x":               `400 unknown parameter "rul", did you mean "rule"?`,
		"/v1/events?outcome=refusd":   `400 outcome is "refusd", did you mean "refused"?`,
		"/v1/events?sample=2":         `400 sample is "2", must be a number above 0 and at most 1`,
		"/v1/events?sample=NaN":       `400 sample is "NaN", must be a number above 0 and at most 1`,
		"/v1/live?x=1":                `400 unknown parameter "x"`,
		"/v1/status?domain=a":         `400 unknown parameter "domain"`,
		"/v1/rules?domain=a&domain=b": `400 duplicate parameter "domain"`,
	} {
		res, body := f.get(t, f.adminURL(path))
		var problem struct{ Detail string }
		if err := json.Unmarshal([]byte(body), &problem); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(res.StatusCode, " ", problem.Detail); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}

func TestStopEndsStreams(t *testing.T) {
	f := run(t, loginRules, nil, withAdmin)
	live, seen := f.stream(t, "/v1/live"), f.stream(t, "/v1/events")
	live.next(t, "hello")
	seen.lines.Scan()
	if err := f.Stop(context.Background()); err != nil {
		t.Error(err)
	}
	if !live.ended() || !seen.ended() {
		t.Error("a stream was cut off")
	}
}

func TestLogLevelCanBeChanged(t *testing.T) {
	t.Parallel()
	f := newFixture(t, loginRules, nil, withAdmin)
	level, text := new(slog.LevelVar), &lockedBuffer{}
	a, err := app.New(app.Options{
		Config: f.config, Clock: f.clock.Now, PollInterval: time.Hour, LogLevel: level,
		Logger: slog.New(slog.NewJSONHandler(text, &slog.HandlerOptions{Level: level})),
	})
	if err != nil {
		t.Fatal(err)
	}
	f.App = a
	f.start(t)
	put := func(body string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, f.adminURL("/v1/log-level"), strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		res, err := f.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, read(t, res)
	}
	f.login(t, "198.51.100.7")
	if strings.Contains(text.String(), `"msg":"request"`) {
		t.Errorf("requests are logged at info: %s", text)
	}
	if status, body := put(`{"level":"debug"}`); status != 200 || body != "{\"level\":\"debug\"}\n" {
		t.Errorf("%d %s", status, body)
	}
	f.login(t, "198.51.100.7")
	line := regexp.MustCompile(`"msg":"request","door":"api","domain":"api","outcome":"allowed","duration":\d+,"rule":"login","key":"[0-9a-f]{16}","remaining":3,"reason":"ok"}`)
	if n := len(line.FindAllString(text.String(), -1)); n != 1 || strings.Contains(text.String(), "198.51.100.7") {
		t.Errorf("%d lines in %s", n, text)
	}
	for body, want := range map[string]int{`{"level":"debgu"}`: 400, `{"lvl":"info"}`: 400, `{`: 400, strings.Repeat(" ", 65<<10): 400, `{"level":"warn"}`: 200} {
		if status, answer := put(body); status != want {
			t.Errorf("%.20q: %d %s", body, status, answer)
		}
	}
	if got := answerOf[map[string]string](t, f, "/v1/log-level"); got["level"] != "warn" {
		t.Error(got)
	}
}
