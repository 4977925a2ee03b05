package rls_test

import (
	"context"
	"testing"

	envoy "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/answer"
	"github.com/headgate/headgate/internal/decide/admission"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/door/rls"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

const compatRules = `
domain: api
compat: envoy
descriptors:
  - {key: plain, rate_limit: {unit: minute, requests_per_unit: 3, name: plain}}
  - {key: hour, rate_limit: {unit: hour, requests_per_unit: 20}}
  - {key: none, rate_limit: {unit: minute, requests_per_unit: 0}}
  - {key: tried, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 20}}
  - {key: first, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 2}}
  - {key: second, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 9}}
  - {key: free, rate_limit: {unlimited: true, name: free}}
  - {key: paid, rate_limit: {unit: minute, requests_per_unit: 50, replaces: [{name: free}, {name: plain}]}}
`

// The expected answers are those of envoyproxy/ratelimit, request by request.
func TestCompatEnvoy(t *testing.T) {
	one := func(key string, cost uint64) *envoy.RateLimitRequest {
		return request(hits(cost, descriptor(key, "x")))
	}
	minute := func(n uint32, cost uint64) *envoy.RateLimitRequest {
		return request(hits(cost, limited(n, typev3.RateLimitUnit_MINUTE, descriptor("plain", "x"))))
	}
	for _, tt := range []struct {
		name  string
		steps []step
	}{
		{"a refused limit of the request is charged", []step{
			{minute(3, 5), over, codesOf{over}, left{0}},
			{minute(3, 1), over, codesOf{over}, left{0}},
		}},
		{"it counts with the rule of its entries", []step{
			{minute(9, 2), ok, codesOf{ok}, left{7}},
			{one("plain", 1), ok, codesOf{ok}, left{0}},
			{minute(9, 1), ok, codesOf{ok}, left{5}},
		}},
		{"a quota is charged, whatever another says", []step{
			{request(hits(5, descriptor("first", "x")), descriptor("second", "x")), ok, codesOf{over, ok}, left{0, 8}},
			{one("first", 1), over, codesOf{over}, left{0}},
		}},
		{"so is a shadow", []step{
			{one("tried", 50), ok, codesOf{ok}, left{0}},
			{one("tried", 1), ok, codesOf{ok}, left{0}},
		}},
		{"also when another descriptor refuses", []step{
			{request(descriptor("tried", "x"), hits(4, descriptor("plain", "x"))), over, codesOf{ok, over}, left{19, 0}},
			{one("tried", 1), ok, codesOf{ok}, left{18}},
		}},
		{"0 is over when the count is", []step{
			{one("plain", 3), ok, codesOf{ok}, left{0}},
			{one("plain", 0), ok, codesOf{ok}, left{0}},
			{one("plain", 1), over, codesOf{over}, left{0}},
			{one("plain", 0), over, codesOf{over}, left{0}},
		}},
		{"a limit of 0 counts too", []step{
			{one("none", 0), ok, codesOf{ok}, left{0}},
			{one("none", 1), over, codesOf{over}, left{0}},
			{one("none", 0), over, codesOf{over}, left{0}},
		}},
		{"one count twice", []step{
			{request(hits(4, descriptor("plain", "x")), descriptor("plain", "x")), over, codesOf{over, over}, left{0, 0}},
		}},
		{"unlimited is not replaced", []step{
			{request(descriptor("free", "x"), descriptor("paid", "x"), descriptor("plain", "x")), ok, codesOf{ok, ok, ok}, left{4294967295, 49, 0}},
			{one("plain", 1), ok, codesOf{ok}, left{2}},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) { start1(t, setup{rules: compatRules}).trace(tt.steps) })
	}
}

// A refused request takes what remains, also with algorithms that the original does not
// have, and if another limit refuses it.
func TestCompatEnvoyChargesEveryAlgorithm(t *testing.T) {
	for _, algorithm := range []string{
		"fixed_window", "token_bucket", "leaky_bucket", "sliding_log", "sliding_window", "sliding_buckets",
		"sliding_log, count_denied: true", "token_bucket, burst: 20",
	} {
		t.Run(algorithm, func(t *testing.T) {
			f := start1(t, setup{rules: `
domain: api
compat: envoy
descriptors:
  - {key: k, rate_limit: {unit: hour, requests_per_unit: 20, algorithm: ` + algorithm + `}}
  - {key: seen, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 20, algorithm: ` + algorithm + `}}
  - {key: none, rate_limit: {unit: hour, requests_per_unit: 0}}
`})
			ask := func(n uint64, pairs ...string) *envoy.RateLimitRequest {
				return request(hits(n, descriptor(pairs...)))
			}
			f.trace([]step{
				{ask(0, "k", "a"), ok, codesOf{ok}, left{20}},
				{ask(15, "k", "a"), ok, codesOf{ok}, left{5}},
				{ask(10, "k", "a"), over, codesOf{over}, left{0}},
				{ask(1, "k", "a"), over, codesOf{over}, left{0}},
				{ask(50, "k", "b"), over, codesOf{over}, left{0}},
				{ask(1, "k", "b"), over, codesOf{over}, left{0}},
				{request(hits(15, descriptor("k", "c")), descriptor("none", "c")), over, codesOf{ok, over}, left{5, 0}},
				{ask(0, "k", "c"), ok, codesOf{ok}, left{5}},
				{ask(5, "k", "c"), ok, codesOf{ok}, left{0}},
				{ask(0, "k", "c"), ok, codesOf{ok}, left{0}},
				{request(hits(15, descriptor("k", "d")), hits(15, descriptor("k", "d"))), over, codesOf{ok, over}, left{5, 0}},
				{ask(50, "seen", "a"), ok, codesOf{ok}, left{0}},
				{ask(1, "seen", "a"), ok, codesOf{ok}, left{0}},
			})
			refused := f.ask(ask(1, "k", "a")).GetStatuses()[0].GetDurationUntilReset().GetSeconds()
			if refused < 1 || refused > 2*3600 {
				t.Errorf("reset %d s", refused)
			}
		})
	}
}

// The reset is always the end of the window. It is 12:00:15 on a Saturday.
func TestCompatEnvoyReset(t *testing.T) {
	f := start1(t, setup{rules: compatRules, rls: rls.Options{
		Asker:  admission.Asker{Dialect: answer.None},
		Legacy: &rls.LegacyHeaders{Limit: "RateLimit-Limit", Remaining: "RateLimit-Remaining", Reset: "RateLimit-Reset"},
	}})
	const week, month, year = 4*86400 + 43185, 12*86400 - 43200 - 15, 0
	for _, tt := range []struct {
		name          string
		request       *envoy.RateLimitRequest
		resets        []int64
		limit, header string
	}{
		{"a fresh key", request(hits(0, descriptor("plain", "a"))), []int64{45}, "3", "45"},
		{"a cost above the limit", request(hits(9, descriptor("plain", "a"))), []int64{45}, "3", "45"},
		{"a limit of 0", request(descriptor("none", "a")), []int64{45}, "0", "45"},
		{"a limit of 0 that is only looked at", request(hits(0, descriptor("none", "b"))), []int64{45}, "0", "45"},
		{
			"the last that refuses", request(
				hits(21, descriptor("hour", "a")), hits(4, descriptor("plain", "b")), descriptor("second", "a")),
			[]int64{3585, 45, 45},
			"3", "45",
		},
		{
			"the last that refuses, the other way round", request(
				hits(4, descriptor("plain", "b")), hits(21, descriptor("hour", "a"))),
			[]int64{45, 3585},
			"20", "3585",
		},
		{
			"a quota behind the last that refuses", request(
				hits(4, descriptor("plain", "b")), hits(10, descriptor("first", "q"))),
			[]int64{45, 45},
			"3", "45",
		},
		{
			"a quota before the last that refuses", request(
				hits(10, descriptor("first", "q")), hits(4, descriptor("plain", "b"))),
			[]int64{45, 45},
			"3", "45",
		},
		{"quotas alone", request(hits(10, descriptor("first", "r")), hits(10, descriptor("second", "r"))), []int64{45, 45}, "2", "45"},
		{"a week", request(limited(4, typev3.RateLimitUnit(7), descriptor("w", "a"))), []int64{week}, "4", ""},
		{"a month of 30 days", request(limited(4, typev3.RateLimitUnit_MONTH, descriptor("w", "a"))), []int64{month}, "4", ""},
		{"a year of 365 days", request(limited(4, typev3.RateLimitUnit_YEAR, descriptor("w", "a"))), []int64{year}, "4", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			response := f.ask(tt.request)
			for i, s := range response.GetStatuses() {
				want := tt.resets[i]
				if want == year {
					want = 365*86400 - (start/1_000_000)%(365*86400)
				}
				if got := s.GetDurationUntilReset(); got.GetSeconds() != want {
					t.Errorf("descriptor %d: %v, want %ds", i, got, want)
				}
			}
			h := headers(response)
			if h["ratelimit-limit"] != tt.limit || tt.header != "" && h["ratelimit-reset"] != tt.header {
				t.Errorf("%v", h)
			}
		})
	}
}

