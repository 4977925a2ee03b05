package ownform_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/rulefile"
	"github.com/headgate/headgate/store"
)

// readLimits reads limits, each the keys of one besides its name, and returns what is
// said of them, a line each, and the rules if there are no errors.
func readLimits(limits ...string) (said string, list []*rules.Rule) {
	src := "domain: d\nlimits:\n"
	for i, keys := range limits {
		src += fmt.Sprintf("  - {name: r%d, %s}\n", i, keys)
	}
	set, diagnostics := rulefile.Parse(rulefile.Source{Name: "o.yaml", Data: []byte(src)})
	if set != nil {
		diagnostics, list = set.Warnings(), set.Rules()
	}
	var out []string
	for _, d := range diagnostics {
		out = append(out, fmt.Sprintf("%d:%d: %s: %s; %s", d.Line, d.Column, d.Severity, d.Message, d.Hint))
	}
	return strings.Join(out, "\n"), list
}

// sayings are what is said of the keys of a limit: "" for nothing.
type sayings map[string]string

func (rows sayings) run(t *testing.T, before, after string) {
	t.Helper()
	for keys, want := range rows {
		got, list := readLimits(before + keys + after)
		if want == "" && got != "" || !strings.Contains(got, want) || (list == nil) != strings.Contains(got, ": error: ") {
			t.Errorf("%s: %q, want %q", keys, got, want)
		}
	}
}

// Each key of a limit changes the limit as its documentation says.
func TestLimits(t *testing.T) {
	t.Parallel()
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	for keys, want := range map[string]headgate.Limit{
		"rate: 5/minute":                         headgate.PerMinute(5),
		"rate: 5, period: 90s":                   headgate.Per(5, 90*time.Second),
		"rate: 5/minute, burst: 9":               headgate.PerMinute(5).WithBurst(9),
		"rate: 5/minute, refill: {every: 500ms}": headgate.PerMinute(5).WithRefillEvery(500 * time.Millisecond),
		"rate: 5/s, burst: 99, refill: {every: 10s}, algorithm: token_bucket": headgate.PerSecond(5).WithBurst(99).WithRefillEvery(10 * time.Second),
		"rate: unlimited":                                                             headgate.Unlimited(),
		"rate: 5/day, algorithm: fixed_window":                                        headgate.PerCalendar(5, headgate.Day, time.UTC),
		"rate: 5/minute, algorithm: fixed_window":                                     headgate.PerMinute(5).WithAlgorithm(headgate.FixedWindow),
		"rate: 5/3h, algorithm: fixed_window":                                         headgate.Per(5, 3*time.Hour).WithAlgorithm(headgate.FixedWindow),
		"rate: 5/hour, algorithm: sliding_window":                                     headgate.PerHour(5).WithAlgorithm(headgate.SlidingWindow),
		"rate: 5/hour, algorithm: sliding_buckets":                                    headgate.PerHour(5).WithAlgorithm(headgate.SlidingBuckets),
		"rate: 5/hour, algorithm: sliding_log":                                        headgate.PerHour(5).WithAlgorithm(headgate.SlidingLog),
		"concurrency: 7":                                                              headgate.Concurrent(7),
		"concurrency: 7, lease: 90s":                                                  headgate.Concurrent(7).WithLease(90 * time.Second),
		"rate: 5/s, on_limit: {action: delay, max_wait: 2s}":                          headgate.PerSecond(5).WithAlgorithm(headgate.LeakyBucket).WithBurst(15).WithDelayAfter(5).WithMaxWait(2 * time.Second),
		"rate: 5/day, algorithm: fixed_window, timezone: Europe/Berlin":               headgate.PerCalendar(5, headgate.Day, berlin),
		"rate: 5/day, algorithm: fixed_window, anchor: first_request":                 headgate.PerDay(5).WithAlgorithm(headgate.FixedWindow).WithAnchor(headgate.AnchorFirstRequest),
		"rate: 6/hour, algorithm: sliding_buckets, buckets: 6, edge: strict":          headgate.PerHour(6).WithAlgorithm(headgate.SlidingBuckets).WithBuckets(6, headgate.EdgeStrict),
		"rate: 6/hour, algorithm: sliding_buckets, edge: lenient":                     headgate.PerHour(6).WithAlgorithm(headgate.SlidingBuckets).WithBuckets(store.DefaultBuckets, headgate.EdgeLenient),
		"rate: 5/hour, algorithm: sliding_log, count_denied: true":                    headgate.PerHour(5).WithAlgorithm(headgate.SlidingLog).WithRefusalsCounted(),
		"rate: 5/hour, algorithm: sliding_window, count_denied: true":                 headgate.PerHour(5).WithAlgorithm(headgate.SlidingWindow).WithRefusalsCounted(),
		"rate: 5/day, algorithm: fixed_window, count_denied: true":                    headgate.PerCalendar(5, headgate.Day, nil).WithRefusalsCounted(),
		"rate: 5/hour, algorithm: sliding_buckets, buckets: 6, count_denied: true":    headgate.PerHour(5).WithAlgorithm(headgate.SlidingBuckets).WithBuckets(6, headgate.EdgeWeighted).WithRefusalsCounted(),
		"rate: 5/hour, algorithm: sliding_log, count_denied: false":                   headgate.PerHour(5).WithAlgorithm(headgate.SlidingLog),
		"rate: 5/s, algorithm: leaky_bucket, burst: 9, delay_after: 3":                headgate.PerSecond(5).WithAlgorithm(headgate.LeakyBucket).WithBurst(9).WithDelayAfter(3),
		"rate: 5/s, algorithm: leaky_bucket, on_limit: {action: delay, max_wait: 1s}": headgate.PerSecond(5).WithAlgorithm(headgate.LeakyBucket).WithMaxWait(time.Second),
	} {
		got, list := readLimits(keys)
		if list == nil || !list[0].Limit.Equal(want) {
			t.Errorf("%s: %s", keys, got)
		}
	}
}

