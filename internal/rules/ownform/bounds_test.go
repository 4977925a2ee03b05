package ownform_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/ownform"
	"github.com/headgate/headgate/internal/rules/rulefile"
)

// parsed reads a whole file, and returns what is said of it, a line each.
func parsed(src string) (set *rules.Ruleset, said string) {
	set, diagnostics := rulefile.Parse(rulefile.Source{Name: "o.yaml", Data: []byte(src)})
	var out []string
	for _, d := range diagnostics {
		out = append(out, d.String())
	}
	return set, strings.Join(out, "\n")
}

// The names of domains, rules and tiers end up in metrics and fields: the longest is
// taken, and one more letter, or one that would need an escape, is not.
func TestNamesAreBounded(t *testing.T) {
	t.Parallel()
	longest := strings.Repeat("n", rules.MaxName)
	const letters = "want at most 128 letters, digits and -_.:/"
	for name, want := range map[string]string{
		"azAZ09-_.:/": "", "a": "", "9": "", "-": "", "/": "", longest: "",
		longest + "n": letters, "!a": letters, "a b": letters, "a@": letters, "a[": letters, "a`": letters, "a{": letters, "é": letters, "a,b": letters, "a=b": letters, "": `"name" is empty`,
	} {
		_, said := parsed(fmt.Sprintf("domain: d\nlimits: [{name: %q, rate: 1/s}]\n", name))
		if want == "" && said != "" || !strings.Contains(said, want) {
			t.Errorf("%.20q: %s, want %s", name, said, want)
		}
	}
	for tier, want := range map[string]string{"p": "", "pr": "the name \"nnn", "": `"name" is empty`} {
		_, said := parsed(fmt.Sprintf("domain: d\nlimits: [{name: %s, rate: 1/s, tiers: {by: \"header:P\", %q: {rate: 2/s}}}]\n", longest[2:], tier))
		if want == "" && said != "" || !strings.Contains(said, want) {
			t.Errorf("the tier %q: %s, want %s", tier, said, want)
		}
	}
	for domain, ok := range map[string]bool{strings.Repeat("d", 256): true, strings.Repeat("d", 257): false, "a b, ü": true, "a\tb": false, "a\u0085": false} {
		set, said := parsed(fmt.Sprintf("domain: \"%s\"\nlimits: [{name: a, rate: 1/s}]\n", strings.NewReplacer("\t", `\t`, "\u0085", `\x85`).Replace(domain)))
		if (set != nil) != ok || !ok && !strings.Contains(said, "must be at most 256 bytes long, without control characters") {
			t.Errorf("the domain %.20q: %s", domain, said)
		}
	}
}

// A cost is believed from the least to the largest; without a word the largest is what
// fits into the limit.
func TestCostsAreBounded(t *testing.T) {
	t.Parallel()
	for keys, want := range map[string]string{
		"rate: 5/minute, cost: {from: x}":                             "1, from 1 to 5",
		"rate: 5/minute, burst: 9, cost: {from: x}":                   "1, from 1 to 9",
		"rate: unlimited, cost: {from: x}":                            "1, from 1 to 1099511627776",
		"rate: 0/minute, cost: {from: x}":                             "1, from 1 to 1099511627776",
		"rate: 5/minute, cost: {from: x, min: 0}":                     "1, from 0 to 5",
		"rate: 5/minute, cost: {from: x, min: 3}":                     "3, from 3 to 5",
		"rate: 5/minute, cost: {from: x, min: 3, max: 3}":             "3, from 3 to 3",
		"rate: 5/minute, cost: {from: x, min: 3, max: 4, default: 3}": "3, from 3 to 4",
		"rate: 5/minute, cost: {from: x, min: 3, max: 4, default: 4}": "4, from 3 to 4",
		"rate: 5/minute, cost: {from: x, min: 0, default: 0}":         "0, from 0 to 5",
	} {
		said, list := readLimits(keys)
		if list == nil || list[0].CostFrom == nil {
			t.Errorf("%s: %s", keys, said)
			continue
		}
		c := list[0].CostFrom
		if got := fmt.Sprintf("%d, from %d to %d", c.Default, c.Min, c.Max); got != want || list[0].Cost != c.Default {
			t.Errorf("%s: %s and %d, want %s", keys, got, list[0].Cost, want)
		}
	}
	sayings{
		"min: 4, max: 3":             "the minimum cost, 4, is more than the maximum, 3",
		"min: 3, max: 4, default: 2": `"default" must be from 3 to 4, between the minimum and the maximum cost`,
		"min: 3, max: 4, default: 5": `"default" must be from 3 to 4, between the minimum and the maximum cost`,
		"max: 0":                     `"max" must be from 1 to 1099511627776, not 0`,
		"min: -1":                    `"min" must be from 0 to 1099511627776, not -1`,
	}.run(t, "rate: 9/minute, cost: {from: x, ", "}")
}

