package httpapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/headgate/headgate/internal/answer"
	"github.com/headgate/headgate/internal/decide/admission"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/door"
	"github.com/headgate/headgate/internal/door/httpapi"
	"github.com/headgate/headgate/internal/request/client"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/inline"
	"github.com/headgate/headgate/internal/rules/rulefile"
	"github.com/headgate/headgate/internal/transport/membound"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

const testRules = `
domain: api
limits:
  - name: login
    match: {method: POST, path: /login}
    key: [client_ip]
    rate: 5/minute
  - name: per-key
    match: {path: /v1/**}
    key: ["header:X-Api-Key"]
    rate: 100/second
    burst: 500
  - name: trial
    match: {path: /trial}
    rate: 1/minute
    mode: shadow
  - name: queue
    match: {path: /queue}
    rate: 1/second
    burst: 2
    algorithm: leaky_bucket
  - name: nothing
    match: {path: /nothing}
    rate: 0/minute
  - {name: failed, match: {path: /failed}, rate: 5/minute, algorithm: fixed_window, charge_on: {status: 401, grpc: UNAUTHENTICATED, headers: {X-Login: failed}}}
  - {name: secret, match: {path: /quiet}, rate: 1/minute, algorithm: fixed_window, on_limit: shadow_ban}
  - {name: shown, match: {path: /quiet}, rate: 9/minute, algorithm: fixed_window}
`

// at is the time of all requests.
var at = time.Date(2026, 11, 21, 11, 0, 0, 0, time.UTC)

type api struct {
	handler *httpapi.Handler
	now     time.Time
	ready   door.Readiness
}

func newAPI(t testing.TB, store store.Store, options ...engine.Option) *api {
	t.Helper()
	return newBoundedAPI(t, store, answer.DefaultMostBodies, options...)
}

// newBoundedAPI returns an API whose large bodies may take most bytes together.
func newBoundedAPI(t testing.TB, store store.Store, bodies int64, options ...engine.Option) *api {
	t.Helper()
	rs, diagnostics := rulefile.Parse(rulefile.Source{Name: "test.yaml", Data: []byte(testRules)})
	if rs == nil {
		t.Fatalf("rules: %v", diagnostics)
	}
	return newAPIOf(t, rs, store, bodies, options...)
}

func newAPIOf(t testing.TB, rs *rules.Ruleset, store store.Store, bodies int64, options ...engine.Option) *api {
	t.Helper()
	clients, err := client.New(client.Config{})
	if err != nil {
		t.Fatal(err)
	}
	a := &api{now: at}
	a.handler = httpapi.New(httpapi.Options{
		Asker: admission.Asker{Engine: engine.New(store, rs, options...), Clock: func() time.Time { return a.now }, Logger: slog.New(slog.DiscardHandler), Clients: clients},
		Ready: func(context.Context) door.Readiness { return a.ready }, Inline: inlineLimits(), Bodies: membound.New(membound.Options{Most: bodies}),
	})
	return a
}

// inlineLimits allows limits in requests, within the default bounds.
func inlineLimits() *inline.Limits {
	b := inline.Default()
	b.Enabled, b.OnStoreError = true, rules.StoreErrorDeny
	return inline.New(b)
}

func (a *api) do(method, target, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	a.handler.ServeHTTP(w, httptest.NewRequest(method, target, strings.NewReader(body)))
	return w
}

func (a *api) check(body string) *httptest.ResponseRecorder { return a.do("POST", "/v1/check", body) }

const loginBody = `{"domain":"api","attributes":{"method":"POST","path":"/login","client_ip":"198.51.100.7"},"cost":1}`

