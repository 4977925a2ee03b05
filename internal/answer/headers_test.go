package answer_test

import (
	"math/big"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"
	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/answer"
	"github.com/headgate/headgate/store"
)

var (
	login = answer.Policy{
		Name: "login", Limit: headgate.PerMinute(5),
		Decision: store.Decision{
			Reason: headgate.ReasonLimited, Limit: 5,
			RetryAfter: 11250 * time.Millisecond, ResetAfter: time.Minute,
		},
	}
	daily = answer.Policy{
		Name: "daily", Limit: headgate.PerDay(1000),
		Decision: store.Decision{Allowed: true, Limit: 1000, Remaining: 300, Granted: 1, ResetAfter: 13*time.Hour + 1},
	}
)

// with returns p with another decision.
func with(p answer.Policy, d store.Decision) answer.Policy {
	p.Decision = d
	return p
}

func TestHeaders(t *testing.T) {
	t.Parallel()
	perKey := answer.Policy{
		Name: "per-key", Limit: headgate.PerSecond(100).WithBurst(500),
		Decision: store.Decision{Allowed: true, Limit: 500, Remaining: 499, Granted: 1, ResetAfter: 10 * time.Millisecond},
	}
	full := answer.Policy{ // the request shows a known value
		Name: "signups", Limit: headgate.PerHour(20).WithAlgorithm(headgate.Distinct),
		Decision: store.Decision{Allowed: true, Limit: 20, ResetAfter: 10 * time.Minute},
	}
	tests := []struct {
		name    string
		dialect answer.Dialect
		list    []answer.Policy
		want    map[string]string
	}{
		{"admitted", answer.Default, []answer.Policy{daily}, map[string]string{
			"X-Ratelimit-Limit": "1000", "X-Ratelimit-Remaining": "300", "X-Ratelimit-Reset": "46801",
			"Ratelimit-Policy": `"daily";q=1000;w=86400`, "Ratelimit": `"daily";r=300;t=25920`,
		}},
		{"burst: more may be left than comes in a window", answer.Default, []answer.Policy{perKey}, map[string]string{
			"X-Ratelimit-Limit": "500", "X-Ratelimit-Remaining": "499", "X-Ratelimit-Reset": "1",
			"Ratelimit-Policy": `"per-key";q=100;w=1`, "Ratelimit": `"per-key";r=499;t=5`,
		}},
		{"refused: the tightest fills the fields of one", answer.Default, []answer.Policy{daily, login}, map[string]string{
			"X-Ratelimit-Limit": "5", "X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": "60",
			"Retry-After": "12", "X-Ratelimit-Retry-After": "12",
			"Ratelimit-Policy": `"daily";q=1000;w=86400, "login";q=5;w=60`,
			"Ratelimit":        `"daily";r=300;t=25920, "login";r=0;t=12`,
		}},
		{"two refused: the longer counts, whichever is first", answer.Default, []answer.Policy{
			login, with(daily, store.Decision{Reason: headgate.ReasonLimited, Limit: 1000, RetryAfter: time.Second, ResetAfter: time.Hour}),
		}, map[string]string{
			"X-Ratelimit-Limit": "5", "X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": "60",
			"Retry-After": "12", "X-Ratelimit-Retry-After": "12",
			"Ratelimit-Policy": `"login";q=5;w=60, "daily";q=1000;w=86400`, "Ratelimit": `"login";r=0;t=12, "daily";r=0;t=1`,
		}},
		{"IETF", answer.IETF, []answer.Policy{login}, map[string]string{
			"Retry-After": "12", "Ratelimit-Policy": `"login";q=5;w=60`, "Ratelimit": `"login";r=0;t=12`,
		}},
		{"none: Retry-After is plain HTTP", answer.None, []answer.Policy{login}, map[string]string{"Retry-After": "12"}},
		{"none, admitted", answer.None, []answer.Policy{daily}, nil},
		{"no limits", answer.Default, nil, nil},
		{"unlimited", answer.Default, []answer.Policy{
			{Name: "free", Limit: headgate.Unlimited(), Decision: store.Decision{Allowed: true, Reason: headgate.ReasonNoLimit}},
		}, nil},
		{"a shadowed limit is not mentioned", answer.Default, []answer.Policy{
			with(login, store.Decision{Allowed: true, Reason: store.ReasonShadow, Limit: 5, RetryAfter: time.Second}),
		}, nil},
		{"the cost can never fit", answer.Default, []answer.Policy{
			with(login, store.Decision{Reason: headgate.ReasonTooLarge, Limit: 5, Remaining: 5, RetryAfter: headgate.Never}),
		}, map[string]string{
			"X-Ratelimit-Limit": "5", "X-Ratelimit-Remaining": "5", "X-Ratelimit-Reset": "0",
			"Ratelimit-Policy": `"login";q=5;w=60`, "Ratelimit": `"login";r=5;t=60`,
		}},
		{"never outweighs later", answer.IETF, []answer.Policy{
			login, with(daily, store.Decision{Reason: headgate.ReasonTooLarge, Limit: 1000, RetryAfter: headgate.Never, ResetAfter: time.Hour}),
		}, map[string]string{
			"Ratelimit-Policy": `"login";q=5;w=60, "daily";q=1000;w=86400`, "Ratelimit": `"login";r=0;t=12, "daily";r=0;t=87`,
		}},
		{"store down, open: nobody knows what is left", answer.Default, []answer.Policy{
			with(login, store.Decision{Allowed: true, Reason: headgate.ReasonFailOpen, Limit: 5, Granted: 1}),
		}, map[string]string{"Ratelimit-Policy": `"login";q=5;w=60`}},
		{"store down, closed", answer.Default, []answer.Policy{
			with(login, store.Decision{Reason: headgate.ReasonFailClosed, Limit: 5}),
		}, map[string]string{"Ratelimit-Policy": `"login";q=5;w=60`, "Retry-After": "1", "X-Ratelimit-Retry-After": "1"}},
		{"a bucket: the next token comes first", answer.IETF, []answer.Policy{
			with(login, store.Decision{Allowed: true, Limit: 5, Granted: 1, ResetAfter: time.Minute}),
		}, map[string]string{"Ratelimit-Policy": `"login";q=5;w=60`, "Ratelimit": `"login";r=0;t=12`}},
		{"a leaky bucket: so does the next place", answer.IETF, []answer.Policy{
			{Name: "q", Limit: headgate.PerMinute(5).WithAlgorithm(headgate.LeakyBucket), Decision: store.Decision{Allowed: true, Limit: 5, Granted: 1, ResetAfter: time.Minute}},
		}, map[string]string{"Ratelimit-Policy": `"q";q=5;w=60`, "Ratelimit": `"q";r=0;t=12`}},
		{"a window: all of it comes back at once", answer.IETF, []answer.Policy{
			{Name: "w", Limit: daily.Limit.WithAlgorithm(headgate.FixedWindow), Decision: daily.Decision},
		}, map[string]string{"Ratelimit-Policy": `"w";q=1000;w=86400`, "Ratelimit": `"w";r=300;t=46801`}},
		{"different values: no number of requests", answer.Default, []answer.Policy{full, daily}, map[string]string{
			"X-Ratelimit-Limit": "1000", "X-Ratelimit-Remaining": "300", "X-Ratelimit-Reset": "46801",
			"Ratelimit-Policy": `"daily";q=1000;w=86400`, "Ratelimit": `"daily";r=300;t=25920`,
		}},
		{"different values, and no other limit", answer.Default, []answer.Policy{full}, map[string]string{
			"X-Ratelimit-Limit": "20", "X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": "600",
		}},
		{"a new value is refused", answer.Default, []answer.Policy{
			daily, with(full, store.Decision{Reason: headgate.ReasonLimited, Limit: 20, RetryAfter: 10 * time.Minute, ResetAfter: 10 * time.Minute}),
		}, map[string]string{
			"X-Ratelimit-Limit": "20", "X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": "600", "Retry-After": "600", "X-Ratelimit-Retry-After": "600",
			"Ratelimit-Policy": `"daily";q=1000;w=86400`, "Ratelimit": `"daily";r=300;t=25920, "signups";r=0;t=600`,
		}},
		{"a refusal of less than is left: Retry-After does not end earlier than t", answer.IETF, []answer.Policy{
			with(login, store.Decision{Reason: headgate.ReasonLimited, Limit: 5, Remaining: 3, RetryAfter: 12 * time.Second, ResetAfter: 24 * time.Second}),
		}, map[string]string{"Retry-After": "12", "Ratelimit-Policy": `"login";q=5;w=60`, "Ratelimit": `"login";r=1;t=12`}},
		{"a concurrency limit has no window", answer.IETF, []answer.Policy{
			{Name: "c", Limit: headgate.Concurrent(20), Decision: store.Decision{Allowed: true, Limit: 20, Remaining: 3, ResetAfter: time.Minute}},
		}, map[string]string{"Ratelimit-Policy": `"c";q=20;qu="concurrent-requests"`, "Ratelimit": `"c";r=3`}},
		{"a concurrency limit that is used up", answer.IETF, []answer.Policy{
			{Name: "c", Limit: headgate.Concurrent(20), Decision: store.Decision{Reason: headgate.ReasonLimited, Limit: 20, RetryAfter: time.Second, ResetAfter: time.Minute}},
		}, map[string]string{"Retry-After": "1", "Ratelimit-Policy": `"c";q=20;qu="concurrent-requests"`, "Ratelimit": `"c";r=0;t=1`}},
		{"a limit of zero", answer.IETF, []answer.Policy{
			{Name: "closed", Limit: headgate.PerSecond(0), Decision: store.Decision{Reason: headgate.ReasonTooLarge, RetryAfter: headgate.Never}},
		}, map[string]string{"Ratelimit-Policy": `"closed";q=0;w=1`, "Ratelimit": `"closed";r=0`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := http.Header{"X-Other": {"stays"}}
			answer.Headers(h, tt.dialect, tt.list...)
			want := http.Header{"X-Other": {"stays"}}
			for name, value := range tt.want {
				want.Set(name, value)
			}
			if diff := cmp.Diff(want, h); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// Traps T25 and T33: Retry-After is a whole number of seconds, never 0, never too
// early, and not a date in a time zone.
func TestRetryAfterGrammar(t *testing.T) {
	t.Parallel()
	grammar := regexp.MustCompile(`^[1-9][0-9]*$`)
	for after, want := range map[time.Duration]string{
		0:                              "1",
		1:                              "1",
		time.Microsecond:               "1",
		time.Second:                    "1",
		time.Second + 1:                "2",
		1500 * time.Millisecond:        "2",
		time.Minute:                    "60",
		-time.Second:                   "1",
		store.MaxPeriod:                "35184373",
		headgate.Never - 1:             "9223372037",
		48*time.Hour - time.Nanosecond: "172800",
	} {
		for _, dialect := range answer.Dialects() {
			h := http.Header{}
			answer.Headers(h, dialect, with(login, store.Decision{Reason: headgate.ReasonLimited, Limit: 5, RetryAfter: after}))
			for _, name := range []string{"Retry-After", "X-RateLimit-Retry-After"} {
				got := h.Get(name)
				if got == "" && dialect != answer.Default && name != "Retry-After" {
					continue
				}
				if got != want || !grammar.MatchString(got) {
					t.Errorf("%s: %s after %v: %q, want %q", dialect, name, after, got, want)
				}
			}
		}
	}
}

func TestPolicyWindow(t *testing.T) {
	t.Parallel()
	// The reported rate is never above the true one.
	for _, tt := range []struct {
		limit headgate.Limit
		want  string
	}{
		{headgate.PerMinute(100), `"x";q=100;w=60`},
		{headgate.Per(1, 10*time.Millisecond), `"x";q=100;w=1`},
		{headgate.Per(10, 300*time.Millisecond), `"x";q=33;w=1`},
		{headgate.Per(3, 1500*time.Millisecond), `"x";q=3;w=2`},
		{headgate.PerCalendar(200, headgate.Month, nil), `"x";q=200;w=2592000`},
		{headgate.Per(store.MaxLimit, time.Microsecond), `"x";q=999999999999999;w=1`},
		{headgate.Limit{}, `"x";q=0;w=1`}, // a missing limit
	} {
		h := http.Header{}
		answer.Headers(h, answer.IETF, answer.Policy{Name: "x", Limit: tt.limit, Decision: store.Decision{Allowed: true}})
		if got := h.Get("RateLimit-Policy"); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.limit, got, tt.want)
		}
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"":          "default",
		"per user":  "per user",
		`a"b\c`:     `a"b\c`,
		"50%":       "50%25",
		"größe":     "gr%C3%B6%C3%9Fe",
		"a\r\nX: y": "a%0D%0AX: y",
		"\xff\x00":  "%FF%00",
		"a,b;c=d":   "a,b;c=d",
		"a%0Ab":     "a%250Ab",
		"\x7f":      "%7F",
		"~":         "~",
	} {
		if got := parsed(t, answer.Policy{Name: name, Limit: headgate.PerMinute(5), Decision: daily.Decision}); got != want {
			t.Errorf("%q reads as %q, want %q", name, got, want)
		}
	}
}

// parsed writes p, reads it back as a client would and returns the name.
func parsed(t *testing.T, p answer.Policy) string {
	t.Helper()
	h := http.Header{}
	answer.Headers(h, answer.Default, p, p)
	policies := list(t, h, "RateLimit-Policy")
	states := list(t, h, "RateLimit")
	if len(policies) != 2 || len(states) != 2 {
		t.Fatalf("%d policies and %d states, want 2 of each: %q", len(policies), len(states), h)
	}
	for i, item := range policies {
		q, w := parameter(t, item, "q"), parameter(t, item, "w")
		r, u := parameter(t, states[i], "r"), int64(-1)
		if _, ok := states[i].Params.Get("t"); ok || q > 0 {
			u = parameter(t, states[i], "t")
		}
		if q < 0 || w < 1 || r < 0 || u < -1 {
			t.Errorf("q=%d;w=%d, r=%d;t=%d: out of range in %q", q, w, r, u, h)
		}
		if faster(r, u, q, w) {
			t.Errorf("%q: a client that spreads r over t is faster than the limit", h)
		}
		if after, err := strconv.ParseInt(h.Get("Retry-After"), 10, 64); err == nil && u > after {
			t.Errorf("%q: Retry-After ends before the window", h)
		}
		if item.Value != states[i].Value {
			t.Errorf("policy %v has the state of %v", item.Value, states[i].Value)
		}
	}
	for _, name := range []string{"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"} {
		if _, err := strconv.ParseUint(h.Get(name), 10, 63); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	name, ok := policies[0].Value.(string)
	if !ok {
		t.Fatalf("%q is no String", h)
	}
	return name
}

// faster reports whether r in t seconds is more than q in w, as far as an Integer can say.
func faster(r, t, q, w int64) bool {
	const largest = 999_999_999_999_999
	if t < 0 || t == largest || r == 0 {
		return false
	}
	return new(big.Int).Mul(big.NewInt(r), big.NewInt(w)).Cmp(new(big.Int).Mul(big.NewInt(q), big.NewInt(t))) > 0
}

// The draft's example of what not to do is a quota of 10000 in 1000 seconds that is
// reported as 10000 in 10: a client may spread r evenly over t. Here it is never faster
// than the limit, whatever the algorithm and its state.
func TestSpreadingIsNeverFasterThanTheLimit(t *testing.T) {
	t.Parallel()
	limits := []headgate.Limit{
		headgate.Per(10000, 1000*time.Second), headgate.PerDay(20000), headgate.PerSecond(100).WithBurst(500),
		headgate.Per(10, 300*time.Millisecond), headgate.Per(3, 1500*time.Millisecond), headgate.Per(1, time.Hour), headgate.PerCalendar(200, headgate.Month, nil),
	}
	for _, limit := range limits {
		for _, algorithm := range []headgate.Algorithm{headgate.TokenBucket, headgate.LeakyBucket, headgate.FixedWindow, headgate.SlidingLog, headgate.SlidingWindow, headgate.SlidingBuckets} {
			if limit.Period() < 28*24*time.Hour { // a month is a fixed window
				limit = limit.WithAlgorithm(algorithm)
			}
			for _, left := range []int64{0, 1, 2, limit.Burst() / 2, limit.Burst(), 2 * limit.Burst()} { // twice: after a grant
				for _, reset := range []time.Duration{0, 1, time.Second, 10 * time.Second, limit.Period()} {
					parsed(t, answer.Policy{Name: "x", Limit: limit, Decision: store.Decision{Allowed: true, Limit: limit.Burst(), Remaining: left, ResetAfter: reset}})
					parsed(t, answer.Policy{Name: "x", Limit: limit, Decision: store.Decision{Reason: headgate.ReasonLimited, Limit: limit.Burst(), Remaining: left, RetryAfter: reset, ResetAfter: reset}})
				}
			}
		}
	}
}

// Clients heed the stricter limit if they see those of the service as well.
func TestJoin(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		theirs []string
		want   string
	}{
		{nil, `"login";r=0;t=12`},
		{[]string{`"up";r=0;t=90;pk=:YQ==:`}, `"up";r=0;t=90;pk=:YQ==:, "login";r=0;t=12`},
		{[]string{`"up";r=0;t=90`, `"b";r=1`}, `"up";r=0;t=90, "b";r=1, "login";r=0;t=12`},
		{[]string{""}, `"login";r=0;t=12`},
		{[]string{`"up";r=0;t=90,`}, `"login";r=0;t=12`}, // malformed: it would spoil ours
		{[]string{`limit=1, remaining=0, reset=60`}, `"login";r=0;t=12`},
	} {
		h := http.Header{"X-Ratelimit-Limit": {"999"}, "X-Ratelimit-Remaining": {"998"}}
		if row.theirs != nil {
			h["Ratelimit"] = row.theirs
		}
		answer.Join(h, answer.Default, login)
		if got := h["Ratelimit"]; len(got) != 1 || got[0] != row.want {
			t.Errorf("%q gave %q, want %q", row.theirs, got, row.want)
		}
		if diff := cmp.Diff([][]string{{"5"}, {"0"}}, [][]string{h["X-Ratelimit-Limit"], h["X-Ratelimit-Remaining"]}); diff != "" {
			t.Error(diff)
		}
	}
	h := http.Header{"Ratelimit": {`"up";r=0;t=90`}}
	if answer.Join(h, answer.None, login); h.Get("RateLimit") != `"up";r=0;t=90` {
		t.Errorf("no fields of ours: %q", h)
	}
}

func list(t *testing.T, h http.Header, name string) []httpsfv.Item {
	t.Helper()
	members, err := httpsfv.UnmarshalList(h.Values(name))
	if err != nil {
		t.Fatalf("%s: %v in %q", name, err, h)
	}
	var items []httpsfv.Item
	for _, m := range members {
		item, ok := m.(httpsfv.Item)
		if !ok {
			t.Fatalf("%s: a member is no Item: %q", name, h)
		}
		items = append(items, item)
	}
	return items
}

func parameter(t *testing.T, item httpsfv.Item, name string) int64 {
	t.Helper()
	v, ok := item.Params.Get(name)
	n, integer := v.(int64)
	if !ok || !integer {
		t.Fatalf("parameter %s of %v is %v, want an Integer", name, item.Value, v)
	}
	return n
}

// FuzzHeaders: any values of a rule and a decision can be read back.
func FuzzHeaders(f *testing.F) {
	f.Add("login", int64(5), int64(60_000_000), int64(0), int64(1), int64(0))
	f.Add("gr\xffe\"\\", int64(1<<40), int64(1), int64(-1), int64(-5), int64(1<<62))
	f.Fuzz(func(t *testing.T, name string, n, period, remaining, retry, reset int64) {
		limit := headgate.Per(n, time.Duration(period))
		if !limit.Rule().Valid() {
			return
		}
		parsed(t, answer.Policy{Name: name, Limit: limit, Decision: store.Decision{
			Reason: headgate.ReasonLimited, Limit: limit.Burst(), Remaining: remaining,
			RetryAfter: time.Duration(retry), ResetAfter: time.Duration(reset),
		}})
	})
}

func TestDialectNames(t *testing.T) {
	t.Parallel()
	for _, d := range answer.Dialects() {
		if got, ok := answer.ParseDialect(d.String()); !ok || got != d {
			t.Errorf("ParseDialect(%q) = %v, %v", d, got, ok)
		}
	}
	if d, ok := answer.ParseDialect("GitHub"); ok {
		t.Errorf("ParseDialect of an unknown name gave %v", d)
	}
	if got := answer.Dialect(99).String(); got != "dialect(99)" {
		t.Errorf("String of an unknown dialect: %s", got)
	}
}

func TestHeadersAllocations(t *testing.T) {
	h := http.Header{}
	if n := testing.AllocsPerRun(100, func() {
		clear(h)
		answer.Headers(h, answer.Default, daily, login)
	}); n > 2 {
		t.Errorf("%v allocations, want at most 2", n)
	}
}

func BenchmarkHeaders(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		h := make(http.Header, 8)
		answer.Headers(h, answer.Default, daily, login)
		if len(h) != 7 {
			b.Fatal(h)
		}
	}
}

// Each gives the same fields as Headers.
func TestEachSaysWhatHeadersSays(t *testing.T) {
	text := []byte("kept")
	for _, d := range answer.Dialects() {
		for _, list := range [][]answer.Policy{nil, {login}, {daily, login}} {
			want := http.Header{}
			answer.Headers(want, d, list...)
			got := http.Header{}
			text = answer.Each(text[:4], d, list, func(name string, value []byte) { got.Set(name, string(value)) })
			if diff := cmp.Diff(want, got); diff != "" || string(text[:4]) != "kept" {
				t.Errorf("%s, %d policies (-Headers +Each):\n%s", d, len(list), diff)
			}
		}
	}
	list := []answer.Policy{daily, login}
	total := 0
	if n := testing.AllocsPerRun(100, func() {
		text = answer.Each(text[:0], answer.Default, list, func(_ string, value []byte) { total += len(value) })
	}); n != 0 || total == 0 {
		t.Errorf("%v allocations for %d bytes, want 0", n, total)
	}
}

func TestContentIsWhatRefuseSends(t *testing.T) {
	t.Parallel()
	for _, refusal := range []answer.Refusal{
		{Policies: []answer.Policy{daily, login}}, {Body: "no"}, {Body: "{}", ContentType: "application/json"}, {},
	} {
		w := httptest.NewRecorder()
		answer.Refuse(w, nil, refusal)
		body, contentType := refusal.Content()
		if w.Body.String() != string(body) || w.Header().Get("Content-Type") != contentType {
			t.Errorf("%q of %q, want %q of %q", body, contentType, w.Body, w.Header().Get("Content-Type"))
		}
	}
}