// What the response says that a request took, and what counts if it says nothing.
func TestCostsAfterwards(t *testing.T) {
	t.Parallel()
	for keys, want := range map[string]rules.CostAfter{
		"":                                  {},
		", on_error: keep":                  {},
		", on_error: cancel":                {CancelErrors: true},
		", on_abort: largest":               {},
		", on_abort: estimate":              {Abort: rules.AbortEstimate},
		", on_abort: 7":                     {Abort: rules.AbortFixed, AbortCost: 7},
		", on_abort: 0":                     {Abort: rules.AbortFixed},
		", on_abort: 3, on_error: cancel":   {Abort: rules.AbortFixed, AbortCost: 3, CancelErrors: true},
		", estimate: 2, on_abort: estimate": {Abort: rules.AbortEstimate},
	} {
		said, list := readLimits("rate: 9/minute, cost: {from_response: x-tokens" + keys + "}")
		want.Header = "X-Tokens"
		if list == nil || list[0].CostAfter == nil || *list[0].CostAfter != want {
			t.Errorf("%s: %s, want %+v", keys, said, want)
		} else if estimate := list[0].Cost; estimate != 1 && (estimate != 2 || !strings.Contains(keys, "estimate: 2")) {
			t.Errorf("%s: the estimate %d", keys, estimate)
		}
	}
	sayings{
		"from_response: X, on_abort: -1":     `"on_abort" must be from 0 to 1099511627776`,
		"from_response: X, on_abort: most":   `unknown on_abort "most"`,
		"from_response: X, estimate: 0":      `"estimate" must be from 1 to 1099511627776`,
		"from_response: X, on_error: refund": `unknown on_error "refund"`,
		"from_response: X, min: 1":           `"min" cannot be combined with from_response`,
		"estimate: 5":                        `cost has no "from_response"`,
		"from_response: \"a b\"":             "invalid header name",
	}.run(t, "rate: 9/minute, cost: {", "}")
}

