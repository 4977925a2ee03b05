package simulate_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/replay/accesslog"
	"github.com/headgate/headgate/internal/replay/simulate"
)

// hit is one request of a log: when, in seconds after noon, who and what.
type hit struct {
	at           int
	client, path string
}

// hits draws requests of few clients for few paths, in the order of time.
func hits(t *rapid.T, most int) []hit {
	list := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) hit {
		return hit{
			at:     rapid.IntRange(0, 150).Draw(t, "at"),
			client: rapid.SampledFrom([]string{"192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4"}).Draw(t, "client"),
			path:   rapid.SampledFrom([]string{"/a", "/b", "/a/c"}).Draw(t, "path"),
		}
	}), 1, most).Draw(t, "hits")
	slices.SortStableFunc(list, func(a, b hit) int { return cmp.Compare(a.at, b.at) })
	return list
}

// logOf writes requests as a log.
func logOf(list []hit) simulate.Log {
	var b strings.Builder
	for _, h := range list {
		b.WriteString(line(noon.Add(time.Duration(h.at)*time.Second), h.client, "GET "+h.path))
	}
	return bytesLog("a.log", []byte(b.String()))
}

// limitsOf draws one to three rules of different algorithms.
func limitsOf(t *rapid.T) string {
	src := "domain: d\nlimits:\n"
	for i := range rapid.IntRange(1, 3).Draw(t, "rules") {
		src += fmt.Sprintf("  - {name: r%d, rate: %d/minute%s%s%s}\n", i, rapid.IntRange(1, 6).Draw(t, "n"),
			rapid.SampledFrom([]string{"", ", algorithm: fixed_window", ", algorithm: sliding_log", ", algorithm: leaky_bucket", ", cost: 2"}).Draw(t, "algorithm"),
			rapid.SampledFrom([]string{"", ", key: client_ip", ", key: [client_ip, path]"}).Draw(t, "key"),
			rapid.SampledFrom([]string{"", ", mode: shadow", ", percent: 50", ", match: {path: /a/**}"}).Draw(t, "more"))
	}
	return src
}

// count has the test's own counts of a log, a rule or a key.
type count struct {
	requests, allowed, refused, delayed, wouldRefuse int64
	first, last                                      int64 // refusals, shadowed ones too
	peak                                             int64
	keys                                             map[string]*count
}

func (c *count) key(name string) *count {
	if c.keys[name] == nil {
		if c.keys == nil {
			c.keys = map[string]*count{}
		}
		c.keys[name] = &count{}
	}
	return c.keys[name]
}

// refuse notes a refusal.
func (c *count) refuse(at int64) {
	if c.last = at; c.first == 0 {
		c.first = at
	}
}

// add counts a verdict of the simulation.
func (c *count) add(r simulate.Request, rules map[string]*count) {
	v := r.Verdict
	c.requests++
	switch {
	case !v.Allowed:
		c.refused++
	case v.Delay > 0:
		c.delayed++
		fallthrough
	default:
		c.allowed++
	}
	if v.WouldRefuse > 0 {
		c.wouldRefuse++
	}
	for _, one := range v.Results() {
		name := one.Rule.Name
		if rules[name] == nil {
			rules[name] = &count{}
		}
		for _, into := range []*count{rules[name], rules[name].key(one.Key)} {
			into.result(r.At, &one)
		}
	}
}

// result counts the decision of a rule.
func (c *count) result(at int64, r *engine.Result) {
	c.requests++
	shadowed := r.Outcome() == engine.ShadowRefused
	switch {
	case !r.Decision.Allowed:
		c.refused++
	case shadowed:
		c.wouldRefuse++
		fallthrough
	default:
		c.allowed++
	}
	if !r.Decision.Allowed || shadowed {
		c.refuse(at)
	}
	if r.Decision.Delay > 0 {
		c.delayed++
	}
	c.peak = max(c.peak, r.Decision.Limit-r.Decision.Remaining)
}

// micros is a time in microseconds, 0 for none.
func micros(t *time.Time) int64 {
	if t == nil {
		return 0
	}
	return t.UnixMicro()
}

