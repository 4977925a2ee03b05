package rules_test

import (
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/rules"
)

// counting is a request that notes how often it is asked for what.
type counting struct {
	rules.UnclearRequest

	asked map[string]int
}

func (c counting) Attribute(a rules.Attribute) (string, bool) {
	c.asked[a.String()]++
	return c.UnclearRequest.Attribute(a)
}

func (c counting) ClientIP() netip.Addr {
	c.asked["address"]++
	return c.UnclearRequest.ClientIP()
}

func (c counting) Read(a rules.Attribute) (value string, ok, unclear bool) {
	c.asked[a.String()]++
	return c.UnclearRequest.Read(a)
}

// manyValued has several values of an attribute: those between bars.
type manyValued struct{ rules.Request }

func (v manyValued) Attribute(a rules.Attribute) (string, bool) {
	text, ok := v.Request.Attribute(a)
	first, _, _ := strings.Cut(text, "|")
	return first, ok
}

func (v manyValued) Read(a rules.Attribute) (value string, ok, unclear bool) {
	text, _ := v.Request.Attribute(a)
	value, ok = v.Attribute(a)
	return value, ok, value != text
}

// However many rules look at an attribute, in whatever part of them, the request is
// asked for it once.
func TestRequestIsAskedOnce(t *testing.T) {
	t.Parallel()
	var src strings.Builder
	src.WriteString("domain: d\nlimits:\n")
	for i := range 5 {
		fmt.Fprintf(&src, "  - {name: a%d, rate: 5/minute, key: [client_ip, \"header:X-Key\", \"cookie:s\", method, host, path], match: {method: [GET, PUT], path: /x/**, host: \"*.example\", client_ip: 10.0.0.0/8, headers: {X-Plan: [gold, \"silver%d\"]}}}\n", i, i)
		fmt.Fprintf(&src, "  - {name: b%d, rate: 5/minute, cost: {from: \"header:X-Cost\"}, tiers: {by: \"header:X-Plan\", gold: {rate: 9/minute}}, key: \"header:X-Key\"}\n", i)
	}
	src.WriteString("descriptors:\n  - {key: \"header:X-Key\", rate_limit: {unit: minute, requests_per_unit: 1}}\n  - {key: method, rate_limit: {unit: minute, requests_per_unit: 1}}\n")
	set := parse(t, src.String())
	plain := request(t, "method=get path=/x/y host=A.Example:80 client_ip=10.1.2.3 header:X-Key=k header:X-Plan=gold header:X-Cost=2 cookie:s=v")
	for _, words := range []string{"", "header:X-Key=k|l", "cookie:s=a!%22b", "header:X-Key=eyJh.e30.AAAAA!AAAAAAAAAAAAAAAA"} {
		req := *plain
		req.attributes = maps.Clone(plain.attributes)
		maps.Copy(req.attributes, request(t, words).attributes)
		c := counting{manyValued{&req}, map[string]int{}}
		var m rules.Matches
		set.Match("d", c, &m)
		if len(m.Checks) < 12 {
			t.Errorf("%q: %d checks", words, len(m.Checks))
		}
		for what, n := range c.asked {
			if n > 1 && what != "client_ip" { // again for each unclear value
				t.Errorf("%q: asked %d times for %s", words, n, what)
			}
		}
	}
}

// More attributes than are remembered are matched all the same, and their values are
// not mixed up.
func TestManyAttributes(t *testing.T) {
	t.Parallel()
	const n = 40
	var src, words strings.Builder
	src.WriteString("domain: d\nlimits:\n")
	for i := range n {
		fmt.Fprintf(&src, "  - {name: r%d, rate: 5/minute, key: [\"header:X-%d\", host, method, \"query:q%d\"], match: {headers: {X-%d: \"v%d*\"}}}\n", i, i, (i+7)%n, i, i)
		fmt.Fprintf(&words, "header:X-%d=v%d query:q%d=Q%d ", i, i, i, i)
	}
	set := parse(t, src.String())
	var m rules.Matches
	for range 3 {
		set.Match("d", manyValued{request(t, words.String()+"host=A.Example method=put")}, &m)
		if len(m.Checks) != n {
			t.Fatalf("%d checks, want %d", len(m.Checks), n)
		}
		for i, c := range m.Checks {
			parts, ok := rules.SplitKey(c.Key)
			if !ok || len(parts) != 4 {
				t.Fatalf("%s: the key %q", c.Rule.Name, c.Key)
			}
			q := (i + 7) % n
			if !strings.HasPrefix(parts[0].Value+"-", fmt.Sprintf("v%d-", i)) || parts[1].Value != "a.example" || parts[2].Value != "PUT" ||
				parts[3].Value != fmt.Sprintf("Q%d", q) {
				t.Errorf("%s is counted by %v", c.Rule.Name, parts)
			}
		}
	}
}

// A Matches keeps nothing of the request that it was used for.
func TestMatchesForgetsRequest(t *testing.T) {
	t.Parallel()
	set := parse(t, "domain: d\nlimits:\n  - {name: r, rate: 5/minute, key: [\"header:X-A\", \"query:q\"]}\n")
	var m rules.Matches
	set.Match("d", manyValued{request(t, "header:X-A=secret-one|secret-two query:q=secret-three")}, &m)
	if n := len(m.Checks); n != 1 {
		t.Fatalf("%d checks", n)
	}
	if text := fmt.Sprintf("%+v", m.Known()); strings.Contains(text, "secret") {
		t.Errorf("it has %s", text)
	}
}
