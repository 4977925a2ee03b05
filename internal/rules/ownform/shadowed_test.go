package ownform_test

import (
	"fmt"
	"strings"
	"testing"
)

// Which of two limits can never refuse, and what is said of it: where the other counts
// at least the same requests, is as strict, and answers alike.
func TestLimitsBehindOthers(t *testing.T) {
	t.Parallel()
	const ip = "key: client_ip, rate: "
	for _, row := range []struct{ name, first, second, never string }{
		{"a part of the requests", ip + "5/minute", ip + "9/minute, match: {path: /a}", "r1"},
		{"a part, and stricter", ip + "5/minute", ip + "4/minute, match: {path: /a}", ""},
		{"a part, of another key", ip + "5/minute", "key: host, rate: 9/minute, match: {path: /a}", ""},
		{"a part, of a key that may be missing", ip + "5/minute, key_missing: skip", ip + "9/minute, match: {path: /a}", ""},
		{"one of two methods", ip + "5/minute, match: {method: [GET, PUT]}", ip + "9/minute, match: {method: GET}", "r1"},
		{"another method", ip + "5/minute, match: {method: [GET, PUT]}", ip + "9/minute, match: {method: [GET, POST]}", ""},
		{"every method", ip + "5/minute, match: {method: GET, path: /a}", ip + "9/minute, match: {path: /a}", ""},
		{"no such condition", ip + "5/minute, match: {method: GET}", ip + "9/minute, match: {path: /a}", ""},
		{"more is excluded", ip + `5/minute, match: {method: "!GET"}`, ip + `9/minute, match: {method: ["!GET", "!PUT"]}`, "r1"},
		{"another is excluded", ip + `5/minute, match: {method: "!GET"}`, ip + `9/minute, match: {method: "!PUT"}`, ""},
		{"less is excluded", ip + `5/minute, match: {method: ["!GET", "!PUT"]}`, ip + `9/minute, match: {method: "!GET"}`, ""},
		{"there, as it has a value", ip + "5/minute, match: {headers: {X: {present: true}}}", ip + "9/minute, match: {headers: {X: a}}", "r1"},
		{"there", ip + "5/minute, match: {headers: {X: {present: true}}}", ip + "9/minute, match: {path: /a, headers: {X: {present: true}}}", "r1"},
		{"perhaps there", ip + "5/minute, match: {headers: {X: {present: true}}}", ip + "9/minute, match: {headers: {X: {not: a}}}", ""},
		{"absent", ip + "5/minute, match: {headers: {X: {present: false}}}", ip + "9/minute, match: {path: /a, headers: {X: {present: false}}}", "r1"},
		{"not absent", ip + "5/minute, match: {headers: {X: {present: false}}}", ip + "9/minute, match: {headers: {X: a}}", ""},
		{"the later one", ip + "9/minute, match: {path: /a}", ip + "5/minute", "r0"},
		{"the later one answers otherwise", ip + "9/minute, match: {path: /a}, on_limit: {status: 503}", ip + "5/minute", ""},
		{"the later one answers otherwise", ip + "9/minute, match: {path: /a}", ip + "5/minute, on_limit: {status: 503}", ""},
		{"the earlier one answers otherwise", ip + "5/minute, on_limit: {status: 503}", ip + "9/minute, match: {path: /a}", "r1"},
		{"behind a rejection no ban begins", ip + "9/minute, match: {path: /a}, on_limit: shadow_ban", ip + "5/minute", "r0"},
		{"windows of their own", ip + "5/minute, algorithm: fixed_window, anchor: first_request", ip + "9/minute, algorithm: fixed_window, anchor: first_request, match: {path: /a}", ""},
		{"windows of the clock", ip + "5/minute, algorithm: fixed_window", ip + "9/minute, algorithm: fixed_window, match: {path: /a}", "r1"},
		{"the same steps", ip + "5/minute, refill: {every: 15s}", ip + "9/minute, refill: {every: 15s}, match: {path: /a}", "r1"},
		{"steps, and none", ip + "5/minute, refill: {every: 15s}", ip + "9/minute, match: {path: /a}", ""},
		{"none, and steps", ip + "5/minute", ip + "9/minute, refill: {every: 15s}, match: {path: /a}", ""},
		{"refused ones count", ip + "5/minute, algorithm: sliding_log, count_denied: true", ip + "9/minute, algorithm: sliding_log, count_denied: true, match: {path: /a}", ""},
		{"refused ones do not", ip + "5/minute, algorithm: sliding_log", ip + "9/minute, algorithm: sliding_log, match: {path: /a}", "r1"},
		{"here, and in all regions", ip + "5/minute", ip + "9/minute, regions: {home: eu}", ""},
		{"in one region, and in all", ip + "5/minute, regions: {home: eu}", ip + "9/minute, regions: shared", ""},
		{"in another region", ip + "5/minute, regions: {home: eu}", ip + "9/minute, regions: {home: us}, match: {path: /a}", ""},
		{"in the same region", ip + "5/minute, regions: {home: eu}", ip + "9/minute, regions: {home: eu}, match: {path: /a}", "r1"},
		{"in all regions", ip + "5/minute, regions: shared", ip + "9/minute, regions: shared, match: {path: /a}", "r1"},
		{"no limit", ip + "unlimited", ip + "9/minute, match: {path: /a}", ""},
		{"no limit on a part", ip + "5/minute", ip + "unlimited, match: {path: /a}", ""},
		{"another length", ip + "5/minute", ip + "9/hour, match: {path: /a}", ""},
		{"a long value", ip + "5/minute, match: {headers: {X: " + strings.Repeat("x", 300) + "}}", ip + "9/minute, match: {path: /a, headers: {X: " + strings.Repeat("x", 300) + "}}", "r1"},
		{"the same", ip + "5/minute", ip + "5/minute", `r1" repeats`},
		{"the same, and looser", ip + "5/minute", ip + "9/minute", `r1" can never refuse a request: "r0" (o.yaml:3:5) counts the same and is stricter`},
		{"the same, and stricter", ip + "9/minute", ip + "5/minute", `r0" can never refuse a request: "r1" (o.yaml:4:5) counts the same and is stricter`},
		{"the same, with another answer", ip + "5/minute", ip + "5/minute, on_limit: {status: 503}", `r1" can never refuse a request: "r0" (o.yaml:3:5) counts the same and is as strict`},
		{"the same conditions in another order", ip + "5/minute, match: {method: [GET, PUT], path: /a}", ip + "5/minute, match: {path: /a, method: [PUT, GET]}", `r1" repeats`},
		{"disabled", ip + "5/minute, disabled: true", ip + "5/minute", ""},
		{"tiers", ip + "5/minute", ip + `9/minute, match: {path: /a}, tiers: {by: "header:P", pro: {rate: 3/minute}}`, `r1" can never refuse a request without a tier: "r0"`},
		{"a tier", ip + "5/minute", ip + `3/minute, match: {path: /a}, tiers: {by: "header:P", pro: {rate: 9/minute}}`, `r1/pro" can never refuse a request: "r0"`},
	} {
		said, list := readLimits(row.first, row.second)
		if list == nil {
			t.Errorf("%s: %s", row.name, said)
			continue
		}
		want := `the rule "` + row.never
		if len(row.never) == 2 {
			want += `" can never refuse a request: `
		}
		if row.never == "" && said != "" || row.never != "" && (!strings.Contains(said, want) || strings.Contains(said, "\n")) {
			t.Errorf("%s: %q, want %s", row.name, said, row.never)
		}
	}
}