// The trace in the contract, design §7, word for word.
func TestCheckTrace(t *testing.T) {
	a := newAPI(t, memory.New())
	rows := []struct {
		after  time.Duration
		status int
		body   string
	}{
		{0, 200, `{"allowed":true,"rule":"login","limit":5,"remaining":4,"retry_after_ms":0,"reset_after_ms":12000,"reason":"ok"}`},
		{0, 200, `{"allowed":true,"rule":"login","limit":5,"remaining":3,"retry_after_ms":0,"reset_after_ms":24000,"reason":"ok"}`},
		{0, 200, `{"allowed":true,"rule":"login","limit":5,"remaining":2,"retry_after_ms":0,"reset_after_ms":36000,"reason":"ok"}`},
		{0, 200, `{"allowed":true,"rule":"login","limit":5,"remaining":1,"retry_after_ms":0,"reset_after_ms":48000,"reason":"ok"}`},
		{0, 200, `{"allowed":true,"rule":"login","limit":5,"remaining":0,"retry_after_ms":0,"reset_after_ms":60000,"reason":"ok"}`},
		{750 * time.Millisecond, 429, `{"allowed":false,"rule":"login","limit":5,"remaining":0,"retry_after_ms":11250,"reset_after_ms":59250,"reason":"limited"}`},
		{11249 * time.Millisecond, 429, `{"allowed":false,"rule":"login","limit":5,"remaining":0,"retry_after_ms":1,"reset_after_ms":48001,"reason":"limited"}`},
		{time.Millisecond, 200, `{"allowed":true,"rule":"login","limit":5,"remaining":0,"retry_after_ms":0,"reset_after_ms":60000,"reason":"ok"}`},
	}
	for i, row := range rows {
		a.now = a.now.Add(row.after)
		w := a.check(loginBody)
		if w.Code != row.status || w.Body.String() != row.body+"\n" {
			t.Errorf("row %d: %d %s\nwant   %d %s", i, w.Code, w.Body, row.status, row.body)
		}
		if !json.Valid(w.Body.Bytes()) || w.Header().Get("Content-Type") != "application/json" {
			t.Errorf("row %d: not JSON, or not called so: %v", i, w.Header())
		}
	}
}

func TestCheckHeaders(t *testing.T) {
	a := newAPI(t, memory.New())
	var w *httptest.ResponseRecorder
	for range 6 {
		w = a.check(loginBody)
	}
	want := map[string]string{
		"X-RateLimit-Limit": "5", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "60",
		"Retry-After": "12", "X-RateLimit-Retry-After": "12",
		"RateLimit": `"login";r=0;t=12`, "RateLimit-Policy": `"login";q=5;w=60`,
	}
	for name, value := range want {
		if got := w.Header().Get(name); got != value {
			t.Errorf("%s: %q, want %q", name, got, value)
		}
	}
	for _, name := range []string{"RateLimit", "RateLimit-Policy"} {
		if _, err := httpsfv.UnmarshalList([]string{w.Header().Get(name)}); err != nil {
			t.Errorf("%s is no structured field: %v", name, err)
		}
	}
}

