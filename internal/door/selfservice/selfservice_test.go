package selfservice_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/door/described"
	"github.com/headgate/headgate/internal/door/selfservice"
	"github.com/headgate/headgate/internal/request/client"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/rulefile"
	"github.com/headgate/headgate/store/memory"
)

var begin = time.Date(2026, 11, 21, 11, 0, 0, 0, time.UTC)

func newEngine(t testing.TB, limits string) *engine.Engine {
	t.Helper()
	rs, diagnostics := rulefile.Parse(rulefile.Source{Name: "test.yaml", Data: []byte("domain: api\nlimits:\n" + limits)})
	if rs == nil {
		t.Fatal(diagnostics)
	}
	return engine.New(memory.New(memory.WithClock(func() time.Time { return begin })), rs)
}

// caller has these attributes, in pairs: name, value.
func caller(t testing.TB, attributes ...string) *described.Request {
	t.Helper()
	clients, err := client.New(client.Config{})
	if err != nil {
		t.Fatal(err)
	}
	q := new(described.Request)
	for i := 0; i < len(attributes); i += 2 {
		a, err := rules.ParseAttribute(attributes[i])
		if err != nil {
			t.Fatal(err)
		}
		if must := q.Add(a, attributes[i+1], clients); must != "" {
			t.Fatal(must)
		}
	}
	return q
}

// twice is a caller that sends another key too.
type twice struct{ *described.Request }

func (q twice) Read(a rules.Attribute) (value string, ok, unclear bool) {
	value, ok = q.Attribute(a)
	return value, ok, a.Kind == rules.Header
}

func TestOf(t *testing.T) {
	e := newEngine(t, `
  - {name: exports, match: {path: /exports}, key: user, concurrency: 3}
  - {name: free, key: user, rate: unlimited}
  - {name: paced, key: user, rate: 1/second, burst: 4, algorithm: leaky_bucket}
  - {name: costly, key: user, rate: 5/hour, algorithm: fixed_window, cost: 3}
  - {name: per-key, key: "header:X-Key", rate: 9/hour, algorithm: fixed_window}
`)
	for range 2 {
		v, err := e.Decide(t.Context(), engine.Query{Domain: "api", Part: engine.Part{Request: caller(t, "user", "ann", "path", "/exports", "header:X-Key", "b"), Cost: 1}, At: begin.UnixMicro()})
		if err != nil {
			t.Fatal(err)
		}
		v.Release()
	}
	a, err := selfservice.Of(t.Context(), e, "api", twice{caller(t, "user", "ann", "header:X-Key", "a")}, begin.UnixMicro())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, l := range a.Limits {
		got = append(got, fmt.Sprintf("%s %d of %d in %dms", l.Name, l.Remaining, l.Limit, l.Period))
		if l.RetryAfter == nil {
			t.Errorf("%+v", l)
		}
	}
	// What is unclear has a limit of its own, and the second costly request did not fit.
	want := "exports 2 of 3 in 0ms|paced 3 of 4 in 1000ms|costly 2 of 5 in 3600000ms|per-key 9 of 9 in 3600000ms"
	if text := strings.Join(got, "|"); text != want {
		t.Errorf("%s\nwant\n%s", text, want)
	}
	if costly := a.Limits[2]; *costly.RetryAfter != 3_600_000 {
		t.Errorf("another request of cost 3 does not fit: %+v", costly)
	}
	if paced := a.Limits[1]; *paced.RetryAfter != 0 {
		t.Errorf("a request is accepted now, to wait for its turn: %+v", paced)
	}
	if _, err := selfservice.Of(t.Context(), e, "nowhere", caller(t), begin.UnixMicro()); !errors.Is(err, selfservice.ErrUnknownDomain) {
		t.Error(err)
	}
}

// A caller with very many limits costs one call of the store of a limited size.
// Of a limit with headroom, callers read what is left for their class, and how much of all is used.
func TestOfAClass(t *testing.T) {
	e := newEngine(t, `
  - {name: per-user, key: user, rate: 10/hour, algorithm: sliding_log, headroom: {high: 30%}}
priorities:
  classes: [high, default]
  rules: [{match: {attributes: {plan: paid}}, class: high}]
`)
	low, high := caller(t, "user", "ann"), caller(t, "user", "ann", "plan", "paid")
	for range 7 {
		v, err := e.Decide(t.Context(), engine.Query{Domain: "api", Part: engine.Part{Request: low, Cost: 1}, At: begin.UnixMicro()})
		if err != nil || !v.Allowed {
			t.Fatal(v, err)
		}
		v.Release()
	}
	for of, want := range map[*described.Request]string{low: "3600000 ms, 7 used, 0 left", high: "0 ms, 7 used, 3 left"} {
		a, err := selfservice.Of(t.Context(), e, "api", of, begin.UnixMicro())
		if err != nil {
			t.Fatal(err)
		}
		if l := a.Limits[0]; fmt.Sprintf("%d ms, %d used, %d left", *l.RetryAfter, l.Used, l.Remaining) != want {
			t.Errorf("%+v, want %s", l, want)
		}
	}
}

func TestManyLimits(t *testing.T) {
	var limits strings.Builder
	for i := range 130 {
		fmt.Fprintf(&limits, "  - {name: r%d, match: {path: /%d}, key: user, rate: 5/hour}\n", i, i)
	}
	a, err := selfservice.Of(t.Context(), newEngine(t, limits.String()), "api", caller(t, "user", "ann"), 0)
	if err != nil || len(a.Limits) != 100 || a.LeftOff != 30 || a.Limits[0].Reset != nil {
		t.Errorf("%d, %d, %v", len(a.Limits), a.LeftOff, err)
	}
}

func BenchmarkOf(b *testing.B) {
	for _, n := range []int{10, 10_000} {
		b.Run(fmt.Sprintf("rules=%d", n), func(b *testing.B) {
			var limits strings.Builder
			for i := range n {
				match := ""
				if i >= 10 {
					match = fmt.Sprintf("match: {headers: {X-Plan: p%d}}, ", i)
				}
				fmt.Fprintf(&limits, "  - {name: r%d, %skey: user, rate: 5/hour}\n", i, match)
			}
			e, q := newEngine(b, limits.String()), caller(b, "user", "ann")
			for b.Loop() {
				if a, err := selfservice.Of(b.Context(), e, "api", q, begin.UnixMicro()); err != nil || len(a.Limits) != 10 {
					b.Fatal(len(a.Limits), err)
				}
			}
		})
	}
}