// A limit with an invalid rate is not compared with others.
func TestWrongLimitsAreNotCompared(t *testing.T) {
	t.Parallel()
	for _, wrong := range []string{"rate: 5/0s", "rate: 5/minute, burst: -1"} {
		if said, _ := readLimits("key: client_ip, "+wrong, "key: client_ip, rate: 5/minute", "key: client_ip, "+wrong+", match: {path: /a}"); strings.Contains(said, "never refuse") || strings.Contains(said, "repeats") {
			t.Errorf("%s: %s", wrong, said)
		}
	}
}

// Each of many equal limits is said to repeat the first.
func TestRepeatsOfMany(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]int{1: 0, 2: 1, 3: 2, 64: 63, 65: 63, 80: 63} {
		said, _ := readLimits(strings.Split(strings.TrimSuffix(strings.Repeat("key: client_ip, rate: 5/minute|", n), "|"), "|")...)
		if got := strings.Count(said, `repeats "r0"`); got != want || strings.Count(said, "repeats") != want {
			t.Errorf("%d limits: %d repeat the first, want %d", n, got, want)
		}
	}
}

// A limit that another takes the place of is not there for all requests: it neither
// keeps others from refusing nor repeats one that is.
func TestReplacedLimitsAreNotCompared(t *testing.T) {
	t.Parallel()
	const replacing = "descriptors:\n  - {key: plan, value: pro, rate_limit: {name: pro, rate: 20/minute, replaces: [{name: %s}]}}\n"
	limits := func(names ...string) string {
		text := "domain: d\nlimits:\n"
		for i, name := range names {
			text += fmt.Sprintf("  - {name: %s, key: client_ip, rate: %d/minute}\n", name, 5+i)
		}
		return text
	}
	for _, row := range []struct {
		src  string
		want string
	}{
		{limits("strict", "loose"), `"loose" can never refuse a request: "strict"`},
		{limits("strict", "loose") + fmt.Sprintf(replacing, "strict"), ""},
		{limits("strict", "loose") + fmt.Sprintf(replacing, "loose"), `"loose" can never refuse a request: "strict"`},
		{limits("strict", "loose") + fmt.Sprintf(replacing, "other"), `"loose" can never refuse a request: "strict"`},
	} {
		set, got := parsed(row.src)
		if set == nil || row.want == "" && got != "" || !strings.Contains(got, row.want) {
			t.Errorf("%s: %q, want %q", row.src, got, row.want)
		}
	}
}
