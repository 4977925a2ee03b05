package httpapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// A check with its own limit is answered like a check by rules, with header fields.
func TestInlineTrace(t *testing.T) {
	a := newAPI(t, memory.New())
	const body = `{"id":"user:7","limit":"2/minute","algorithm":"sliding_log"}`
	for i, row := range []struct {
		after  time.Duration
		status int
		body   string
	}{
		{0, 200, `{"allowed":true,"rule":"inline","limit":2,"remaining":1,"retry_after_ms":0,"reset_after_ms":60000,"reason":"ok"}`},
		{10 * time.Second, 200, `{"allowed":true,"rule":"inline","limit":2,"remaining":0,"retry_after_ms":0,"reset_after_ms":60000,"reason":"ok"}`},
		{10 * time.Second, 429, `{"allowed":false,"rule":"inline","limit":2,"remaining":0,"retry_after_ms":40000,"reset_after_ms":50000,"reason":"limited"}`},
		{40 * time.Second, 200, `{"allowed":true,"rule":"inline","limit":2,"remaining":0,"retry_after_ms":0,"reset_after_ms":60000,"reason":"ok"}`},
	} {
		a.now = a.now.Add(row.after)
		w := a.check(body)
		if got := strings.TrimSpace(w.Body.String()); w.Code != row.status || got != row.body {
			t.Errorf("%d: %d %s", i, w.Code, got)
		}
		if got := w.Header().Get("RateLimit-Policy"); got != `"inline";q=2;w=60` {
			t.Errorf("%d: RateLimit-Policy: %s", i, got)
		}
		if (w.Header().Get("Retry-After") == "40") != (w.Code == 429) {
			t.Errorf("%d: %v", i, w.Header())
		}
	}
}

// Counts belong to an id and an algorithm: a changed number keeps them, another
// algorithm or id starts at zero.
func TestInlineCounts(t *testing.T) {
	a := newAPI(t, memory.New())
	for _, row := range []struct {
		body      string
		remaining int64
	}{
		{`{"id":"a","limit":"10/minute","cost":4}`, 6},
		{`{"id":"a","limit":"10/minute","peek":true}`, 6},
		{`{"id":"a","limit":"10/minute","cost":0}`, 6},
		{`{"id":"a","limit":"20/minute"}`, 15},
		{`{"id":"a","limit":"10/minute","algorithm":"fixed_window"}`, 9},
		{`{"id":"a","limit":"5/minute","algorithm":"fixed_window"}`, 3},
		{`{"id":"b","limit":"10/minute"}`, 9},
		{`{"algorithm":"token_bucket","limit":"10/minute","id":"b"}`, 8},
	} {
		var told struct{ Remaining int64 }
		w := a.check(row.body)
		if err := json.Unmarshal(w.Body.Bytes(), &told); err != nil || told.Remaining != row.remaining {
			t.Errorf("%s: %s, want %d", row.body, w.Body, row.remaining)
		}
	}
}

// Ids cannot reach the counts of rules, of each other, or of CL.THROTTLE, however they
// are written.
func TestInlineIDsAreApart(t *testing.T) {
	a := newAPI(t, memory.New())
	for range 5 {
		a.check(loginBody)
	}
	if w := a.check(loginBody); w.Code != http.StatusTooManyRequests {
		t.Fatal(w.Code)
	}
	for _, id := range []string{"198.51.100.7", "\\f198.51.100.7", "login", "api/login", "api/login198.51.100.7", "%inline", "\\u0000", "{a}", "*", strings.Repeat("x", 256)} {
		for want := 4; want >= 3; want-- {
			w := a.check(fmt.Sprintf(`{"id":"%s","limit":"5/minute"}`, id))
			if w.Code != 200 || !strings.Contains(w.Body.String(), fmt.Sprintf(`"remaining":%d`, want)) {
				t.Errorf("%q: %d %s, want %d", id, w.Code, w.Body, want)
			}
		}
	}
	a.now = a.now.Add(12 * time.Second)
	if w := a.check(loginBody); w.Code != 200 {
		t.Error("ids have charged a rule:", w.Body)
	}
}

// In a batch, checks by rules and checks with their own limit mix, in order.
func TestInlineBatch(t *testing.T) {
	a := newAPI(t, memory.New())
	w := a.check(`{"checks":[` + loginBody + `,{"id":"a","limit":"1/minute"},{"id":"a","limit":"1/minute"},{"id":"b","limit":"1/minute","peek":true},` + loginBody + `]}`)
	var told struct {
		Results []struct {
			Allowed   bool
			Rule      string
			Remaining int64
		}
	}
	if err := json.Unmarshal(w.Body.Bytes(), &told); err != nil || w.Code != 200 || len(told.Results) != 5 {
		t.Fatal(w.Code, w.Body, err)
	}
	if got, want := fmt.Sprint(told.Results), "[{true login 4} {true inline 0} {false inline 0} {true inline 1} {true login 3}]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	w = a.check(`{"checks":[{"id":"c","limit":"1/minute"},{"id":"c","limit":"1/minut"}]}`)
	if detail := problemDetail(t, w); w.Code != 400 || !strings.HasPrefix(detail, `checks[1]: "limit": unknown unit "minut", did you mean "minute"?`) {
		t.Errorf("%d %s", w.Code, detail)
	}
	if w := a.check(`{"id":"c","limit":"1/minute"}`); w.Code != 200 {
		t.Error("a batch with a mistake has charged something")
	}
}

