package rules_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/rules"
)

// A few rules that share a path are filed under it; more of them under a value of their
// own, and only then is that value read from every other request.
func TestOtherRequestsAreSparedValues(t *testing.T) {
	t.Parallel()
	for n, asked := range map[int]bool{1: false, 2: false, 5: false, 6: true, 20: true} {
		var src strings.Builder
		src.WriteString("domain: d\nlimits:\n")
		for i := range n {
			fmt.Fprintf(&src, "  - {name: r%d, rate: 1/s, match: {path: /v1/**, headers: {X-Tenant: t%d}}}\n", i, i)
		}
		set := parse(t, src.String())
		for words, want := range map[string]bool{"path=/v2/x header:X-Tenant=t0": asked, "path=/v1/x header:X-Tenant=t0": true, "path=/v1/x": true} {
			c := counting{manyValued{request(t, words)}, map[string]int{}}
			var m rules.Matches
			set.Match("d", c, &m)
			if got := c.asked["header:X-Tenant"] > 0; got != want {
				t.Errorf("%d rules, %s: asked for the header: %v, want %v", n, words, got, want)
			}
			if hit := strings.HasPrefix(words, "path=/v1/x header"); (len(m.Checks) == 1) != hit {
				t.Errorf("%d rules, %s: %d checks", n, words, len(m.Checks))
			}
		}
	}
}

// A path that can be read in more ways than are looked at may be any: every rule that
// asks for a path applies, and none is escaped by an exclusion.
func TestPathsBeyondReading(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(7, 3))
	for range 25 {
		var src strings.Builder
		src.WriteString("domain: d\nlimits:\n")
		var want []string
		for i := range 1 + r.IntN(12) {
			var paths []string
			for range 1 + r.IntN(3) {
				path := pick(r, "", "", "!")
				for range 1 + r.IntN(3) {
					path += "/" + pick(r, "a", "b", "*", "**", "a*")
				}
				paths = append(paths, path)
			}
			method := pick(r, "GET", "GET", "PUT")
			fmt.Fprintf(&src, "  - {name: r%d, rate: 1/s, key: path, match: {method: %s, path: %s}}\n", i, method, quoted(paths))
			if method == "GET" {
				want = append(want, fmt.Sprintf("r%d", i))
			}
		}
		set := parse(t, src.String())
		for _, path := range []string{"/%" + strings.Repeat("25", 20_000) + "2f", strings.Repeat("/%2e%2e;x%5c//", 4000)} {
			if got := matched(set, "d", request(t, "method=GET path="+path)); got != strings.Join(want, " ") {
				t.Fatalf("%.20s: got %s, want %s\n%s", path, got, want, src.String())
			}
		}
	}
}

// A header or cookie that servers read differently is unclear, also where the door gives
// one value alone.
func TestUnclearValuesOfPlainRequests(t *testing.T) {
	t.Parallel()
	set := parse(t, `
domain: d
limits:
  - {name: c, rate: 1/s, key: "cookie:s", key_missing: skip}
  - {name: is, rate: 1/s, match: {cookies: {s: real}}}
  - {name: plain, rate: 1/s, key: "header:X-Plain", key_missing: skip}
`)
	for words, want := range map[string]string{
		"cookie:s=ab":                  "c: ab",
		"header:X-Plain=a%22b":         "plain: a%22b",
		`cookie:s="r\145al"`:           "c: unclear:; is",
		"cookie:t=a!%22b cookie:s=a!b": "c: a!b",
	} {
		var m rules.Matches
		set.Match("d", request(t, words), &m)
		if got := checks(&m); got != want {
			t.Errorf("%s: %s, want %s", words, got, want)
		}
	}
}