func TestMistakesInLimits(t *testing.T) {
	t.Parallel()
	sayings{
		"rate: [5]":                                                    `"rate" must be N/unit, such as 5/minute, not a list`,
		"rate: 5/minute, period: 5s":                                   "the period is given twice",
		"rate: 5, period: {}":                                          `"period" must be a duration such as 30s, not a mapping`,
		"rate: 5, period: soon":                                        "error",
		"rate: 5/hour, algorithm: fixed":                               "unknown algorithm \"fixed\"",
		"rate: 5/hour, burst: -1":                                      `"burst" must be from 1 to`,
		"rate: 5/hour, burst: many":                                    `"burst" must be a whole number, not text`,
		"rate: 5/hour, burst: \"5\"":                                   "remove the quotes",
		"rate: 5/hour, delay_after: 2":                                 `"delay_after" does not apply to token_bucket; add algorithm: leaky_bucket`,
		"rate: 5/hour, anchor: clock":                                  `"anchor" does not apply to token_bucket; add algorithm: fixed_window`,
		"rate: 5/hour, timezone: UTC":                                  `"timezone" does not apply to token_bucket`,
		"rate: 5/hour, buckets: 6":                                     `"buckets" does not apply to token_bucket; add algorithm: sliding_buckets`,
		"rate: 5/hour, edge: strict":                                   `"edge" does not apply to token_bucket`,
		"rate: 5/hour, count_denied: true":                             `"count_denied" does not apply to token_bucket; add algorithm: sliding_window, or another window`,
		"rate: 5/hour, algorithm: leaky_bucket, count_denied: true":    `"count_denied" does not apply to leaky_bucket; add algorithm: sliding_window`,
		"rate: 5/hour, lease: 5s":                                      `"lease" does not apply to a rate; add concurrency`,
		"rate: unlimited, burst: 5":                                    `"burst" cannot be combined with rate: unlimited`,
		"concurrency: 5, burst: 5":                                     `"burst" cannot be combined with concurrency`,
		"concurrency: 5, lease: 5":                                     `"lease" must be a duration such as 5s, not a number; for seconds, write 5s`,
		"concurrency: 5, lease: 1ms":                                   "1ms must be from 10ms to 24h",
		"concurrency: many":                                            `"concurrency" must be a whole number`,
		"rate: 5/day, algorithm: fixed_window, timezone: Nowhere/Land": `unknown timezone "Nowhere/Land"; use an IANA time zone name`,
		"rate: 5/day, algorithm: fixed_window, timezone: Local":        `unknown timezone "Local"`,
		"rate: 5/3h, algorithm: fixed_window, timezone: UTC":           `"timezone" needs a rate per minute, hour, day`,
		"rate: 5/day, algorithm: fixed_window, timezone: UTC, anchor: first_request": `"timezone" cannot be combined with anchor: first_request`,
		"rate: 5/hour, algorithm: sliding_buckets, buckets: 100000":                  `"buckets" must be from 1 to`,
		"rate: 5/hour, algorithm: sliding_buckets, edge: round":                      "use one of weighted, lenient, strict",
		"rate: 5/hour, algorithm: sliding_log, count_denied: perhaps":                `"count_denied" must be true or false, not "perhaps"`,
		"rate: 0/hour":                                               "warning: a limit of 0 refuses every request",
		"concurrency: 0":                                             "warning: a limit of 0 refuses every request",
		"rate: 5/hour, cost: 6":                                      "the cost 6 is more than the limit of 5",
		"rate: 5/hour, mode: disabled":                               "to switch the rule off, write disabled: true",
		"rate: 5/hour, mode: shaddow":                                `did you mean "shadow"?`,
		"rate: 5/hour, key: a, percent: 101":                         `"percent" must be from 0 to 100, not 101`,
		"rate: 5/hour, percent: 50":                                  `"percent" is a share of the keys, but this rule has no key`,
		"rate: 5/hour, key: client_ip, percent: 0":                   `"percent" of 0 never enforces the limit; use mode: shadow instead`,
		"rate: 5/hour, disabled: maybe":                              `"disabled" must be true or false, not "maybe"`,
		"rate: 5/hour, on_store_error: denny":                        `did you mean "deny"?`,
		"rate: 5/hour, on_store_error: {share: 0.5}":                 `on_store_error has no "policy"`,
		"rate: 5/hour, on_store_error: {policy: deny, share: 0.5}":   `"share" applies only to policy: local`,
		"rate: 5/hour, on_store_error: {policy: local, share: 1.5}":  `"share" must be more than 0 and at most 1, not 1.5`,
		"rate: 5/hour, on_store_error: {policy: local, share: half}": `"share" must be a number, not "half"`,
		"rate: 5/hour, on_store_error: {policy: local, share: 0.5}":  "",
	}.run(t, "", "")
}