func TestCheckAnswers(t *testing.T) {
	rows := []struct{ name, body, want string }{
		{
			"no rule applies", `{"domain":"api","attributes":{"path":"/none"}}`,
			`200 {"allowed":true,"reason":"unlimited"}`,
		},
		{
			"no attributes", `{"domain":"api"}`,
			`200 {"allowed":true,"reason":"unlimited"}`,
		},
		{
			"unknown domain", `{"domain":"elsewhere"}`,
			`200 {"allowed":true,"reason":"unknown_domain"}`,
		},
		{
			"more than could ever fit", `{"domain":"api","attributes":{"method":"POST","path":"/login","client_ip":"::1"},"cost":6}`,
			`429 {"allowed":false,"rule":"login","limit":5,"remaining":5,"retry_after_ms":null,"reset_after_ms":0,"reason":"too_large"}`,
		},
		{
			"a limit of nothing", `{"domain":"api","attributes":{"path":"/nothing"}}`,
			`429 {"allowed":false,"rule":"nothing","limit":0,"remaining":0,"retry_after_ms":null,"reset_after_ms":0,"reason":"too_large"}`,
		},
		{
			"cost of several", `{"domain":"api","attributes":{"path":"/v1/x","header:x-api-key":"k"},"cost":400}`,
			`200 {"allowed":true,"rule":"per-key","limit":500,"remaining":100,"retry_after_ms":0,"reset_after_ms":4000,"reason":"ok"}`,
		},
		{
			"peek", `{"domain":"api","attributes":{"path":"/v1/x","header:x-api-key":"k"},"peek":true}`,
			`200 {"allowed":true,"rule":"per-key","limit":500,"remaining":500,"retry_after_ms":0,"reset_after_ms":0,"reason":"ok"}`,
		},
		{
			"escapes and spaces", "\r\n {\"\\u0064omain\" :\t\"a\\u0070i\", \"attributes\": {\"path\":\"\\/none\", \"smile\":\"\\ud83d\\ude00\"}} ",
			`200 {"allowed":true,"reason":"unlimited"}`,
		},
		{"empty batch", `{"checks":[]}`, `200 {"results":[]}`},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			w := newAPI(t, memory.New()).check(row.body)
			if got := fmt.Sprintf("%d %s", w.Code, strings.TrimSpace(w.Body.String())); got != row.want {
				t.Errorf("got  %s\nwant %s", got, row.want)
			}
		})
	}
}

func TestShadowIsTold(t *testing.T) {
	a := newAPI(t, memory.New())
	body := `{"domain":"api","attributes":{"path":"/trial"}}`
	a.check(body)
	w := a.check(body)
	if want := `{"allowed":true,"reason":"unlimited","shadow":["trial"]}` + "\n"; w.Body.String() != want {
		t.Errorf("got %s want %s", w.Body, want)
	}
	if w.Header().Get("RateLimit") != "" {
		t.Error("an observed limit shows in the headers")
	}
}

// The header fields are for the client, which must not learn of a secret ban; the body
// is for the caller, which must know.
func TestHiddenRuleIsInNoHeaderField(t *testing.T) {
	a := newAPI(t, memory.New())
	for i, want := range []string{`"allowed":true,"rule":"secret"`, `"allowed":false,"rule":"secret","limit":1,"remaining":0,"retry_after_ms":60000,"reset_after_ms":60000,"action":"shadow_ban"`} {
		w := a.check(`{"domain":"api","attributes":{"path":"/quiet"}}`)
		h := w.Header()
		if !strings.Contains(w.Body.String(), want) || h.Get("X-RateLimit-Remaining") != strconv.Itoa(8-i) || h.Get("RateLimit-Policy") != `"shown";q=9;w=60` || h.Get("Retry-After") != "" {
			t.Errorf("request %d: %s %v", i, w.Body, h)
		}
	}
}

func TestQueueTellsTheDelay(t *testing.T) {
	a := newAPI(t, memory.New())
	body := `{"domain":"api","attributes":{"path":"/queue"}}`
	a.check(body)
	w := a.check(body)
	want := `{"allowed":true,"rule":"queue","limit":2,"remaining":0,"retry_after_ms":0,"reset_after_ms":2000,"action":"delay","delay_ms":1000,"reason":"ok"}` + "\n"
	if w.Body.String() != want {
		t.Errorf("got %s want %s", w.Body, want)
	}
}

func TestUnknownDomainRefused(t *testing.T) {
	a := newAPI(t, memory.New(), engine.WithUnknownDomain(engine.UnknownDomainRefuse))
	w := a.check(`{"domain":"elsewhere"}`)
	if want := `{"allowed":false,"reason":"unknown_domain"}` + "\n"; w.Code != 429 || w.Body.String() != want {
		t.Errorf("%d %s, want 429 %s", w.Code, w.Body, want)
	}
}