// Shares, times, sizes and bodies at their bounds: the last that is taken, and the
// first that is not.
func TestOutcomesAreBounded(t *testing.T) {
	t.Parallel()
	const minute = "key: client_ip, rate: 5/minute, "
	sayings{
		"retry_after_jitter: 1%":                        "",
		"retry_after_jitter: 100%":                      "",
		"retry_after_jitter: 0%":                        "must be from 1% to 100%",
		"retry_after_jitter: 101%":                      "must be from 1% to 100%",
		"retry_after_jitter: 1ms":                       "",
		"retry_after_jitter: 1h":                        "",
		"retry_after_jitter: 999us":                     "999us must be from 1ms to 1h",
		"retry_after_jitter: 3600001ms":                 "3600001ms must be from 1ms to 1h",
		"retry_after_jitter: -5s":                       "invalid duration",
		"body: {a/b: x}":                                "",
		"body: {a/b+c: x, A/D: y}":                      "",
		"body: {a/b: x, A/B: y}":                        "duplicate body for a/b",
		"body: {a/: x}":                                 `unknown body type "a/"`,
		"body: {/b: x}":                                 `unknown body type "/b"`,
		"body: {a/*: x}":                                `unknown body type "a/*"`,
		"body: {a b/c: x}":                              `unknown body type "a b/c"`,
		"body: {jsn: x}":                                `unknown body type "jsn", did you mean "json"?`,
		"body: {}":                                      `"body" must have from 1 to 16 types`,
		"body: " + bodies(16):                           "",
		"body: " + bodies(17):                           `"body" must have from 1 to 16 types`,
		"body: '" + strings.Repeat("x", 64<<10) + "'":   "",
		"body: '" + strings.Repeat("x", 64<<10+1) + "'": "the body is larger than 64 KiB",
		"headers: {X-A: ' a	b~ '}":                      "",
		"headers: {X-A: \"a\\x1fb\"}":                   "characters that are not allowed in headers",
		"headers: {X-A: \"a\\x7f\"}":                    "characters that are not allowed in headers",
	}.run(t, minute+"on_limit: {action: reject, ", "}")
	sayings{
		"120ms": "", "1m": "", "61s": "61s must be from 1µs to 1m", "100ms±100ms": "", "100ms+-20ms": "", "100ms ± 1us": "", "100ms±101ms": "101ms must be from 1µs to 100ms", "x±1ms": `invalid duration "x"`, "1ms±": `invalid duration ""`,
	}.run(t, minute+"on_limit: {action: shadow_ban, latency: ", "}")
	sayings{
		"1": "", "0.01": "", ".5": "", "0": "must be more than 0 and at most 1", "1.01": "must be more than 0 and at most 1", ".nan": `"share" must be a number`, "-0.5": "must be more than 0", "half": `"share" must be a number, not "half"`, "'0.5'": `"share" must be a number, not "0.5"`,
	}.run(t, minute+"on_store_error: {policy: local, share: ", "}")
	sayings{
		"key_share: 1%": "", "key_share: 100%": "", "key_share: 0%": "from 1% to 100%", "key_share: 101%": "from 1% to 100%", "key_share: 10": "from 1% to 100%", "key_share: '10'": "from 1% to 100%",
		"max_bytes: 1": "", "max_bytes: 1024GiB": "", "max_bytes: 0": "must be from 1 to 1099511627776 bytes, not 0", "max_bytes: 1099511627777": "must be from 1 to 1099511627776 bytes", "max_bytes: 1_000KB": "", "max_bytes: _1": `invalid size "_1"`, "max_bytes: 1kB": `invalid size "1kB"`,
		"keep_response: 0": "", "keep_response: 1MiB": "", "keep_response: 1048577": "must be from 0 to 1048576 bytes",
		"backoff: 1s": "", "backoff: 1s..1s": "", "backoff: 1s..24h": "", "backoff: 2s..1s": "1s must be from 2s to 24h", "backoff: 25h": "25h must be from 1ms to 24h",
	}.run(t, minute+"on_limit: {action: queue, ", "}")
}

// bodies is a body for each of so many types.
func bodies(n int) string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf("a/b%d: x", i))
	}
	return "{" + strings.Join(out, ", ") + "}"
}