// Every answer that on_limit can describe arrives in the rule.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	for keys, want := range map[string]string{
		"reject":                            "reject 429",
		"{status: 503}":                     "reject 503",
		"shadow_ban":                        "shadow_ban 200",
		"{action: shadow_ban, status: 204}": "shadow_ban 204",
		"{action: shadow_ban, latency: 120ms±30ms}":                      "shadow_ban 200 latency 120ms 30ms",
		"{action: shadow_ban, latency: 120ms +- 30ms}":                   "shadow_ban 200 latency 120ms 30ms",
		"{retry_after_jitter: 10%}":                                      "reject 429 jitter 10 0s",
		"{retry_after_jitter: 5s}":                                       "reject 429 jitter 0 5s",
		"{body: no}":                                                     "reject 429 text/plain; charset=utf-8 no",
		"{body: \"{}\", content_type: application/json}":                 "reject 429 application/json {}",
		"{headers: {x-why: because, X-N: 5}}":                            "reject 429 map[X-N:5 X-Why:because]",
		"{body: {json: '{\"a\": 1}', html: <p>, application/xml: <x/>}}": "reject 429 [application/json text/html; charset=utf-8 application/xml]",
		"{body: \"wait {{.RetryAfter}}\"}":                               "reject 429 [text/plain; charset=utf-8]",
	} {
		got, list := readLimits("rate: 5/hour, on_limit: " + keys)
		if list == nil {
			t.Errorf("%s: %s", keys, got)
			continue
		}
		o := &list[0].OnLimit
		text := fmt.Sprint(o.Action, " ", o.Status)
		if o.Latency != (rules.Latency{}) {
			text += fmt.Sprint(" latency ", o.Latency.Base, " ", o.Latency.Spread)
		}
		if o.Jitter != (rules.Jitter{}) {
			text += fmt.Sprint(" jitter ", o.Jitter.Percent, " ", o.Jitter.Most)
		}
		if o.Body != "" {
			text += " " + o.ContentType + " " + o.Body
		}
		if o.Headers != nil {
			text += " " + fmt.Sprint(o.Headers)
		}
		var types []string
		for _, b := range o.Bodies {
			types = append(types, b.ContentType)
		}
		if types != nil {
			text += " " + fmt.Sprint(types)
		}
		if text != want {
			t.Errorf("%s: %s, want %s", keys, text, want)
		}
	}
}