func TestBatch(t *testing.T) {
	a := newAPI(t, memory.New())
	one := loginBody
	elsewhere := `{"domain":"elsewhere"}`
	w := a.check(`{"checks":[` + strings.Repeat(one+",", 6) + elsewhere + `]}`)
	var answer struct {
		Results []struct {
			Allowed   bool
			Reason    string
			Remaining *int
		}
	}
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || w.Code != 200 {
		t.Fatalf("%d %s: %v", w.Code, w.Body, err)
	}
	want := "ok4 ok3 ok2 ok1 ok0 limited0 unknown_domain"
	var got []string
	for _, r := range answer.Results {
		s := r.Reason
		if r.Remaining != nil {
			s += fmt.Sprint(*r.Remaining)
		}
		got = append(got, s)
	}
	if strings.Join(got, " ") != want {
		t.Errorf("got %v, want %s", got, want)
	}
}

func TestIPv6ClientsAreGrouped(t *testing.T) {
	a := newAPI(t, memory.New())
	var w *httptest.ResponseRecorder
	for i := range 6 { // each from another address of one /64
		w = a.check(fmt.Sprintf(`{"domain":"api","attributes":{"method":"POST","path":"/login","client_ip":"2001:db8:1:2::%d"}}`, i+1))
	}
	if w.Code != 429 {
		t.Errorf("the sixth of one /64 got %d, want 429", w.Code)
	}
	if w = a.check(`{"domain":"api","attributes":{"method":"POST","path":"/login","client_ip":"2001:db8:1:3::1"}}`); w.Code != 200 {
		t.Errorf("the next /64 got %d, want 200", w.Code)
	}
}

