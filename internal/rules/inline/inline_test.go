package inline_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/inline"
	"github.com/headgate/headgate/internal/rules/rate"
	"github.com/headgate/headgate/internal/rules/yamltext"
)

// asked makes a request of fields such as limit=5/minute, in which numbers and booleans
// are written without quotes.
func asked(t testing.TB, fields ...string) *inline.Request {
	t.Helper()
	r := &inline.Request{}
	for i, field := range fields {
		name, text, _ := strings.Cut(field, "=")
		f := inline.Field{Name: name, Kind: yamltext.Text, Text: text, At: i + 1}
		switch {
		case text == "true" || text == "false":
			f.Kind = yamltext.Bool
		case strings.Trim(text, "-0123456789.e") == "":
			f.Kind = yamltext.Number
		}
		if err := r.Add(f); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func open() *inline.Limits {
	b := inline.Default()
	b.Enabled = true
	return inline.New(b)
}

// Every limit that a rule can have, except concurrency, can be asked for, and means the
// same.
func TestLimits(t *testing.T) {
	t.Parallel()
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	l := open()
	for _, row := range []struct {
		fields []string
		want   headgate.Limit
	}{
		{[]string{"limit=5/minute"}, headgate.Per(5, time.Minute)},
		{[]string{"limit=0/minute"}, headgate.Per(0, time.Minute)},
		{[]string{"limit=5/minute", "burst=20"}, headgate.Per(5, time.Minute).WithBurst(20)},
		{[]string{"burst=20", "limit=5/60s", "algorithm=token_bucket"}, headgate.Per(5, time.Minute).WithBurst(20)},
		{[]string{"limit=60/minute", "refill_every=10s"}, headgate.Per(60, time.Minute).WithRefillEvery(10 * time.Second)},
		{[]string{"limit=5/minute", "algorithm=leaky_bucket", "delay_after=2"}, headgate.Per(5, time.Minute).WithAlgorithm(headgate.LeakyBucket).WithDelayAfter(2)},
		{[]string{"limit=5/minute", "algorithm=sliding_window"}, headgate.Per(5, time.Minute).WithAlgorithm(headgate.SlidingWindow)},
		{[]string{"limit=5/minute", "algorithm=sliding_log", "count_denied=true"}, headgate.Per(5, time.Minute).WithAlgorithm(headgate.SlidingLog).WithRefusalsCounted()},
		{[]string{"limit=5/minute", "algorithm=sliding_buckets", "buckets=6", "edge=strict"}, headgate.Per(5, time.Minute).WithAlgorithm(headgate.SlidingBuckets).WithBuckets(6, headgate.EdgeStrict)},
		{[]string{"limit=5/minute", "algorithm=fixed_window", "anchor=first_request"}, headgate.Per(5, time.Minute).WithAlgorithm(headgate.FixedWindow).WithAnchor(headgate.AnchorFirstRequest)},
		{[]string{"limit=5/day", "algorithm=fixed_window", "timezone=Europe/Berlin"}, headgate.PerCalendar(5, headgate.Day, berlin).WithZone(berlin)},
	} {
		rule, err := l.Rule(asked(t, row.fields...))
		if err != nil {
			t.Errorf("%v: %v", row.fields, err)
			continue
		}
		if got := rule.Limit.String(); got != row.want.String() || rule.Scope != inline.Scope || rule.Index != rules.IndexInline {
			t.Errorf("%v: %s in %s, want %s", row.fields, got, rule.Scope, row.want)
		}
	}
}

// Mistakes name the field, what is wrong, and the nearest word.
func TestMistakes(t *testing.T) {
	t.Parallel()
	l := open()
	for _, row := range []struct {
		fields []string
		at     int
		want   string
	}{
		{nil, 0, `"limit" is missing: want N/unit, such as "5/minute"`},
		{[]string{"burst=5"}, 0, `"limit" is missing: want N/unit, such as "5/minute"`},
		{[]string{"burst=20", "limit=5"}, 2, `"limit": invalid rate "5": want N/unit, such as 5/minute`},
		{[]string{"limit=5/minut"}, 1, `"limit": unknown unit "minut", did you mean "minute"?`},
		{[]string{"limit=true"}, 1, `"limit" must be N/unit, such as 5/minute, not true or false`},
		{[]string{"limit=unlimited"}, 1, `"limit" must not be unlimited`},
		{[]string{"limit=5/minute", "algorithm=sliding_windov"}, 2, `unknown algorithm "sliding_windov", did you mean "sliding_window"?`},
		{[]string{"limit=5/minute", "algorithm=concurrency"}, 2, `unknown algorithm "concurrency"; use one of token_bucket, leaky_bucket, fixed_window, sliding_log, sliding_window, sliding_buckets`},
		{[]string{"limit=5/minute", "algorithm=sliding_window", "burst=9"}, 3, `"burst" does not apply to sliding_window; only token_bucket and leaky_bucket have a burst`},
		{[]string{"limit=5/minute", "refill_every=10"}, 2, `"refill_every" must be`},
		{[]string{"limit=5/minute", "refill_every=s"}, 2, `"refill_every": invalid duration "s": want a number and a unit, such as 250ms or 2m`},
		{[]string{"limit=5/minute", "refill_every=25h"}, 2, `"refill_every": 25h must be from 1ms to 24h`},
		{[]string{"limit=5/minute", "refill_every=2m"}, 2, `"refill_every": a refill adds more tokens than the burst`},
		{[]string{"limit=5/minute", "refill_every=1s", "algorithm=sliding_log"}, 2, `"refill_every" does not apply to sliding_log; only token_bucket refills in steps`},
		{[]string{"limit=5/minute", "burst=-1"}, 2, `"burst" must be from 1 to 1099511627776, not -1`},
		{[]string{"limit=5/minute", "burst=1e3"}, 2, `"burst" must be a whole number in decimal digits, not "1e3"`},
		{[]string{"limit=5/minute", "burst=ten"}, 2, `"burst" must be a whole number, not text`},
		{[]string{"limit=5/day", "algorithm=fixed_window", "timezone=Europe/Berlon"}, 3, `unknown timezone "Europe/Berlon", did you mean "Europe/Berlin"?`},
		{[]string{"limit=5/minute", "count_denied=yes"}, 2, `"count_denied" `},
	} {
		_, err := l.Rule(asked(t, row.fields...))
		var wrong *inline.Error
		if !errors.As(err, &wrong) || errors.Is(err, inline.ErrDenied) || !strings.HasPrefix(err.Error(), row.want) || wrong.At != row.at {
			t.Errorf("%v: %+v, want at %d: %s", row.fields, wrong, row.at, row.want)
		}
	}
	if err := new(inline.Request).Add(inline.Field{Name: "limit", Text: strings.Repeat("5", 65), At: 7}); err == nil || err.Error() != `"limit" is longer than 64 bytes` {
		t.Error(err)
	}
	if _, err := l.Key(""); err == nil || errors.Is(err, inline.ErrDenied) {
		t.Error(err)
	}
}

// What the operator does not allow is refused with the name of the setting.
func TestBounds(t *testing.T) {
	t.Parallel()
	b := inline.Default()
	b.Enabled = true
	b.MaxRate, b.MaxPeriod = rate.Rate{N: 100, Period: time.Second}, time.Hour
	b.MaxBurst = 5000
	l := inline.New(b)
	for _, row := range []struct{ fields, want string }{
		{"limit=100/second", ""},
		{"limit=101/second", "inline_limits.max_rate"},
		{"limit=1/9999us", "inline_limits.max_rate"},
		{"limit=1/10ms", ""},
		{"limit=5000/hour", ""},
		{"limit=5001/hour", "inline_limits.max_burst"},
		{"limit=5/hour burst=5000", ""},
		{"limit=5/hour burst=5001", `"burst" 5001 is above the server's inline_limits.max_burst, 5000`},
		{"limit=5001/hour algorithm=fixed_window", "inline_limits.max_burst"},
		{"limit=1000/hour algorithm=sliding_log", ""},
		{"limit=1001/hour algorithm=sliding_log", `"limit" 1001 is above 1000, the most for a sliding_log`},
		{"limit=5/3601s", "inline_limits.max_period"},
		{"limit=5/day algorithm=fixed_window", "inline_limits.max_period"},
	} {
		_, err := l.Rule(asked(t, strings.Fields(row.fields)...))
		switch {
		case row.want == "" && err != nil:
			t.Errorf("%s: %v", row.fields, err)
		case row.want != "" && (!errors.Is(err, inline.ErrDenied) || !strings.Contains(err.Error(), row.want)):
			t.Errorf("%s: %v, want %s", row.fields, err, row.want)
		}
	}
	for id, allowed := range map[string]bool{strings.Repeat("i", 256): true, strings.Repeat("i", 257): false} {
		key, err := l.Key(id)
		if parts, ok := rules.SplitKey(key); allowed && (err != nil || !ok || len(parts) != 1 || parts[0].Value != id) {
			t.Errorf("%s: %q, %v", id, key, err)
		}
		if !allowed && (!errors.Is(err, inline.ErrDenied) || !strings.Contains(err.Error(), "more than 256")) {
			t.Errorf("%s: %v", id, err)
		}
	}
}

// Bounds are named as operators write them.
func TestBoundsAreReadable(t *testing.T) {
	t.Parallel()
	b := inline.Default()
	b.Enabled, b.MaxPeriod, b.MaxRate = true, 30*24*time.Hour, rate.Rate{N: 10, Period: 90 * time.Minute}
	l := inline.New(b)
	for fields, want := range map[string]string{
		"limit=5/31d": `the period of "limit" is longer than the server's inline_limits.max_period, 30d`,
		"limit=11/h":  `"limit" is above the server's inline_limits.max_rate, 10 per 1h30m`,
	} {
		if _, err := l.Rule(asked(t, fields)); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", fields, err, want)
		}
	}
}

// Nothing is allowed unless the operator says so.
func TestOffByDefault(t *testing.T) {
	t.Parallel()
	for _, l := range []*inline.Limits{nil, inline.New(inline.Default()), inline.New(inline.Bounds{})} {
		_, err := l.Rule(asked(t, "limit=5/minute"))
		_, keyErr := l.Key("ann")
		for _, err := range []error{err, keyErr} {
			if !errors.Is(err, inline.ErrDenied) || !strings.Contains(err.Error(), "inline_limits.enabled") {
				t.Error(err)
			}
		}
	}
}

// A limit that was asked for before is found without parsing and without allocation, and
// the cache does not keep the texts of requests.
func TestCache(t *testing.T) {
	l := open()
	r := asked(t, "limit=5/day", "algorithm=fixed_window", "timezone=Europe/Berlin")
	first, err := l.Rule(r)
	if err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(100, func() {
		if again, _ := l.Rule(r); again != first {
			t.Error("parsed again")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	// Any number of limits: the cache stays small and right.
	for n := range 5000 {
		text := fmt.Sprintf("%d/hour", n)
		rule, err := l.Rule(asked(t, "limit="+text))
		if err != nil || rule.Limit.N() != int64(n) {
			t.Fatal(text, rule, err)
		}
	}
}

// Concurrent callers with more limits than fit get the rules that they ask for.
func TestConcurrentCallers(t *testing.T) {
	t.Parallel()
	l := open()
	var wait sync.WaitGroup
	for g := range 8 {
		wait.Go(func() {
			for i := range 2000 {
				n := int64((i*7 + g) % 3000)
				rule, err := l.Rule(asked(t, fmt.Sprintf("limit=%d/hour", n)))
				if err != nil || rule.Limit.N() != n {
					t.Error(n, rule, err)
					return
				}
			}
		})
	}
	wait.Wait()
}

// The names of fields are those of rules.
func TestFields(t *testing.T) {
	t.Parallel()
	names := inline.Fields()
	for _, name := range []string{"limit", "algorithm", "burst", "buckets", "timezone", "count_denied"} {
		if !slices.Contains(names, name) {
			t.Errorf("no %s", name)
		}
	}
	if slices.Contains(names, "rate") || slices.Contains(names, "period") {
		t.Error(names)
	}
}
