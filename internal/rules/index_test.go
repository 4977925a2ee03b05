package rules_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/rules"
)

// pick returns one of the words.
func pick(r *rand.Rand, words ...string) string { return words[r.IntN(len(words))] }

// randomMatch writes a match with a few conditions out of few values, so that
// many rules overlap.
func randomMatch(r *rand.Rand) string {
	var parts []string
	if r.IntN(4) == 0 {
		parts = append(parts, "method: ["+pick(r, "GET", "POST", "\"!GET\"", "GET, PUT")+"]")
	}
	if r.IntN(3) > 0 {
		var paths []string
		for range 1 + r.IntN(3) {
			path := pick(r, "", "", "", "!")
			for range r.IntN(4) {
				path += "/" + pick(r, "a", "b", "c", "*", "**", "a*", "*b", "B*c*", "Long-*-name", "long-x*")
			}
			if len(path) < 2 {
				path += "/"
			}
			paths = append(paths, fmt.Sprintf("%q", path))
		}
		parts = append(parts, "path: ["+strings.Join(paths, ", ")+"]")
		if r.IntN(4) == 0 {
			parts = append(parts, "path_case: sensitive")
		}
	}
	if r.IntN(4) == 0 {
		parts = append(parts, "host: ["+pick(r, "a.example", "\"*.a.example\"", "\"*.example\", b.test", "\"!a.example\"")+"]")
	}
	if r.IntN(4) == 0 {
		parts = append(parts, "client_ip: ["+pick(r, "10.0.0.0/8", "10.1.0.0/16, 10.0.0.1", "\"!10.0.0.0/8\"", "\"::/0\"", "0.0.0.0/0, \"!10.1.0.0/16\"")+"]")
	}
	if r.IntN(3) == 0 {
		parts = append(parts, "attributes: {"+pick(r, "x", "y")+": "+pick(r, "[1, 2]", "1", "\"*\"", "[1, \"2*\"]", "\"a*\"", "\"*ab*bc\"", "[\"*-gold\", \"pl*n-*\"]", "\"Plan*\"", "{not: \"a*\"}", "{present: true}", "{not: 1}", "{present: false}")+"}")
	}
	if r.IntN(4) == 0 {
		parts = append(parts, pick(r, "headers: {X-P: ", "cookies: {s: ")+pick(r, "abc", "[\"a*\", \"*bc\"]", "\"*b*c*\"", "[\"*lan-*\", gold]", "\"gold*\"")+"}")
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// randomRequest makes a request of few values, of which some may be read in several ways.
func randomRequest(r *rand.Rand) *fakeRequest {
	req := &fakeRequest{attributes: map[rules.Attribute]string{}}
	set := func(a rules.Attribute, values ...string) {
		if v := pick(r, values...); v != "none" {
			req.attributes[a] = v
		}
	}
	set(rules.Attribute{Kind: rules.Method}, "GET", "post", "PUT", "none")
	path := ""
	for range r.IntN(5) {
		path += "/" + pick(r, "a", "b", "c", "ab", "", ".", "..", "A", "a%2fb", "c;x", "bcc", "long-x-name", "LONG-XY-Name", "long-%78")
	}
	set(rules.Attribute{Kind: rules.Path}, path, path, path, path, "none")
	set(rules.Attribute{Kind: rules.Host}, "a.example", "x.a.example:80", "B.test", "example", "none")
	set(rules.Attribute{Kind: rules.Header, Name: "X-P"}, "abc", "none", "gold", "plan-a|abbc", "A|gold-2|plan-")
	set(rules.Attribute{Kind: rules.Cookie, Name: "s"}, "abc", "none", "none", `"gold"`, `"a\142c"`, `j:"plan-x"`, `j:{"a":1}`, "xabc|gold")
	set(rules.Attribute{Name: "x"}, "1", "2", "", "none", "a", "plan-gold", "abc", "xabxbc", "21")
	set(rules.Attribute{Name: "y"}, "1", "none", "plan-gold", "Plan", "abbc")
	if address := pick(r, "10.0.0.1", "10.1.2.3", "11.0.0.1", "::1", "none"); address != "none" {
		req.client = netip.MustParseAddr(address)
	}
	return req
}

// The index finds what a look at every rule finds.
func TestIndexFindsWhatAScanFinds(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var hits, candidates, scanned, byPath, byValue int
	for range 60 {
		var src strings.Builder
		src.WriteString("domain: d\nlimits:\n")
		for i := range 1 + r.IntN(80) {
			fmt.Fprintf(&src, "  - {name: r%d, rate: 1/s, match: %s}\n", i, randomMatch(r))
		}
		set := parse(t, src.String())
		paths, values := set.Parts("d")
		byPath, byValue = byPath+paths, byValue+values
		var m rules.Matches
		for range 200 {
			one := randomRequest(r)
			var req rules.Request = one
			if r.IntN(2) == 0 {
				req = manyValued{one}
			}
			set.Match("d", req, &m)
			var want []string
			for _, rule := range set.Rules() {
				if rules.AppliesAnyway(rule, req) {
					want = append(want, rule.Name)
				}
			}
			var got []string
			for _, c := range m.Checks {
				got = append(got, c.Rule.Name)
			}
			hits, candidates, scanned = hits+len(got), candidates+m.Candidates(), scanned+len(set.Rules())
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Fatalf("%v:\ngot  %v\nwant %v\n%s", one, got, want, src.String())
			}
		}
	}
	if hits < 10_000 {
		t.Errorf("only %d hits: the requests and the rules hardly meet", hits)
	}
	if byPath < 100 || byValue < 100 {
		t.Errorf("only %d rules are filed under parts of paths, and %d under those of values", byPath, byValue)
	}
	t.Logf("%d hits, %d candidates of %d rules", hits, candidates, scanned)
}

// typicalRules are n rules of which a request for an API meets two or three.
func typicalRules(t testing.TB, n int) *rules.Ruleset {
	t.Helper()
	var src strings.Builder
	src.WriteString("domain: d\nlimits:\n  - {name: all, rate: 1000/s, key: client_ip}\n")
	for i := range n - 1 {
		path := fmt.Sprintf("/v1/tenant-%d/orders", i)
		if i%2 == 0 {
			path = fmt.Sprintf("/v1/tenant-%d/**", i)
		}
		if i%4 == 3 {
			path = fmt.Sprintf("/v1/*/resource-%d", i)
		}
		fmt.Fprintf(&src, "  - {name: r%d, rate: 5/minute, match: {method: [GET, POST], path: %s}, key: [client_ip, \"header:X-Api-Key\"]}\n", i, path)
	}
	return parse(t, src.String())
}

func typicalRequest(t testing.TB) *fakeRequest {
	t.Helper()
	return request(t, "method=GET path=/v1/tenant-4/orders host=api.example.com client_ip=198.51.100.7 header:X-Api-Key=0123456789abcdef")
}

// shape is a condition that many rules have, each with another number, and a request
// that meets number 7.
type shape struct{ name, condition, request string }

// shapes are those that docs/rules/rules.md says are indexed.
func shapes() []shape {
	return []shape{
		{"path", "path: /v1/tenant-%d/orders", "path=/v1/tenant-7/orders"},
		{"below", "path: /v1/tenant-%d/**", "path=/v1/tenant-7/orders/1"},
		{"star", "path: /v1/*/resource-%d", "path=/v1/any/resource-7"},
		{"deep", "path: /**/p%d", "path=/v1/any/p7"},
		{"middle", "path: /v1/**/p%d/**", "path=/v1/any/p7/orders"},
		{"shared ends", "path: /**/resource-%d/details", "path=/v1/any/resource-7/details"},
		{"part", "path: /v1/img-%d-*.png", "path=/v1/img-7-large.png"},
		{"ending", "path: \"/**/*.ext%d\"", "path=/v1/any/file.ext7"},
		{"exact case", "path: /**/P%d, path_case: sensitive", "path=/v1/any/P7"},
		{"several", "path: [/**/p%d, /**/q%[1]d, /r%[1]d]", "path=/v1/any/q7"},
		{"beginning", "headers: {X-Plan: \"plan%d-*\"}", "header:X-Plan=plan7-gold"},
		{"end", "cookies: {plan: \"*-plan%d\"}", "cookie:plan=gold-plan7"},
		{"inside", "attributes: {agent: \"*robot%d/*\"}", "agent=Mozilla/5.0(compatible;robot7/1.0;+http://robot.example/)"},
		{"globs and literals", "attributes: {plan: [\"*plan%d-*\", gold%[1]d, \"silver%[1]d*\"]}", "plan=gold7"},
		{"rarest", "path: /v1/**, method: GET, headers: {X-Plan: \"*-plan%d-*\"}", "path=/v1/x method=GET header:X-Plan=a-plan7-b"},
		{"host", "host: \"*.tenant%d.example.com\"", "host=x.tenant7.example.com"},
		{"network", "client_ip: 2001:db8:%x::/48", "client_ip=2001:db8:7::1"},
	}
}

// of returns n rules of that shape.
func (s shape) of(t testing.TB, n int) *rules.Ruleset {
	t.Helper()
	var src strings.Builder
	src.WriteString("domain: d\nlimits:\n")
	for i := range n {
		fmt.Fprintf(&src, "  - {name: r%d, rate: 5/minute, match: {"+s.condition+"}}\n", i, i)
	}
	return parse(t, src.String())
}

// docs/rules/rules.md: of thousands of rules no more are looked at than of ten, and none for a
// request that meets none of them.
func TestCandidatesDoNotGrowWithRules(t *testing.T) {
	t.Parallel()
	for _, s := range shapes() {
		for _, n := range []int{10, 2000} {
			set := s.of(t, n)
			var m rules.Matches
			set.Match("d", request(t, s.request), &m)
			if m.Candidates() > 10 || len(m.Checks) != 1 || m.Checks[0].Rule.Name != "r7" {
				t.Errorf("%s, %d rules: %d candidates, %d checks", s.name, n, m.Candidates(), len(m.Checks))
			}
			set.Match("d", request(t, "path=/about/us header:X-Plan=free cookie:plan=none agent=curl/8.5.0 plan=no host=a.b client_ip=::1 method=GET"), &m)
			if n > 10 && m.Candidates() > 0 {
				t.Errorf("%s, %d rules: %d candidates that do not apply", s.name, n, m.Candidates())
			}
		}
	}
}

// A text that is long, or full of parts, costs no more than to look at all rules.
func TestPartsOfHugeTexts(t *testing.T) {
	t.Parallel()
	set := shape{condition: "attributes: {agent: \"*aa*aa%d*\"}"}.of(t, 100)
	for _, text := range []string{strings.Repeat("a", 500), strings.Repeat("a", 1<<20), strings.Repeat("x", 1<<20)} {
		var m rules.Matches
		set.Match("d", request(t, "agent="+text+"aaaa7"), &m)
		if m.Candidates() > 100 || m.Collected() > 200 || len(m.Checks) != 1 {
			t.Errorf("%.5s, %d bytes: %d candidates, memory for %d, %d checks", text, len(text), m.Candidates(), m.Collected(), len(m.Checks))
		}
	}
}

// Rules that share their path are distinguished by another value.
func TestIndexTakesTheMostTellingCondition(t *testing.T) {
	for _, condition := range []string{
		"host: t%d.example.com", "host: \"*.t%d.example.com\"", "headers: {X-Tenant: t%d}",
		"client_ip: 2001:db8:%d::/48", "attributes: {tenant: [t%d, u%[1]d]}",
	} {
		var src strings.Builder
		src.WriteString("domain: d\nlimits:\n")
		for i := range 1000 {
			fmt.Fprintf(&src, "  - {name: r%d, rate: 1/s, match: {method: GET, path: /v1/**, "+condition+"}}\n", i, i)
		}
		set := parse(t, src.String())
		for _, words := range []string{
			"method=GET path=/v1/x host=t5.example.com header:X-Tenant=t5 client_ip=2001:db8:5::1 tenant=u5",
			"method=GET path=/v1/x host=a.t5.example.com header:X-Tenant=t5 client_ip=2001:db8:5::1 tenant=t5",
		} {
			var m rules.Matches
			set.Match("d", request(t, words), &m)
			if m.Candidates() > 1 {
				t.Errorf("%s: %d candidates", condition, m.Candidates())
			}
		}
		if got := matched(set, "d", request(t, "method=GET path=/v1/x host=a.t5.example.com header:X-Tenant=t5 client_ip=2001:db8:5::1 tenant=t5")); got != "r5" && condition != "host: t%d.example.com" {
			t.Errorf("%s: matched %q", condition, got)
		}
	}
}

func TestMatchAllocatesNothing(t *testing.T) {
	set := parse(t, `
domain: d
limits:
  - {name: a, rate: 1/s, key: [client_ip, path], match: {path: "/a/**", host: "*.example.com", client_ip: [10.0.0.0/8, "!10.2.0.0/16"]}}
  - {name: b, rate: 1/s, key: ["header:X-Api-Key", method], percent: 50, match: {attributes: {tenant: [acme, "b*"]}}}
  - {name: c, rate: 1/s, key: [host], match: {method: POST}}
  - {name: e, rate: 1/s, match: {client_ip: 10.0.0.0/8}}
`)
	for words, checks := range map[string]int{
		"method=POST path=/a/b host=x.example.com client_ip=10.1.1.1 header:X-Api-Key=k tenant=acme":         4,
		"method=POST path=/a/caf%C3%A9 host=x.example.com client_ip=10.1.1.1 header:X-Api-Key=k tenant=acme": 4,
		// The paths /a/c and, where a router cut /a or /a/b off, /a/b/c.
		"method=post path=/a/B/..%2fc/ host=X.Example.com:80 client_ip=::ffff:10.1.1.1 tenant=bcd header:X-Api-Key=" + strings.Repeat("k", 1000): 5,
	} {
		// The fake's own Attribute allocates where it prints the address.
		req := fixedClient{request(t, words)}
		var m rules.Matches
		if n := testing.AllocsPerRun(200, func() { set.Match("d", req, &m) }); n != 0 {
			t.Errorf("%s: %v allocations", words, n)
		}
		if len(m.Checks) != checks {
			t.Errorf("%s: %d checks", words, len(m.Checks))
		}
	}
}

// fixedClient has its client's address as text already.
type fixedClient struct{ *fakeRequest }

func (r fixedClient) Attribute(a rules.Attribute) (string, bool) {
	if a.Kind == rules.ClientIP {
		return "10.1.1.1", true
	}
	return r.fakeRequest.Attribute(a)
}

// A Matches that met a huge request does not keep its memory.
func TestMatchesForgetsHugeScratch(t *testing.T) {
	set := parse(t, "domain: d\nlimits:\n  - {name: r, rate: 1/s, key: host}\n")
	var m rules.Matches
	huge := &fakeRequest{attributes: map[rules.Attribute]string{{Kind: rules.Host}: strings.Repeat("A", 1<<20)}}
	set.Match("d", huge, &m)
	if m.Scratch() < rules.MaxScratch {
		t.Fatal("the request was not huge")
	}
	set.Match("d", request(t, "host=B"), &m)
	if m.Scratch() > rules.MaxScratch {
		t.Errorf("%d bytes are kept", m.Scratch())
	}
}

// BenchmarkMatchShapes is a match of one of many rules.
func BenchmarkMatchShapes(b *testing.B) {
	for _, s := range shapes() {
		for _, n := range []int{10, 1000, 20_000} {
			b.Run(fmt.Sprintf("%s/rules=%d", strings.ReplaceAll(s.name, " ", "-"), n), func(b *testing.B) {
				set, req := s.of(b, n), request(b, s.request)
				var m rules.Matches
				b.ReportAllocs()
				for b.Loop() {
					set.Match("d", req, &m)
				}
				if len(m.Checks) != 1 || m.Checks[0].Rule.Name != "r7" {
					b.Fatalf("%d checks", len(m.Checks))
				}
				b.ReportMetric(float64(m.Candidates()), "candidates")
			})
		}
	}
}

func BenchmarkMatch(b *testing.B) {
	for _, n := range []int{10, 100, 1000, 10_000} {
		b.Run(fmt.Sprintf("rules=%d", n), func(b *testing.B) {
			set, req := typicalRules(b, n), fixedClient{typicalRequest(b)}
			var m rules.Matches
			b.ReportAllocs()
			for b.Loop() {
				set.Match("d", req, &m)
			}
			if len(m.Checks) != 2 {
				b.Fatalf("%d checks", len(m.Checks))
			}
		})
	}
}
