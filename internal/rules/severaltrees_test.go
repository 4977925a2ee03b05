package rules_test

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/rules"
)

// leveled are descriptors whose keys depend on their level, so that no key repeats on a
// path.
func leveled(r *rand.Rand, level, depth int, count *int) []*plainDescriptor {
	var out []*plainDescriptor
	taken := map[string]bool{}
	for range 1 + r.IntN(5) {
		d := &plainDescriptor{key: fmt.Sprintf("query:%s%d", pick(r, "k", "l"), level), order: *count}
		if r.IntN(4) > 0 {
			d.value = pick(r, "a", "b", "ab", "a*", "*b", "*")
		}
		if taken[d.key+"="+d.value] {
			continue
		}
		taken[d.key+"="+d.value] = true
		*count++
		if r.IntN(3) > 0 {
			d.name = fmt.Sprintf("n%d", d.order)
		}
		if level < depth && r.IntN(2) == 0 {
			d.below = leveled(r, level+1, depth, count)
		}
		out = append(out, d)
	}
	return out
}

// slowAttributes adds to hits the limits that a request with one value of each attribute
// comes under, and the values that they count, and reports whether there is an answer.
// With all, it continues with the less specific ones.
func slowAttributes(list []*plainDescriptor, values map[string]string, counted string, hits map[string]bool, all bool) bool {
	applied := false
	byKey := map[string][]*plainDescriptor{}
	for _, d := range list {
		value, there := values[d.key]
		if there && (d.value == "" || slowGlob(d.value, value)) {
			byKey[d.key] = append(byKey[d.key], d)
		}
	}
	for key, fit := range byKey {
		slices.SortFunc(fit, func(a, b *plainDescriptor) int { return slices.Compare(a.rank(), b.rank()) })
		for _, d := range fit {
			part := counted
			if d.value == "" || strings.Contains(d.value, "*") {
				part += values[key] + ","
			}
			if d.name != "" {
				hits[d.name+": "+strings.TrimSuffix(part, ",")] = true
			}
			below := slowAttributes(d.below, values, part, hits, all)
			if d.name != "" || len(d.below) == 0 || below {
				applied = true
				if !all {
					break
				}
			}
		}
	}
	return applied
}

// eachReading calls f with every choice of one value for each attribute.
func eachReading(req valued, f func(values map[string]string)) {
	names := slices.Sorted(maps.Keys(req))
	values := map[string]string{}
	var choose func(i int)
	choose = func(i int) {
		if i == len(names) {
			f(values)
			return
		}
		for _, v := range req[names[i]] {
			values[names[i]] = v
			choose(i + 1)
		}
	}
	choose(0)
}

// A request with several values of an attribute comes under the limits of each way to
// read it, as a look at every descriptor finds them: whichever the server behind takes,
// the limit that is meant for it counts. A request that can be read in one way comes
// under no others.
func TestTreesCountEveryReading(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(7, 5))
	hits, several, refused := 0, 0, 0
	for range 150 {
		count := 0
		list := leveled(r, 1, 3, &count)
		var src strings.Builder
		src.WriteString("domain: d\ndescriptors:\n")
		writeDescriptors(&src, list, "  ")
		set := parse(t, src.String())
		for range 30 {
			req := valued{}
			for _, name := range []string{"query:k1", "query:l1", "query:k2", "query:l2", "query:k3", "query:l3"} {
				for range r.IntN(3) {
					if v := pick(r, "a", "b", "ab", "aab", "", "c"); !slices.Contains(req[name], v) {
						req[name] = append(req[name], v)
					}
				}
			}
			want, most, readings := map[string]bool{}, map[string]bool{}, 0
			eachReading(req, func(values map[string]string) {
				readings++
				slowAttributes(list, values, "", want, false)
				slowAttributes(list, values, "", most, true)
			})
			if readings == 1 {
				most = want
			}
			var m rules.Matches
			set.Match("d", req, &m)
			got := map[string]bool{}
			for _, c := range m.Checks {
				parts, _ := rules.SplitKey(c.Key)
				var texts []string
				for _, p := range parts {
					texts = append(texts, p.Value)
				}
				text := c.Rule.LimitName + ": " + strings.Join(texts, ",")
				if got[text] {
					t.Errorf("%s is counted twice", text)
				}
				got[text] = true
			}
			if len(m.Checks) > 0 && m.Checks[0].Cost == math.MaxInt64 {
				refused++ // in more ways than are looked at: it is refused
				continue
			}
			hits += len(got)
			if len(got) > 1 {
				several++
			}
			counted := slices.Sorted(maps.Keys(got))
			for name := range most {
				if want[name] && !got[name] {
					t.Fatalf("%v: not counted under %s, but %v\n%s", req, name, counted, src.String())
				}
				delete(got, name)
			}
			if len(got) > 0 {
				t.Fatalf("%v: counted under %v, want no more than %v\n%s", req, got, slices.Sorted(maps.Keys(most)), src.String())
			}
		}
	}
	if hits < 2000 || several < 400 || refused > 1500 {
		t.Errorf("%d hits, %d requests with several, %d refused", hits, several, refused)
	}
}

// Of a path that can be read in several ways each reading has its limit; the case of
// its letters is no other way to read it where a limit is found.
func TestTreesCountEveryReadingOfPaths(t *testing.T) {
	t.Parallel()
	set := parse(t, `
domain: d
descriptors:
  - {key: tenant, value: a, descriptors: [{key: path, value: "/API/*", rate_limit: {name: upper, unit: hour, requests_per_unit: 5}}]}
  - {key: tenant, value: b, descriptors: [{key: path, value: "/api/*", rate_limit: {name: lower, unit: hour, requests_per_unit: 5}}]}
  - {key: tenant, rate_limit: {name: tenant, unit: hour, requests_per_unit: 5}}
`)
	for words, want := range map[string]string{
		"tenant=a path=/API/x":        "upper",
		"tenant=a path=/api/x":        "tenant",
		"tenant=b path=/api/x":        "lower",
		"tenant=b path=/API/x":        "lower",
		"tenant=b path=/Api/X":        "lower",
		"tenant=b path=/x":            "tenant",
		"tenant=b":                    "tenant",
		"tenant=c path=/api/x":        "tenant",
		"tenant=b path=/api/..%2fx":   "lower tenant",
		"tenant=b path=/x/..%2fapi/x": "lower tenant",
		"tenant=b path=/api/x/..%2fy": "lower",
		"path=/api/x":                 "",
	} {
		var m rules.Matches
		set.Match("d", request(t, words), &m)
		names := map[string]bool{}
		for _, c := range m.Checks {
			names[c.Rule.LimitName] = true
		}
		if got := strings.Join(slices.Sorted(maps.Keys(names)), " "); got != want {
			t.Errorf("%s: %s, want %s", words, got, want)
		}
	}
}
