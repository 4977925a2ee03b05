//go:build !race

// With the race detector, sync.Pool drops objects on purpose.

package engine_test

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// many returns n limits that all apply to /a.
func many(n int) string {
	var b strings.Builder
	b.WriteString("domain: api\nlimits:\n")
	for i := range n {
		fmt.Fprintf(&b, "  - {name: limit-%d, match: {path: /a}, key: [user], rate: %d000000/minute}\n", i, i+1)
	}
	return b.String()
}

func TestDecideAllocatesNothing(t *testing.T) {
	for _, n := range []int{0, 1, 2, 8} {
		text := many(max(n, 1))
		r := request{"path": "/a", "user": "ann"}
		if n == 0 {
			r["path"] = "/b"
		}
		e := engine.New(memory.New(), parse(t, text))
		q := ask(r, 0)
		got := testing.AllocsPerRun(1000, func() {
			v, err := e.Decide(context.Background(), q)
			if err != nil || !v.Allowed || len(v.Results()) != n {
				t.Fatalf("Decide: %+v, %v", v, err)
			}
			v.Release()
		})
		if got != 0 {
			t.Errorf("%d limits: %v allocations, want 0", n, got)
		}
	}
}

// A mark is read off the decision: it costs no memory either.
func TestMarksAllocateNothing(t *testing.T) {
	for _, rule := range []string{"rate: 1000000000/day, soft: 1%", "rate: 1/day, on_limit: pass"} {
		e := engine.New(memory.New(), parse(t, "domain: api\nlimits: [{name: one, key: user, "+rule+"}]"))
		q := ask(request{"user": "ann"}, 0)
		q.Cost = 20_000_000
		got := testing.AllocsPerRun(10, func() {
			v, err := e.Decide(context.Background(), q)
			if err != nil || v.Marked != 1 {
				t.Fatalf("Decide: %+v, %v", v, err)
			}
			v.Release()
		})
		if got != 0 {
			t.Errorf("%s: %v allocations, want 0", rule, got)
		}
	}
}

// Neither does a share: the owner's name is kept where the key is.
func TestSharesAllocateNothing(t *testing.T) {
	e := engine.New(memory.New(), parse(t, "domain: api\nlimits: [{name: one, rate: 1000000/second, fair: {among: user, weights: {by: plan, pro: 5}}}, {name: two, key: user, rate: 100000000/minute}]"))
	for _, want := range []store.Reason{store.ReasonOK, store.ReasonShare} {
		q := ask(request{"user": "ann", "plan": "pro"}, 0)
		for want == store.ReasonShare && decide(t, e, q).Allowed {
			q.Cost = 100_000
		}
		got := testing.AllocsPerRun(50, func() {
			v, err := e.Decide(context.Background(), q)
			if err != nil || v.Results()[0].Decision.Reason != want {
				t.Fatalf("Decide: %+v, %v", v, err)
			}
			v.Release()
		})
		if got != 0 {
			t.Errorf("%s: %v allocations, want 0", want, got)
		}
	}
}

func TestDecideAllAllocatesNothing(t *testing.T) {
	for _, n := range []int{1, 3} {
		e := engine.New(memory.New(), parse(t, many(n)))
		r := request{"path": "/a", "user": "ann"}
		q := engine.Query{Domain: "api", Parts: []engine.Part{{Request: r, Cost: 1}, {Request: r, Cost: 1}}}
		got := testing.AllocsPerRun(1000, func() {
			v, err := e.Decide(context.Background(), q)
			if err != nil || !v.Allowed || len(v.Parts()) != 2 || len(v.Parts()[1].Results()) != n {
				t.Fatalf("DecideAll: %+v, %v", v, err)
			}
			v.Release()
		})
		if got != 0 {
			t.Errorf("%d limits: %v allocations, want 0", n, got)
		}
	}
}

func BenchmarkDecide(b *testing.B) {
	for _, n := range []int{1, 2, 3, 8} {
		b.Run(fmt.Sprintf("limits=%d", n), func(b *testing.B) {
			e := engine.New(memory.New(), parse(b, many(n)))
			q := ask(request{"path": "/a", "user": "ann"}, 0)
			b.ReportAllocs()
			for b.Loop() {
				v, err := e.Decide(context.Background(), q)
				if err != nil || len(v.Results()) != n {
					b.Fatalf("Decide: %+v, %v", v, err)
				}
				v.Release()
			}
		})
	}
}

func BenchmarkDecideAll(b *testing.B) {
	for _, n := range []int{1, 3} {
		b.Run(fmt.Sprintf("parts=%d", n), func(b *testing.B) {
			e := engine.New(memory.New(), parse(b, many(1)))
			q := engine.Query{Domain: "api"}
			for i := range n {
				q.Parts = append(q.Parts, engine.Part{Request: request{"path": "/a", "user": fmt.Sprint("ann", i)}, Cost: 1})
			}
			b.ReportAllocs()
			for b.Loop() {
				v, err := e.Decide(context.Background(), q)
				if err != nil || len(v.Parts()[n-1].Results()) != 1 {
					b.Fatalf("DecideAll: %+v, %v", v, err)
				}
				v.Release()
			}
		})
	}
}