// gone is a store that cannot answer.
type gone struct{ store.Store }

func (gone) Do(_ context.Context, b *store.Batch) {
	b.Each(func([]store.Op, []store.Decision, store.Mode) error {
		return headgate.ErrUnavailable
	})
}

// Without a store the state of the window is unknown, so clients should retry soon, not
// when it ends.
func TestResetWithoutAStore(t *testing.T) {
	for _, compat := range []string{"envoy", "none"} {
		f := start1(t, setup{store: gone{}, rules: `
domain: api
compat: ` + compat + `
descriptors: [{key: k, rate_limit: {unit: month, requests_per_unit: 3, on_store_error: deny}}]
`})
		response := f.ask(request(descriptor("k", "a")))
		if s := response.GetStatuses()[0]; s.GetCode() != over || s.GetDurationUntilReset().GetSeconds() != 1 {
			t.Errorf("compat: %s: %v", compat, s)
		}
		if after := headers(response)["retry-after"]; after != "1" {
			t.Errorf("compat: %s: Retry-After: %s", compat, after)
		}
	}
}

// Refused requests also take what remains in the fallback store.
func TestLocalStoreChargesEveryAlgorithm(t *testing.T) {
	for _, algorithm := range []string{"fixed_window", "token_bucket", "sliding_log"} {
		f := start1(t, setup{store: gone{}, engine: []engine.Option{engine.WithFallback(memory.New())}, rules: `
domain: api
compat: envoy
descriptors: [{key: k, rate_limit: {unit: hour, requests_per_unit: 20, on_store_error: local, algorithm: ` + algorithm + `}}]
`})
		f.trace([]step{
			{request(hits(15, descriptor("k", "a"))), ok, codesOf{ok}, left{5}},
			{request(hits(10, descriptor("k", "a"))), over, codesOf{over}, left{0}},
			{request(hits(1, descriptor("k", "a"))), over, codesOf{over}, left{0}},
		})
	}
}