func TestMistakesInOutcomes(t *testing.T) {
	t.Parallel()
	sayings{
		"429":                               `"on_limit" must be an action or a mapping, not a number; write on_limit: {status: 429}`,
		"rejekt":                            `unknown action "rejekt", did you mean "reject"?`,
		"throw":                             `unknown action "throw"; use one of reject, delay, shadow_ban, queue`,
		"{status: 200}":                     `"status" must be from 300 to 599, not 200`,
		"{action: shadow_ban, status: 199}": `"status" must be from 200 to 599, not 199`,
		"{content_type: text/html}":         `"content_type" needs a body`,
		"{latency: 5ms}":                    `"latency" does not apply to action: reject`,
		"{max_wait: 5s}":                    `"max_wait" does not apply to action: reject`,
		"{ttl: 5s}":                         `"ttl" does not apply to action: reject`,
		"{action: shadow_ban, retry_after_jitter: 5s}":  `"retry_after_jitter" does not apply to action: shadow_ban`,
		"{retry_after_jitter: 0%}":                      `must be from 1% to 100%, or a duration such as 5s, not "0%"`,
		"{retry_after_jitter: 2h}":                      "or use a percentage such as 10%",
		"{action: shadow_ban, latency: 5}":              `"latency" must be a duration such as 5s, not a number`,
		"{action: shadow_ban, latency: 5m}":             "for example 120ms or 120ms±30ms",
		"{action: shadow_ban, latency: 5ms±6ms}":        "6ms must be from",
		"{headers: [a]}":                                `"headers" must be a mapping (name: value), not a list`,
		"{headers: {a b: c}}":                           `invalid header name "a b"`,
		"{headers: {Content-Length: 5}}":                "cannot be set: the server controls it",
		"{headers: {content-type: text/html}}":          "to set Content-Type, use content_type next to the body",
		"{headers: {X-A: [b]}}":                         "the header X-A must be text, not a list",
		`{headers: {X-A: "a\r\nb"}}`:                    "has characters that are not allowed in headers",
		`{body: x, content_type: "a\nb"}`:               "the content type has characters that are not allowed in headers",
		"{body: {}}":                                    `"body" must have from 1 to 16 types, such as json and html`,
		"{body: {jsn: x}}":                              `unknown body type "jsn", did you mean "json"?`,
		"{body: {json: '{}', application/json: '{}'}}":  "duplicate body for application/json",
		"{body: {json: '{}'}, content_type: text/html}": `"content_type" cannot be combined with a body for each type`,
		"{body: {json: '{{.limit}'}}":                   "error",
		"{body: {json: '{\"a\": {{.RetryAfter}}'}}":     "the body is not valid JSON once its variables are filled in",
		"{body: \"{{.nothing}}\"}":                      "use one of {{.",
		"{action: delay}":                               `"max_wait" is missing, the longest time a request may wait`,
		"{action: delay, max_wait: 5}":                  `"max_wait" must be a duration such as 5s, not a number`,
		"{action: delay, max_wait: 2h}":                 `"max_wait": 2h must be from 1ms to 1h`,
		"[reject]":                                      `"on_limit" must be text, not a list`,
	}.run(t, "rate: 5/hour, on_limit: ", "")
	sayings{
		"concurrency: 5, on_limit: delay":                                                "the time until a slot is free is unknown",
		"concurrency: 5, on_limit: queue":                                                "the time until a slot is free is unknown",
		"rate: 5/hour, algorithm: fixed_window, on_limit: {action: delay, max_wait: 5s}": "action: delay does not work with algorithm: fixed_window; use algorithm: leaky_bucket",
		"rate: 5/hour, algorithm: sliding_log, count_denied: true, on_limit: queue":      "queued requests would keep using up the limit; remove one of them",
		"rate: 5/s, algorithm: leaky_bucket, delay_after: 5, on_limit: delay":            "no request ever waits: the first 5 are served at once, and the rest are refused",
		"rate: 5/s, algorithm: leaky_bucket, on_limit: {action: delay, max_wait: 1m}":    `"max_wait" has no effect`,
	}.run(t, "", "")
}