func problemDetail(t *testing.T, w *httptest.ResponseRecorder) string {
	t.Helper()
	var told struct{ Detail string }
	if err := json.Unmarshal(w.Body.Bytes(), &told); err != nil || w.Header().Get("Content-Type") != "application/problem+json" {
		t.Fatalf("%v: %d %v %s", err, w.Code, w.Header(), w.Body)
	}
	return told.Detail
}

// Mistakes are a 400, what the operator does not allow is a 403.
func TestInlineMistakes(t *testing.T) {
	a := newAPI(t, memory.New())
	for _, row := range []struct {
		body   string
		status int
		detail string
	}{
		{`{"id":"a"}`, 400, `"limit" is missing: want N/unit, such as "5/minute"`},
		{`{"limit":"5/minute"}`, 400, `"id" is missing: it says what the limit counts by`},
		{`{"id":"","limit":"5/minute"}`, 400, `"id" must not be empty`},
		{`{"id":7,"limit":"5/minute"}`, 400, `"id" must be a string, found a number (at byte 7)`},
		{`{"id":"a","limit":5}`, 400, `"limit": invalid rate "5": want N/unit, such as 5/minute (at byte 19)`},
		{`{"id":"a","limit":"5/minute","burst":"x"}`, 400, `"burst" must be a whole number, not text (at byte 38)`},
		{`{"id":"a","limit":"5/minute","burst":-}`, 400, `a number has no digits (at byte 39)`},
		{`{"id":"a","limit":["5/minute"]}`, 400, `"limit" must be a string, a number, true or false, found an array (at byte 19)`},
		{`{"id":"a","limit":"5/minute","algoritm":"fixed_window"}`, 400, `unknown field "algoritm", did you mean "algorithm"? (at byte 41)`},
		{`{"id":"a","limit":"5/minute","limit":"6/minute"}`, 400, `duplicate field "limit" (at byte 38)`},
		{`{"id":"a","id":"b","limit":"5/minute"}`, 400, `duplicate field "id" (at byte 16)`},
		{`{"id":"a","limit":"5/minute","domain":"api"}`, 400, `"id" and its limit cannot be combined with "domain": a check asks either the rules of a domain or its own limit`},
		{`{"id":"a","limit":"5/minute","attributes":{}}`, 400, `"id" and its limit cannot be combined with "attributes": put what to count into "id"`},
		{`{"domain":"api","burst":5}`, 400, `"id" and its limit cannot be combined with "domain": a check asks either the rules of a domain or its own limit`},
		{`{"id":"a","limit":"5/minute","checks":[]}`, 400, `"checks" must be the only field: put domain, attributes, cost and peek into each check`},
		{`{"id":"a","limit":"5/minute","colour":"red"}`, 400, `unknown field "colour"; known are "domain", "attributes", "cost", "peek", and "id" with "limit"`},
		{`{"id":"a","limit":"2000/second"}`, 403, `"limit" is above the server's inline_limits.max_rate, 1000 per 1s (at byte 19)`},
		{`{"id":"` + strings.Repeat("x", 257) + `","limit":"5/minute"}`, 403, `"id" has 257 bytes, more than 256`},
		{`{"id":"a","limit":"` + strings.Repeat("5", 65) + `"}`, 400, `"limit" is longer than 64 bytes (at byte 19)`},
	} {
		w := a.check(row.body)
		if detail := problemDetail(t, w); w.Code != row.status || !strings.HasPrefix(detail, row.detail) {
			t.Errorf("%s: %d %s\nwant %d %s", row.body, w.Code, detail, row.status, row.detail)
		}
	}
	for _, path := range []string{"/v1/reserve", "/v1/explain"} {
		if w := a.do("POST", path, `{"id":"a","limit":"5/minute"}`); w.Code != 400 || !strings.Contains(problemDetail(t, w), `unknown field "id"`) {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}

// lost is a store that does not answer.
type lost struct{ store.Store }

func (lost) Do(_ context.Context, b *store.Batch) {
	b.Fail(fmt.Errorf("down: %w", headgate.ErrUnavailable))
}

// If the store is lost, the setting on_store_error decides.
func TestInlineStoreLost(t *testing.T) {
	a := newAPI(t, lost{memory.New()})
	w := a.check(`{"id":"a","limit":"5/minute"}`)
	if got, want := strings.TrimSpace(w.Body.String()), `{"allowed":false,"rule":"inline","limit":5,"retry_after_ms":`; w.Code != 429 || !strings.HasPrefix(got, want) || !strings.Contains(got, `"reason":"fail_closed"`) {
		t.Errorf("%d %s", w.Code, got)
	}
}

const inlineBody = `{"id":"user:7","limit":"5/minute","algorithm":"sliding_window","cost":1}`

func BenchmarkInlineCheck(b *testing.B) {
	a := newAPI(b, memory.New())
	body := strings.NewReader("")
	r := httptest.NewRequest(http.MethodPost, "/v1/check", nil)
	r.Body, r.ContentLength = io.NopCloser(body), int64(len(inlineBody))
	w := &sink{header: http.Header{}}
	b.ReportAllocs()
	for b.Loop() {
		body.Reset(inlineBody)
		clear(w.header)
		a.handler.ServeHTTP(w, r)
	}
}