// A key has at most 16 parts, and is skipped only if that is said.
func TestKeysAreBounded(t *testing.T) {
	t.Parallel()
	parts := func(n int) string {
		var out []string
		for i := range n {
			out = append(out, fmt.Sprintf("k%d", i))
		}
		return "key: [" + strings.Join(out, ", ") + "], rate: 1/s"
	}
	for _, row := range []struct {
		keys  string
		want  string
		parts int
		skip  bool
	}{
		{parts(16), "", 16, false},
		{parts(17), "the key has 17 parts, at most 16 are allowed", 0, false},
		{"key: a, key_missing: skip, rate: 1/s", "", 1, true},
		{"key: a, key_missing: share, rate: 1/s", "", 1, false},
		{"key_missing: skip, rate: 1/s", `"key_missing" has no effect without a key`, 0, true},
		{"key: [], rate: 1/s", "the key is empty: all requests are counted together", 0, false},
		{"key: a, key_missing: drop, rate: 1/s", `unknown key_missing "drop"`, 0, false},
	} {
		said, list := readLimits(row.keys)
		if row.want == "" && said != "" || !strings.Contains(said, row.want) {
			t.Errorf("%s: %q, want %q", row.keys, said, row.want)
		}
		if list != nil && (len(list[0].Key) != row.parts || (list[0].KeyMissing == rules.KeyMissingSkip) != row.skip) {
			t.Errorf("%s: %d parts, missing ones %d", row.keys, len(list[0].Key), list[0].KeyMissing)
		}
	}
}

// A tier takes from its limit what belongs to its own rate and algorithm, and nothing
// else.
func TestTiersInherit(t *testing.T) {
	t.Parallel()
	bucket := func(l headgate.Limit) headgate.Limit { return l.WithAlgorithm(headgate.TokenBucket) }
	for keys, want := range map[string]headgate.Limit{
		"rate: 5/minute, burst: 9 | rate: 7/minute":                                       bucket(headgate.PerMinute(7)).WithBurst(9),
		"rate: 5/minute, burst: 9 | percent: 50":                                          bucket(headgate.PerMinute(5)).WithBurst(9),
		"rate: 5, period: 90s | rate: 7/hour":                                             bucket(headgate.PerHour(7)),
		"rate: 5, period: 90s | rate: 7":                                                  {},
		"rate: 5, period: 90s | algorithm: sliding_log":                                   headgate.Per(5, 90*time.Second).WithAlgorithm(headgate.SlidingLog),
		"rate: 5/minute, burst: 9 | algorithm: sliding_log":                               headgate.PerMinute(5).WithAlgorithm(headgate.SlidingLog),
		"rate: 5/minute, algorithm: sliding_log, count_denied: true | rate: 7/minute":     headgate.PerMinute(7).WithAlgorithm(headgate.SlidingLog).WithRefusalsCounted(),
		"rate: 5/minute, algorithm: sliding_log, count_denied: true | rate: unlimited":    headgate.Unlimited(),
		"rate: 5/minute, on_limit: {action: delay, max_wait: 1s} | rate: unlimited":       headgate.Unlimited(),
		"concurrency: 5 | rate: 7/minute":                                                 bucket(headgate.PerMinute(7)),
		"rate: 5/minute, burst: 9 | concurrency: 7":                                       headgate.Concurrent(7),
		"concurrency: 5, lease: 90s | concurrency: 7":                                     headgate.Concurrent(7).WithLease(90 * time.Second),
		"rate: 5/minute, algorithm: fixed_window, anchor: first_request | rate: 7/minute": headgate.PerMinute(7).WithAlgorithm(headgate.FixedWindow).WithAnchor(headgate.AnchorFirstRequest),
	} {
		base, tier, _ := strings.Cut(keys, " | ")
		said, list := readLimits("key: client_ip, " + base + `, tiers: {by: "header:P", pro: {` + tier + `}}`)
		var got headgate.Limit
		for _, r := range list {
			if r.Tier == "pro" {
				got = r.Limit
			}
		}
		if !got.Equal(want) {
			t.Errorf("%s: %s, %s; want %s", keys, got, said, want)
		}
	}
}