// Filters that choose an upstream by quota read the exhausted quotas from the metadata.
func TestQuotaModeInMetadata(t *testing.T) {
	f := start1(t, setup{rules: compatRules, rls: rls.Options{DynamicMetadata: true}})
	for _, tt := range []struct {
		name       string
		request    *envoy.RateLimitRequest
		enabled    bool
		violations any
	}{
		{"no quota", request(descriptor("plain", "x")), false, nil},
		{"no limit", request(descriptor("other", "x")), false, nil},
		{"some left", request(hits(2, descriptor("first", "x")), descriptor("second", "x")), true, nil},
		{"one has run out", request(descriptor("plain", "x"), descriptor("first", "x"), descriptor("second", "x")), true, []any{1.0}},
		{"all have", request(descriptor("first", "x"), hits(99, descriptor("second", "x"))), true, []any{0.0, 1.0}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := f.ask(tt.request).GetDynamicMetadata().AsMap()
			equal(t, got["quotaModeEnabled"], any(tt.enabled))
			equal(t, got["quotaModeViolations"], tt.violations)
		})
	}
}

// A request that can never pass has no reset: 0s would mean now.
func TestNoResetOfWhatNeverPasses(t *testing.T) {
	f := start1(t, setup{rules: compatRules[:12] + compatRules[26:]})
	for _, r := range []*envoy.RateLimitRequest{
		request(hits(9, descriptor("plain", "a"))), request(descriptor("none", "a")),
	} {
		if s := f.ask(r).GetStatuses()[0]; s.GetCode() != over || s.DurationUntilReset != nil {
			t.Errorf("%v", s)
		}
	}
}