// checkRule compares the report on a rule with what was counted.
func checkRule(t *rapid.T, got *simulate.RuleReport, want *count) {
	if want == nil {
		want = &count{}
	}
	refusedKeys := int64(0)
	for _, k := range want.keys {
		if k.first != 0 {
			refusedKeys++
		}
	}
	if got.Requests != want.requests || got.Allowed != want.allowed || got.Refused != want.refused || got.Delayed != want.delayed ||
		got.WouldRefuse != want.wouldRefuse || got.Keys != int64(len(want.keys)) || got.RefusedKeys != refusedKeys ||
		micros(got.FirstRefusal) != want.first || micros(got.LastRefusal) != want.last {
		t.Fatalf("rule %s: %+v, want %+v", got.Name, got, want)
	}
	outcomes := int64(0)
	for _, n := range got.Outcomes {
		outcomes += n
	}
	if outcomes != want.requests {
		t.Fatalf("rule %s: %d outcomes of %d requests", got.Name, outcomes, want.requests)
	}
	requests, refused, peak := int64(0), int64(0), int64(0)
	for _, k := range got.Top {
		requests, refused, peak = requests+k.Requests, refused+k.Refused, max(peak, k.Peak)
	}
	if requests != want.requests || refused != want.refused+want.wouldRefuse || peak != want.peak {
		t.Fatalf("rule %s: its keys have %d requests, %d refused, %d at most, want %+v", got.Name, requests, refused, peak, want)
	}
}

// The report says of a log and its rules what a count of the decisions, one by one, says.
func TestTallyIsACount(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		o := options(t, limitsOf(rt), logOf(hits(rt, 60)))
		o.Top = 100
		var all count
		rules := map[string]*count{}
		o.Decided = func(r simulate.Request) { all.add(r, rules) }
		r, err := simulate.Run(t.Context(), o)
		if err != nil {
			rt.Fatal(err)
		}
		if r.Requests != all.requests || r.Allowed != all.allowed || r.Refused != all.refused || r.Delayed != all.delayed || r.WouldRefuse != all.wouldRefuse {
			rt.Fatalf("%+v, want %+v", r, all)
		}
		for i := range r.Rules {
			checkRule(rt, &r.Rules[i], rules[r.Rules[i].Name])
		}
	})
}

// bucket is a token bucket counted in whole seconds: burst tokens of period seconds
// each, of which n come back a second.
type bucket struct{ used, last int }

// take takes a token at a time, if there is one.
func (b *bucket) take(at, n, period, burst int) bool {
	b.used = max(0, b.used-n*(at-b.last))
	b.last = at
	if b.used+period > burst*period {
		return false
	}
	b.used += period
	return true
}

// byHand decides about a log under one limit of n a minute for each client, and
// returns a letter for each request.
func byHand(list []hit, n int, algorithm string) string {
	var out strings.Builder
	buckets, windows, logs := map[string]*bucket{}, map[string]int{}, map[string][]int{}
	for _, h := range list {
		allowed := false
		switch algorithm {
		case "token_bucket":
			b := buckets[h.client]
			if b == nil {
				b = &bucket{}
				buckets[h.client] = b
			}
			allowed = b.take(h.at, n, 60, n)
		case "fixed_window":
			window := fmt.Sprint(h.client, h.at/60)
			if allowed = windows[window] < n; allowed {
				windows[window]++
			}
		case "sliding_log":
			recent := slices.DeleteFunc(logs[h.client], func(at int) bool { return at <= h.at-60 })
			if allowed = len(recent) < n; allowed {
				recent = append(recent, h.at)
			}
			logs[h.client] = recent
		}
		out.WriteByte(map[bool]byte{true: 'a', false: 'r'}[allowed])
	}
	return out.String()
}

// The verdicts of a simulation are those of a few lines that do the same by hand.
func TestVerdictsByHand(t *testing.T) {
	t.Parallel()
	for _, algorithm := range []string{"token_bucket", "fixed_window", "sliding_log"} {
		rapid.Check(t, func(rt *rapid.T) {
			list, n := hits(rt, 60), rapid.IntRange(1, 8).Draw(rt, "n")
			src := fmt.Sprintf("domain: d\nlimits: [{name: a, key: client_ip, rate: %d/minute, algorithm: %s}]\n", n, algorithm)
			if got, want := verdicts(t, options(t, src, logOf(list))), byHand(list, n, algorithm); got != want {
				rt.Fatalf("%s, %d a minute:\n%s, want\n%s", algorithm, n, got, want)
			}
		})
	}
}