// A queue has the defaults but for what the rule says.
func TestQueueing(t *testing.T) {
	t.Parallel()
	said, list := readLimits("rate: 5/hour, key: client_ip, on_limit: queue", "rate: 6/hour, key: client_ip, on_limit: {action: queue, "+
		"max_entries: 5, max_bytes: 2MB, max_body: 64KiB, key_share: 20%, ttl: 2h, retries: 0, backoff: 2s..1m, concurrency: 4, timeout: 5s, keep: 0s, keep_response: 1_000}")
	if said != "" || len(list) != 2 {
		t.Fatal(said)
	}
	if got := *list[0].OnLimit.Queueing; got != rules.DefaultQueueing() {
		t.Errorf("%+v", got)
	}
	want := rules.Queueing{
		MaxEntries: 5, MaxBytes: 2_000_000, MaxBody: 64 << 10, KeyShare: 20, TTL: 2 * time.Hour, BackoffLeast: 2 * time.Second, BackoffMost: time.Minute,
		Concurrency: 4, Timeout: 5 * time.Second, KeepResponse: 1000,
	}
	if got := *list[1].OnLimit.Queueing; got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestMistakesInQueueing(t *testing.T) {
	t.Parallel()
	sayings{
		"max_entries: 0":       `"max_entries" must be from 1 to`,
		"max_bytes: []":        `"max_bytes" must be a size such as 100MB, not a list`,
		"max_bytes: lots":      `"max_bytes": invalid size "lots"; write a number of bytes`,
		"max_bytes: 5XB":       "invalid size",
		"max_bytes: 1__0":      "invalid size",
		"max_body: 65MiB":      `"max_body" must be from 0 to 67108864 bytes, not 65MiB`,
		"key_share: 10":        `"key_share" must be from 1% to 100%; for example 10%`,
		"key_share: 101%":      `"key_share" must be from 1% to 100%`,
		"ttl: 5ms":             `"ttl": 5ms must be from 1s`,
		"ttl: soon":            `invalid duration "soon": want a number and a unit, such as 250ms or 2m`,
		"retries: -1":          `"retries" must be from 0 to 1000`,
		"backoff: 5m..1s":      "for example 1s..5m",
		"backoff: 5":           `"backoff" must be a duration such as 5s`,
		"concurrency: 0":       `"concurrency" must be from 1 to 1000`,
		"timeout: 2h":          `"timeout": 2h must be from 1ms`,
		"keep_response: 2MiB":  `"keep_response" must be from 0 to 1048576 bytes`,
		"backoff: 1500ms":      "",
		"max_bytes: 1_000_000": "",
	}.run(t, "rate: 5/hour, key: client_ip, on_limit: {action: queue, ", "}")
}