// A tier that no request can be in, as match asks for other values of what chooses it,
// is warned of.
func TestDeadTiers(t *testing.T) {
	t.Parallel()
	for match, want := range map[string]string{
		"{}":                                    "",
		"{headers: {P: pro}}":                   `the limit's own rate never applies; the tier "team" can never apply`,
		"{headers: {P: [pro, gold]}}":           `the tier "team" can never apply`,
		"{headers: {P: [pro, lite, gold]}}":     "",
		"{headers: {P: [pro, lite, staff]}}":    "the limit's own rate never applies",
		"{headers: {P: [pro, staff, g*]}}":      "",
		"{headers: {P: [\"pro\", \"lite\"]}}":   "the limit's own rate never applies",
		"{headers: {P: {not: [pro, trial]}}}":   `the tier "pro" can never apply`,
		"{headers: {P: {not: pro}}}":            "",
		"{headers: {P: {present: false}}}":      `the tier "pro" can never apply; the tier "team" can never apply`,
		"{headers: {P: {present: true}}}":       "",
		"{headers: {Q: pro}}":                   "",
		"{headers: {P: [staff, lite, silver]}}": `the tier "pro" can never apply`,
	} {
		said, list := readLimits(`key: client_ip, rate: 5/minute, match: ` + match + `, tiers: {by: "header:P", pro: {is: [pro, trial], rate: 8/minute}, team: {is: [lite, staff], rate: 9/minute}}`)
		var got []string
		for _, part := range []string{"the limit's own rate never applies", `the tier "pro" can never apply`, `the tier "team" can never apply`} {
			if strings.Contains(said, part) {
				got = append(got, part)
			}
		}
		if list == nil || strings.Join(got, "; ") != want {
			t.Errorf("%s: %q, want %q; %s", match, strings.Join(got, "; "), want, said)
		}
	}
}

// What a name of an attribute that no request has probably means.
func TestWhatNamesMean(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"tenant": "", "user": "", "plan:gold": "", "a-b": "", "cost": "", "client_id": "", "pat": "path", "": "", "past": "", "paht": "path",
		"IP": "client_ip", "remote_addr": "client_ip", "client-ip": "client_ip", "clent_ip": "client_ip", "verb": "method", "METHOD": "method", "url": "path", "hostname": "host",
		"X-Api-Key": "header:X-Api-Key wrong", "x-api-key": "header:X-Api-Key wrong", "User-Agent": "header:User-Agent wrong", "user-agent": "header:User-Agent", "useragent": "header:User-Agent",
		"X-Tenant": "header:X-Tenant wrong", "x-tenant": "header:X-Tenant wrong", "Origin": "header:Origin wrong", "origin": "header:Origin", "Tenant": "", "X-Real-IP": "header:X-Real-Ip wrong",
		"$remote_addr": "client_ip wrong", "$http_x_api_key": "header:X-Api-Key wrong", "$arg_token": "query:token wrong", "$cookie_s": "cookie:s wrong", "${client_ip}": "client_ip wrong", "%{uri}": "path wrong", "$http_host": "host wrong",
		"headers[X-Plan]": "header:X-Plan wrong", "req.headers['X-Plan']": "header:X-Plan wrong", "hdr(X-Plan)": "header:X-Plan wrong", "query.q": "query:q wrong", "params:q": "query:q wrong", "jwt.sub": "jwt:sub wrong", "token.claims.sub": "jwt:sub wrong", "sha256(client_ip)": "hash:client_ip wrong", "lookup[X]": "",
		"client_ip,path": "client_ip,path wrong", "client_ip path": "client_ip,path wrong", "client_ip:path": "client_ip,path wrong", "client_ip + tenant": "client_ip,tenant wrong", "tenant,plan": "", "client_ip/tenant": "", "tenant:plan": "", "clientip,pat": "client_ip,path wrong",
		"attribute:tenant": "tenant wrong", "attributes:x": "x wrong", "attribute:": "", "path:/login": "path", "method:POST": "method", "method:post": "", "host:a.example": "host", "host:a": "", "path:x": "",
	} {
		right, wrong := ownform.Meant(name)
		got := right
		if wrong {
			got += " wrong"
		}
		if strings.TrimSpace(got) != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