// A comparison says what two simulations say, one of each set of rules.
func TestComparisonIsTwoRuns(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		log, before, after := logOf(hits(rt, 60)), limitsOf(rt), limitsOf(rt)
		var want simulate.Comparison
		old, fresh := verdicts(t, options(t, before, log)), verdicts(t, options(t, after, log))
		for i := range old {
			switch was, is := old[i] == 'r', fresh[i] == 'r'; {
			case was && is:
				want.SameRefused++
			case was:
				want.NewlyAllowed++
			case is:
				want.NewlyRefused++
			default:
				want.SameAllowed++
			}
		}
		o := options(t, before, log)
		o.Top = 100
		candidate := side(t, after)
		o.Candidate = &candidate
		r, err := simulate.Run(t.Context(), o)
		if err != nil {
			rt.Fatal(err)
		}
		got := r.Compare
		if got.SameRefused != want.SameRefused || got.SameAllowed != want.SameAllowed || got.NewlyAllowed != want.NewlyAllowed || got.NewlyRefused != want.NewlyRefused {
			rt.Fatalf("%+v, want %+v", got, want)
		}
		if int(r.Refused) != strings.Count(old, "r") || int(got.New.Refused) != strings.Count(fresh, "r") {
			rt.Fatalf("%d and %d refused, want %s and %s", r.Refused, got.New.Refused, old, fresh)
		}
		checkReasons(rt, got)
	})
}

// checkReasons adds up what the rules of a comparison changed, and their keys.
func checkReasons(t *rapid.T, c *simulate.Comparison) {
	refused, allowed := int64(0), int64(0)
	for _, one := range c.By {
		refused, allowed = refused+one.NewlyRefused, allowed+one.NewlyAllowed
		ofKeys := int64(0)
		for _, k := range one.Top {
			ofKeys += k.NewlyRefused + k.NewlyAllowed
		}
		if ofKeys != one.NewlyRefused+one.NewlyAllowed || one.Keys != len(one.Top) || one.Rule == "" {
			t.Fatalf("the keys of a reason: %+v", one)
		}
	}
	if refused != c.NewlyRefused || allowed != c.NewlyAllowed {
		t.Fatalf("the reasons are of %d and %d requests: %+v", refused, allowed, c)
	}
}

// A request with several keys of a rule is reported under the key that refused.
func TestComparisonNamesTheKeyThatRefused(t *testing.T) {
	t.Parallel()
	log := strings.Repeat(line(noon, "192.0.2.1", "GET /x/b"), 2) + line(noon, "192.0.2.1", "GET /x/..%2fb")
	o := options(t, "domain: d\nlimits: [{name: old, key: path, rate: 9/minute}]\n", bytesLog("a.log", []byte(log)))
	candidate := side(t, "domain: d\nlimits: [{name: new, key: path, rate: 2/minute}]\n")
	o.Candidate = &candidate
	by := run(t, o).Compare.By
	if len(by) != 1 || len(by[0].Top) != 1 || by[0].Top[0].Key != "path=/x/b" {
		t.Errorf("%+v, want the key path=/x/b", by)
	}
	o.Candidate, o.Side = &o.Side, candidate
	candidate = side(t, "domain: d\nlimits: [{name: old, key: path, rate: 9/minute}]\n")
	o.Candidate = &candidate
	if by = run(t, o).Compare.By; len(by) != 1 || len(by[0].Top) != 1 || by[0].Top[0].Key != "path=/x/b" {
		t.Errorf("the other way round: %+v, want the key path=/x/b", by)
	}
}

// The busiest period of a key is what its requests cost, as each of them says.
func TestBusiestPeriodIsOfCosts(t *testing.T) {
	t.Parallel()
	format, err := accesslog.New(`$remote_addr [$time_iso8601] "$request" "$http_x_tokens"`, nil)
	if err != nil {
		t.Fatal(err)
	}
	log := ""
	for _, tokens := range []int{40, 40, 1} {
		log += fmt.Sprintf("192.0.2.1 [%s] \"GET / HTTP/1.1\" \"%d\"\n", noon.Format(time.RFC3339), tokens)
	}
	for _, algorithm := range []string{"fixed_window", "token_bucket"} {
		o := options(t, "domain: d\nlimits:\n  - {name: a, key: client_ip, rate: 50/minute, algorithm: "+algorithm+", cost: {from: \"header:X-Tokens\"}}\n", bytesLog("a.log", []byte(log)))
		o.Format = format
		r := run(t, o)
		if r.Refused != 1 || r.Rules[0].Top[0].Busiest != 81 {
			t.Errorf("%s: %d refused, %+v", algorithm, r.Refused, r.Rules[0].Top)
		}
	}
}
