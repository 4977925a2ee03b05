package rules_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/rules"
)

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