func BenchmarkRefused(b *testing.B) {
	e := engine.New(memory.New(), parse(b, "domain: api\nlimits: [{name: user, key: [user], rate: 1/year}, {name: seen, key: [user], rate: 1/year, mode: shadow}]"))
	q := ask(user("ann"), 0)
	b.ReportAllocs()
	for b.Loop() {
		v, _ := e.Decide(context.Background(), q)
		v.Release()
	}
}

func BenchmarkDecideBatch(b *testing.B) {
	e := engine.New(&pipelined{Store: memory.New()}, parse(b, many(1)))
	q := ask(request{"path": "/a", "user": "ann"}, 0)
	b.ReportAllocs()
	for b.Loop() {
		e.DecideBatch(context.Background(), 10, func(int) engine.Query { return q }, func(int, *engine.Verdict, error) {})
	}
}

func TestExceptionsAllocateNothing(t *testing.T) {
	rs := parse(t, "domain: api\nlimits: [{name: user, key: [user], rate: 1000000/minute}]")
	for name, exception := range map[string]engine.Exception{
		"limit": with(t, rs, "user", "ann", "2000000/minute", 60), "ban": banned(rs, "user", "ann", 60), "other": banned(rs, "user", "bob", 60),
	} {
		e := engine.New(memory.New(), rs)
		e.SetExceptions(engine.NewExceptions([]engine.Exception{exception}, at(0)))
		q := ask(user("ann"), 0)
		got := testing.AllocsPerRun(1000, func() {
			v, err := e.Decide(context.Background(), q)
			if err != nil || v.Allowed == (name == "ban") {
				t.Fatalf("Decide: %+v, %v", v, err)
			}
			v.Release()
		})
		if got != 0 {
			t.Errorf("%s: %v allocations, want 0", name, got)
		}
	}
}

func TestChargedDescriptorsAllocateNothing(t *testing.T) {
	e := engine.New(memory.New(), parse(t, `
domain: api
compat: envoy
descriptors:
  - {key: user, rate_limit: {unit: hour, requests_per_unit: 500}}
  - {key: none, rate_limit: {unit: hour, requests_per_unit: 0}}
`))
	part := func(key string) engine.Part {
		return engine.Part{Request: &rules.Descriptor{Entries: []rules.Entry{{Key: key, Value: "ann"}}}, Cost: 1}
	}
	q := engine.Query{Domain: "api", Parts: []engine.Part{part("user"), part("none")}}
	got := testing.AllocsPerRun(1000, func() {
		v, err := e.Decide(context.Background(), q)
		if err != nil || v.Allowed || len(v.Parts()[0].Results()) != 1 {
			t.Fatalf("DecideAll: %+v, %v", v, err)
		}
		v.Release()
	})
	if got != 0 {
		t.Errorf("%v allocations, want 0", got)
	}
}

// Neither a zone that the request names, nor one that does not exist, costs an allocation.
func TestZonesAllocateNothing(t *testing.T) {
	e := engine.New(memory.New(), parse(t, ownZones))
	for _, zone := range []string{"Asia/Tokyo", "Europe/Berlin", "nowhere", strings.Repeat("Europe/", 1000)} {
		q := engine.Query{Domain: "api", Part: engine.Part{Request: request{"user": zone, "zone": zone}, Cost: 0}, At: noon}
		if got := testing.AllocsPerRun(1000, func() {
			v, err := e.Decide(context.Background(), q)
			if err != nil || len(v.Results()) != 1 {
				t.Fatal(v.Decision, err)
			}
			v.Release()
		}); got != 0 {
			t.Errorf("%.20q: %v allocations", zone, got)
		}
	}
}

// withRate is a request whose token has a rate.
type withRate struct{ rate string }

func (r *withRate) Attribute(a rules.Attribute) (string, bool) {
	if a.Name == "sub" {
		return "ann", true
	}
	return r.rate, a.Name == "rate"
}

func (r *withRate) ClientIP() netip.Addr { return netip.Addr{} }

// A rate that has been seen before costs no allocation, nor does one that is none.
func TestClaimedRatesAllocateNothing(t *testing.T) {
	e := engine.New(memory.New(), parse(t, withClaim("")))
	for _, rate := range []string{"500/minute", "5000/minute", "fast", strings.Repeat("9", 1000)} {
		q := engine.Query{Domain: "api", Part: engine.Part{Request: &withRate{rate}, Cost: 0}, At: start}
		if got := testing.AllocsPerRun(1000, func() {
			v, err := e.Decide(context.Background(), q)
			if err != nil || len(v.Results()) != 1 {
				t.Fatal(v.Decision, err)
			}
			v.Release()
		}); got != 0 {
			t.Errorf("%.20q: %v allocations", rate, got)
		}
	}
}

func TestListsAllocateNothing(t *testing.T) {
	e := engine.New(memory.New(), parse(t, listRules))
	for _, address := range []string{"10.2.3.4", "203.0.113.1", "192.0.2.1"} {
		var request rules.Request = by(address)
		if n := testing.AllocsPerRun(100, func() {
			v, err := e.Decide(context.Background(), engine.Query{Domain: "api", Part: engine.Part{Request: request, Cost: 1}, At: 1e6})
			if err != nil {
				t.Fatal(err)
			}
			v.Release()
		}); n > 0 {
			t.Errorf("%s: %v allocations", address, n)
		}
	}
}