// Every mistake gets 400 and problem+json with a specific message, and charges nothing.
func TestMalformed(t *testing.T) {
	deep := strings.Repeat(`{"checks":[`, 100)
	rows := []struct{ name, body, want string }{
		{"empty", ``, `the body must be a JSON object, found the end of the body`},
		{"no object", `[]`, `found an array`},
		{"null", `null`, `found null`},
		{"cut short", `{"domain":"api"`, `expected a comma or }, found the end of the body (at byte 16)`},
		{"trailing", `{"domain":"api"} x`, `expected the end of the body, found 'x'`},
		{"no domain", `{"attributes":{}}`, `"domain" is missing`},
		{"empty domain", `{"domain":""}`, `"domain" must not be empty`},
		{"unknown field", `{"domain":"api","atributes":{}}`, `unknown field "atributes", did you mean "attributes"? (at byte 29)`},
		{"unknown field in a batch", `{"checks":[{"domain":"api"},{"doman":"api"}]}`, `checks[1]: unknown field "doman", did you mean "domain"? (at byte 38)`},
		{"twice", `{"domain":"api","domain":"b"}`, `duplicate field "domain"`},
		{"domain type", `{"domain":5}`, `"domain" must be a string, found a number`},
		{"negative cost", `{"domain":"api","cost":-1}`, `"cost" must not be negative`},
		{"fraction", `{"domain":"api","cost":1.5}`, `"cost" must be a whole number`},
		{"exponent", `{"domain":"api","cost":1e3}`, `"cost" must be a whole number`},
		{"huge", `{"domain":"api","cost":9007199254740992}`, `"cost" must be at most 9007199254740991`},
		{"enormous", `{"domain":"api","cost":99999999999999999999999}`, `"cost" must be at most`},
		{"cost in quotes", `{"domain":"api","cost":"1"}`, `"cost" must be a number, found a string`},
		{"octal", `{"domain":"api","cost":01}`, `must not start with 0`},
		{"peek type", `{"domain":"api","peek":1}`, `"peek" must be true or false, found a number`},
		{"number as attribute", `{"domain":"api","attributes":{"user":5}}`, `attribute "user" must be a string, found a number: put it in quotes`},
		{"attribute null", `{"domain":"api","attributes":{"user":null}}`, `found null`},
		{"attribute twice", `{"domain":"api","attributes":{"header:a":"1","header:A":"2"}}`, `duplicate attribute "header:A"`},
		{"attribute name", `{"domain":"api","attributes":{"header:":"1"}}`, `attribute "header:"`},
		{"address", `{"domain":"api","attributes":{"client_ip":"1.2.3"}}`, `must be an IP address without port or zone, not "1.2.3"`},
		{"address with port", `{"domain":"api","attributes":{"client_ip":"1.2.3.4:5"}}`, `must be an IP address`},
		{"address with zone", `{"domain":"api","attributes":{"client_ip":"fe80::1%eth0"}}`, `must be an IP address`},
		{"URL", `{"domain":"api","attributes":{"path":"http://x/login"}}`, `attribute "path" must start with /, not "http://x/login"`},
		{"path without slash", `{"domain":"api","attributes":{"path":"login"}}`, `attribute "path" must start with /`},
		{"not UTF-8", "{\"domain\":\"a\xff\"}", `is not valid UTF-8`},
		{"not UTF-8 after an escape", "{\"domain\":\"\\n\xff\"}", `is not valid UTF-8`},
		{"half a character", `{"domain":"\ud800"}`, `has an invalid escape`},
		{"wrong escape", `{"domain":"\x"}`, `has an invalid escape`},
		{"open string", `{"domain":"api`, `has no closing quote`},
		{"line break in a string", "{\"domain\":\"a\nb\"}", `control character`},
		{"checks and more", `{"checks":[],"domain":"api"}`, `"checks" must be the only field`},
		{"checks type", `{"checks":{}}`, `"checks" must be a JSON array`},
		{"batch in a batch", deep, `checks[0]: a check in "checks" cannot have "checks" itself`},
		{"too many", `{"checks":[` + strings.Repeat(`{"domain":"api"},`, 1000) + `{"domain":"api"}]}`, `at most 1000 elements`},
		{"too many attributes", `{"domain":"api","attributes":{` + numbered(129) + `}}`, `at most 128 attributes`},
		{"comma at the end", `{"domain":"api",}`, `expected a name in quotes, found '}'`},
		{"single quotes", `{'domain':'api'}`, `expected a name in quotes`},
		{"byte order mark", "\ufeff{}", `the body must be a JSON object`},
		{"NUL", "\x00", `the body must be a JSON object, found '\x00'`},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			w := newAPI(t, memory.New()).check(row.body)
			var problem struct {
				Status int
				Detail string
			}
			if err := json.Unmarshal(w.Body.Bytes(), &problem); err != nil {
				t.Fatalf("%s: %v", w.Body, err)
			}
			if w.Code != 400 || problem.Status != 400 || w.Header().Get("Content-Type") != "application/problem+json" {
				t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
			}
			if !strings.Contains(problem.Detail, row.want) {
				t.Errorf("detail %q\nwant   %q", problem.Detail, row.want)
			}
		})
	}
}

func numbered(n int) string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf(`"a%d":"x"`, i)
	}
	return strings.Join(list, ",")
}

func TestMalformedBatchChargesNothing(t *testing.T) {
	a := newAPI(t, memory.New())
	if w := a.check(`{"checks":[` + loginBody + `,{"domain":1}]}`); w.Code != 400 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	if w := a.check(loginBody); !strings.Contains(w.Body.String(), `"remaining":4`) {
		t.Errorf("%s, want 4 remaining", w.Body)
	}
}

func TestRouting(t *testing.T) {
	rows := []struct {
		method, target string
		status         int
		allow          string
	}{
		{"GET", "/v1/check", 405, "POST"},
		{"POST", "/healthz", 405, "GET, HEAD"},
		{"DELETE", "/readyz", 405, "GET, HEAD"},
		{"GET", "/", 404, ""},
		{"POST", "/v1/check/", 404, ""},
		{"GET", "/v1/chekc", 404, ""},
	}
	a := newAPI(t, memory.New())
	for _, row := range rows {
		w := a.do(row.method, row.target, "")
		if w.Code != row.status || w.Header().Get("Allow") != row.allow || w.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s %s: %d %v", row.method, row.target, w.Code, w.Header())
		}
	}
}

func TestContentTypeDoesNotMatter(t *testing.T) {
	a := newAPI(t, memory.New())
	for _, contentType := range []string{"", "text/plain", "application/x-www-form-urlencoded"} {
		r := httptest.NewRequest(http.MethodPost, "/v1/check", strings.NewReader(`{"domain":"api"}`))
		r.Header.Set("Content-Type", contentType)
		w := httptest.NewRecorder()
		a.handler.ServeHTTP(w, r)
		if w.Code != 200 {
			t.Errorf("%q: %d", contentType, w.Code)
		}
	}
}

func TestHealthAndReadiness(t *testing.T) {
	a := newAPI(t, memory.New())
	a.ready.Rules = door.RulesState{Domains: 1, Rules: 5, Files: 2, LoadedAt: at}
	rows := []struct {
		name    string
		change  func(*door.Readiness)
		status  int
		text    string
		verbose string
	}{
		{
			"ready", func(*door.Readiness) {}, 200, "ok\n",
			`{"ready":true,"draining":false,"store":"ok","rules":{"domains":1,"rules":5,"files":2,"loaded_at":"2026-11-21T11:00:00Z"}}`,
		},
		{
			"bad reload", func(r *door.Readiness) { r.Rules.LastFailed = &door.FailedReload{At: at, Error: "a.yaml:1:1: no"} }, 200, "ok\n",
			`{"ready":true,"draining":false,"store":"ok","rules":{"domains":1,"rules":5,"files":2,"loaded_at":"2026-11-21T11:00:00Z","last_failed_reload":{"at":"2026-11-21T11:00:00Z","error":"a.yaml:1:1: no"}}}`,
		},
		{
			"no store", func(r *door.Readiness) { r.Store = errors.New("gone") }, 503, "the store does not answer\n",
			`{"ready":false,"draining":false,"store":"gone","rules":{"domains":1,"rules":5,"files":2,"loaded_at":"2026-11-21T11:00:00Z"}}`,
		},
		{
			"draining", func(r *door.Readiness) { r.Draining = true }, 503, "draining\n",
			`{"ready":false,"draining":true,"store":"ok","rules":{"domains":1,"rules":5,"files":2,"loaded_at":"2026-11-21T11:00:00Z"}}`,
		},
	}
	before := a.ready
	for _, row := range rows {
		a.ready = before
		row.change(&a.ready)
		if w := a.do("GET", "/readyz", ""); w.Code != row.status || w.Body.String() != row.text {
			t.Errorf("%s: %d %q", row.name, w.Code, w.Body)
		}
		if w := a.do("GET", "/readyz", ""); w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("readiness may be cached: %v", w.Header())
		}
		if w := a.do("GET", "/readyz?verbose", ""); w.Code != row.status || w.Body.String() != row.verbose+"\n" {
			t.Errorf("%s, verbose: %d %s\nwant %s", row.name, w.Code, w.Body, row.verbose)
		}
		if w := a.do("GET", "/healthz", ""); w.Code != 200 || w.Body.String() != "ok\n" {
			t.Errorf("%s: healthz %d %q", row.name, w.Code, w.Body)
		}
	}
}

// closed is a store that cannot answer.
func closed(t *testing.T) store.Store {
	t.Helper()
	s := memory.New()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestStoreFailureIsTold(t *testing.T) {
	w := newAPI(t, closed(t)).check(loginBody)
	want := `{"allowed":true,"rule":"login","limit":5,"retry_after_ms":0,"reason":"fail_open"}` + "\n"
	if w.Code != 200 || w.Body.String() != want {
		t.Errorf("%d %s, want 200 %s", w.Code, w.Body, want)
	}
}
