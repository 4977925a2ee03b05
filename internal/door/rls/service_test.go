package rls_test

import (
	"context"
	"strings"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	envoy "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headgate/headgate/internal/answer"
	"github.com/headgate/headgate/internal/decide/admission"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/door/rls"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/store/memory"
)

type (
	codesOf = []envoy.RateLimitResponse_Code
	left    = []uint32
)

const threeLimits = `
domain: api
limits:
  - {name: user, match: {attributes: {user: {present: true}}}, key: [user], rate: 3/minute, algorithm: fixed_window}
  - {name: team, match: {attributes: {team: {present: true}}}, key: [team], rate: 2/hour, algorithm: fixed_window}
  - {name: free, match: {attributes: {plan: free}}, rate: unlimited}
`

func TestStatusesAreInTheOrderOfTheRequest(t *testing.T) {
	f := start1(t, setup{rules: threeLimits})
	f.trace([]step{
		{request(descriptor("user", "ann"), descriptor("none", "x"), descriptor("team", "red")), ok, codesOf{ok, ok, ok}, left{2, 0, 1}},
		{request(descriptor("team", "red"), descriptor("plan", "free"), descriptor("user", "ann")), ok, codesOf{ok, ok, ok}, left{0, 4294967295, 1}},
		{request(descriptor("user", "ann"), descriptor("team", "red")), over, codesOf{ok, over}, left{1, 0}},
		{request(descriptor("user", "ann")), ok, codesOf{ok}, left{0}}, // the refused request was not charged
		{request(descriptor("user", "ann")), over, codesOf{over}, left{0}},
	})
}

func TestCurrentLimitAndReset(t *testing.T) {
	f := start1(t, setup{rules: `
domain: api
limits:
  - {name: second, match: {attributes: {k: second}}, rate: 3/second, algorithm: fixed_window}
  - {name: minute, match: {attributes: {k: minute}}, rate: 3/minute, algorithm: fixed_window}
  - {name: hour, match: {attributes: {k: hour}}, rate: 3/hour, algorithm: fixed_window}
  - {name: day, match: {attributes: {k: day}}, rate: 3/day, algorithm: fixed_window}
  - {name: week, match: {attributes: {k: week}}, rate: 3/week, algorithm: fixed_window}
  - {name: month, match: {attributes: {k: month}}, rate: 3/month, algorithm: fixed_window}
  - {name: year, match: {attributes: {k: year}}, rate: 3/year, algorithm: fixed_window}
  - {name: odd, match: {attributes: {k: odd}}, rate: 300/3h, algorithm: fixed_window}
  - {name: short, match: {attributes: {k: short}}, rate: 5/100ms, algorithm: fixed_window}
  - {name: broken, match: {attributes: {k: broken}}, rate: 5/1500ms, algorithm: fixed_window}
  - {name: bucket, match: {attributes: {k: bucket}}, rate: 60/minute}
`})
	type unit = envoy.RateLimitResponse_RateLimit_Unit
	rows := []struct {
		name       string
		requests   uint32
		unit       unit
		multiplier uint32
		reset      int64
	}{
		{"second", 3, envoy.RateLimitResponse_RateLimit_SECOND, 0, 1},
		{"minute", 3, envoy.RateLimitResponse_RateLimit_MINUTE, 0, 45},
		{"hour", 3, envoy.RateLimitResponse_RateLimit_HOUR, 0, 59*60 + 45},
		{"day", 3, envoy.RateLimitResponse_RateLimit_DAY, 0, 12*3600 - 15},
		{"week", 3, envoy.RateLimitResponse_RateLimit_WEEK, 0, 36*3600 - 15},          // until Monday, not Thursday
		{"month", 3, envoy.RateLimitResponse_RateLimit_MONTH, 0, (9*24+12)*3600 - 15}, // until 1 December, not the 3rd
		{"year", 3, envoy.RateLimitResponse_RateLimit_YEAR, 0, ((9+31)*24+12)*3600 - 15},
		{"odd", 300, envoy.RateLimitResponse_RateLimit_HOUR, 3, 3*3600 - 15},
		{"short", 50, envoy.RateLimitResponse_RateLimit_SECOND, 0, 1},
		{"broken", 5, envoy.RateLimitResponse_RateLimit_SECOND, 2, 2},
		{"bucket", 60, envoy.RateLimitResponse_RateLimit_MINUTE, 0, 1},
	}
	for _, row := range rows {
		status := f.ask(request(descriptor("k", row.name))).GetStatuses()[0]
		l := status.GetCurrentLimit()
		if l.GetName() != row.name || l.GetRequestsPerUnit() != row.requests || l.GetUnit() != row.unit || l.GetUnitMultiplier().GetValue() != row.multiplier {
			t.Errorf("%s: %v", row.name, l)
		}
		if reset := status.GetDurationUntilReset(); reset.GetSeconds() != row.reset || reset.GetNanos() != 0 {
			t.Errorf("%s: reset in %s, want %d s", row.name, reset.AsDuration(), row.reset)
		}
	}
}

// Envoy turns a refusal's reset into Retry-After, in whole seconds. It must not be early.
func TestResetOfARefusalIsWhenItWouldPass(t *testing.T) {
	f := start1(t, setup{rules: "domain: api\nlimits: [{name: b, rate: 4/minute}]"})
	f.ask(&envoy.RateLimitRequest{Domain: "api", HitsAddend: 4, Descriptors: []*common.RateLimitDescriptor{descriptor("a", "b")}})
	f.now.Add(100_000)
	status := f.ask(request(descriptor("a", "b"))).GetStatuses()[0]
	if status.GetCode() != over || status.GetDurationUntilReset().AsDuration() != 15*time.Second {
		t.Errorf("%v, want a refusal for 14.9 s, rounded up", status)
	}
}

func TestHits(t *testing.T) {
	f := start1(t, setup{rules: threeLimits})
	ann := func(n uint32, d ...*common.RateLimitDescriptor) *envoy.RateLimitRequest {
		r := request(d...)
		r.HitsAddend = n
		return r
	}
	f.trace([]step{
		{ann(0, descriptor("user", "ann")), ok, codesOf{ok}, left{2}}, // 0 is 1
		{ann(2, descriptor("user", "ann")), ok, codesOf{ok}, left{0}},
		{ann(2, descriptor("user", "bob"), hits(1, descriptor("team", "red"))), ok, codesOf{ok, ok}, left{1, 1}},
		{ann(9, hits(1, descriptor("user", "bob"))), ok, codesOf{ok}, left{0}},
		{ann(1, hits(1<<63, descriptor("user", "eve"))), over, codesOf{over}, left{0}}, // exceeds an int64
		{ann(4294967295, descriptor("user", "eve")), over, codesOf{over}, left{0}},
		{ann(3, descriptor("user", "eve")), ok, codesOf{ok}, left{0}},
	})
}

func TestExplicitZeroHitsPeek(t *testing.T) {
	f := start1(t, setup{rules: threeLimits})
	peek := request(hits(0, descriptor("user", "ann")))
	f.trace([]step{
		{peek, ok, codesOf{ok}, left{3}},
		{peek, ok, codesOf{ok}, left{3}},
		{request(hits(2, descriptor("user", "ann"))), ok, codesOf{ok}, left{1}},
		{peek, ok, codesOf{ok}, left{1}},
		{request(descriptor("user", "ann")), ok, codesOf{ok}, left{0}},
		{peek, over, codesOf{over}, left{0}}, // nothing remains
	})
}

func TestNegativeHitsGiveBack(t *testing.T) {
	f := start1(t, setup{rules: threeLimits})
	f.trace([]step{
		{request(hits(3, descriptor("user", "ann"))), ok, codesOf{ok}, left{0}},
		{request(refund(2, descriptor("user", "ann"))), ok, codesOf{ok}, left{2}},
		{request(hits(2, descriptor("user", "ann"))), ok, codesOf{ok}, left{0}},
		{request(refund(99, descriptor("user", "ann"))), ok, codesOf{ok}, left{3}}, // not more than the limit
		{request(refund(1, descriptor("user", "bob"))), ok, codesOf{ok}, left{3}},
	})
}

// In envoyproxy/ratelimit, a request for 10 of 3 uses up the whole window.
func TestRefusedHitsDoNotBurnTheWindow(t *testing.T) {
	f := start1(t, setup{rules: threeLimits})
	f.trace([]step{
		{request(hits(10, descriptor("user", "ann"))), over, codesOf{over}, left{0}},
		{request(descriptor("user", "ann")), ok, codesOf{ok}, left{2}},
	})
}

// In envoyproxy/ratelimit, a limit without a unit crashes the process.
func TestLimitWithoutUnitIsAnError(t *testing.T) {
	f := start1(t, setup{rules: threeLimits})
	rows := []struct {
		name string
		d    *common.RateLimitDescriptor
		says string
	}{
		{"unset", limited(5, typev3.RateLimitUnit_UNKNOWN, descriptor("a", "b")), "unit is not set"},
		{"unknown", limited(5, 99, descriptor("a", "b")), "unknown limit.unit 99"},
		{"negative", limited(5, -1, descriptor("a", "b")), "unknown limit.unit -1"},
		{"empty", &common.RateLimitDescriptor{Limit: &common.RateLimitDescriptor_RateLimitOverride{}}, "unit is not set"},
		{"no periods", func() *common.RateLimitDescriptor {
			d := limited(5, typev3.RateLimitUnit_HOUR, descriptor("a", "b"))
			d.Limit.UnitMultiplier = wrapperspb.UInt32(0)
			return d
		}(), "unit_multiplier must not be 0"},
		{"a century", func() *common.RateLimitDescriptor {
			d := limited(5, typev3.RateLimitUnit_YEAR, descriptor("a", "b"))
			d.Limit.UnitMultiplier = wrapperspb.UInt32(100)
			return d
		}(), "longer than"},
	}
	for _, row := range rows {
		_, err := f.client.ShouldRateLimit(context.Background(), request(descriptor("user", "ann"), row.d))
		if grpcstatus.Code(err) != codes.InvalidArgument || !strings.Contains(grpcstatus.Convert(err).Message(), row.says) {
			t.Errorf("%s: %v, want InvalidArgument: …%s…", row.name, err, row.says)
		}
	}
	f.trace([]step{{request(descriptor("user", "ann")), ok, codesOf{ok}, left{2}}}) // nothing was charged
}

func TestLimitOfTheDescriptorReplacesTheRules(t *testing.T) {
	f := start1(t, setup{rules: threeLimits})
	day := func(n uint32) *envoy.RateLimitRequest {
		return request(limited(n, typev3.RateLimitUnit_DAY, descriptor("user", "ann")))
	}
	f.trace([]step{
		{day(5), ok, codesOf{ok}, left{4}},
		{day(5), ok, codesOf{ok}, left{3}},
		{day(9), ok, codesOf{ok}, left{6}}, // the count survives a change of the number
		{day(2), over, codesOf{over}, left{0}},
		{request(limited(1, typev3.RateLimitUnit_SECOND, descriptor("user", "ann"))), ok, codesOf{ok}, left{0}},
		{request(limited(0, typev3.RateLimitUnit_DAY, descriptor("none", "x"))), over, codesOf{over}, left{0}},
		{request(descriptor("user", "ann")), ok, codesOf{ok}, left{2}}, // the rule has a separate count
	})
	status := f.ask(day(9)).GetStatuses()[0]
	if l := status.GetCurrentLimit(); l.GetRequestsPerUnit() != 9 || l.GetUnit() != envoy.RateLimitResponse_RateLimit_DAY {
		t.Errorf("current_limit: %v", l)
	}
	r := limited(7, typev3.RateLimitUnit_HOUR, descriptor("user", "ann"))
	r.Limit.UnitMultiplier = wrapperspb.UInt32(6)
	status = f.ask(request(r)).GetStatuses()[0]
	if l := status.GetCurrentLimit(); l.GetUnit() != envoy.RateLimitResponse_RateLimit_HOUR || l.GetUnitMultiplier().GetValue() != 6 ||
		status.GetDurationUntilReset().GetSeconds() != 6*3600-15 {
		t.Errorf("7 in 6 hours: %v", status)
	}
}

// In envoyproxy/ratelimit, (u, x_1) and (u_x, 1) share a counter, so a tenant can be
// refused because of another.
func TestEntriesDoNotRunTogether(t *testing.T) {
	f := start1(t, setup{rules: `
domain: api
limits:
  - {name: pair, match: {attributes: {a: {present: true}}}, key: [a, b], rate: 1/minute, algorithm: fixed_window}
  - {name: exact, match: {attributes: {x: y_z}}, rate: 0/minute, algorithm: fixed_window}
`})
	override := func(pairs ...string) *envoy.RateLimitRequest {
		return request(limited(1, typev3.RateLimitUnit_DAY, descriptor(pairs...)))
	}
	f.trace([]step{
		{override("u", "x_1"), ok, codesOf{ok}, left{0}},
		{override("u_x", "1"), ok, codesOf{ok}, left{0}},
		{override("u", "x", "1", ""), ok, codesOf{ok}, left{0}},
		{override("u", "x_1"), over, codesOf{over}, left{0}},
		{request(descriptor("a", "1_2", "b", "3")), ok, codesOf{ok}, left{0}},
		{request(descriptor("a", "1", "b", "2_3")), ok, codesOf{ok}, left{0}},
		{request(descriptor("a", "1", "b", "2_3")), over, codesOf{over}, left{0}},
		{request(descriptor("x_y", "z")), ok, codesOf{ok}, left{0}}, // not (x, y_z)
	})
}

func TestUnknownDomainPasses(t *testing.T) {
	f := start1(t, setup{rules: threeLimits})
	r := request(descriptor("user", "ann"), limited(0, typev3.RateLimitUnit_DAY, descriptor("a", "b")))
	r.Domain = "other"
	f.trace([]step{{r, ok, codesOf{ok, ok}, left{0, 0}}})
	if s := f.ask(r).GetStatuses()[1]; s.GetCurrentLimit() != nil {
		t.Errorf("a limit applies in an unknown domain: %v", s)
	}
	f = start1(t, setup{rules: threeLimits, engine: []engine.Option{engine.WithUnknownDomain(engine.UnknownDomainRefuse)}})
	f.trace([]step{{r, over, codesOf{over, over}, left{0, 0}}})
}

func TestRequestsThatAskNothing(t *testing.T) {
	f := start1(t, setup{rules: threeLimits})
	for says, r := range map[string]*envoy.RateLimitRequest{
		"domain must not be empty":          {Descriptors: []*common.RateLimitDescriptor{descriptor("user", "ann")}},
		"descriptor list must not be empty": {Domain: "api"},
		"more than 1024 descriptors":        {Domain: "api", Descriptors: make([]*common.RateLimitDescriptor, 1025)},
	} {
		for i := range r.Descriptors {
			if r.Descriptors[i] == nil {
				r.Descriptors[i] = descriptor()
			}
		}
		_, err := f.client.ShouldRateLimit(context.Background(), r)
		if grpcstatus.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want InvalidArgument: …%s", err, says)
		}
	}
	f.trace([]step{{request(descriptor()), ok, codesOf{ok}, left{0}}})
}

func TestHeadersAndBody(t *testing.T) {
	f := start1(t, setup{rules: threeLimits})
	got := headers(f.ask(request(descriptor("user", "ann"), descriptor("plan", "free"), descriptor("team", "red"))))
	want := map[string]string{
		"x-ratelimit-limit": "2", "x-ratelimit-remaining": "1", "x-ratelimit-reset": "3585",
		"ratelimit-policy": `"user";q=3;w=60, "team";q=2;w=3600`, "ratelimit": `"user";r=2;t=45, "team";r=1;t=3585`,
	}
	compare(t, got, want)
	response := f.ask(request(hits(3, descriptor("user", "ann"))))
	compare(t, headers(response), map[string]string{
		"x-ratelimit-limit": "3", "x-ratelimit-remaining": "2", "x-ratelimit-reset": "45",
		"ratelimit-policy": `"user";q=3;w=60`, "ratelimit": `"user";r=2;t=45`,
		"retry-after": "45", "x-ratelimit-retry-after": "45", "content-type": "application/problem+json",
	})
	if body := string(response.GetRawBody()); !strings.Contains(body, `"status":429`) || !strings.Contains(body, `"violated-policies":["user"]`) {
		t.Errorf("raw_body: %s", body)
	}
	if r := f.ask(request(descriptor("none", "x"))); len(r.GetResponseHeadersToAdd()) > 0 || len(r.GetRawBody()) > 0 {
		t.Errorf("without a limit: %v", r)
	}
}

func TestLegacyHeaders(t *testing.T) {
	f := start1(t, setup{rules: threeLimits, rls: rls.Options{
		Asker:  admission.Asker{Dialect: answer.None},
		Legacy: &rls.LegacyHeaders{Limit: "RateLimit-Limit", Remaining: "RateLimit-Remaining", Reset: "RateLimit-Reset"},
	}})
	compare(t, headers(f.ask(request(descriptor("user", "ann"), descriptor("team", "red")))), map[string]string{
		"ratelimit-limit": "2", "ratelimit-remaining": "1", "ratelimit-reset": "3585",
	})
	compare(t, headers(f.ask(request(hits(3, descriptor("user", "ann")), descriptor("team", "red")))), map[string]string{
		"ratelimit-limit": "3", "ratelimit-remaining": "0", "ratelimit-reset": "45",
		"retry-after": "45", "content-type": "application/problem+json",
	})
	compare(t, headers(f.ask(request(descriptor("none", "x")))), map[string]string{})
}

// Header names ignore case, so a name that the dialect uses too must not be sent twice.
func TestLegacyHeadersAreThereOnce(t *testing.T) {
	for _, tt := range []struct {
		name    string
		dialect answer.Dialect
		legacy  rls.LegacyHeaders
	}{
		{"named as ours", answer.Default, rls.LegacyHeaders{Limit: "X-RateLimit-Limit", Remaining: "X-RateLimit-Remaining", Reset: "X-RateLimit-Reset"}},
		{"draft-03", answer.Draft03, rls.LegacyHeaders{Limit: "RateLimit-Limit", Remaining: "RateLimit-Remaining", Reset: "RateLimit-Reset"}},
		{"the reset as Retry-After", answer.Default, rls.LegacyHeaders{Limit: "X-Limit", Remaining: "X-Remaining", Reset: "retry-after"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := start1(t, setup{rules: threeLimits, rls: rls.Options{Asker: admission.Asker{Dialect: tt.dialect}, Legacy: &tt.legacy}})
			for _, n := range []uint64{1, 3} {
				response := f.ask(request(hits(n, descriptor("user", "ann"))))
				names := map[string]int{}
				for _, h := range response.GetResponseHeadersToAdd() {
					names[strings.ToLower(h.GetKey())]++
				}
				for name, n := range names {
					if n > 1 {
						t.Errorf("%s is there %d times: %v", name, n, response.GetResponseHeadersToAdd())
					}
				}
				for _, name := range []string{tt.legacy.Limit, tt.legacy.Remaining, tt.legacy.Reset} {
					if names[strings.ToLower(name)] != 1 {
						t.Errorf("%s is missing: %v", name, response.GetResponseHeadersToAdd())
					}
				}
			}
			h := headers(f.ask(request(descriptor("none", "x"))))
			if len(h) > 0 {
				t.Errorf("without a limit: %v", h)
			}
		})
	}
}

func TestAnswerOfTheRule(t *testing.T) {
	f := start1(t, setup{rules: `
domain: api
limits:
  - {name: closed, rate: 0/minute, on_limit: {body: "come back", headers: {X-Why: closed}}}
`})
	response := f.ask(request(descriptor("a", "b")))
	h := headers(response)
	if string(response.GetRawBody()) != "come back" || h["x-why"] != "closed" || h["content-type"] != "text/plain; charset=utf-8" {
		t.Errorf("%s, %v", response.GetRawBody(), h)
	}
}

func TestQuotaMode(t *testing.T) {
	f := start1(t, setup{rules: threeLimits, mark: func(r *rules.Rule) { r.QuotaMode = true }})
	both := request(descriptor("user", "ann"), descriptor("team", "red"))
	f.trace([]step{
		{both, ok, codesOf{ok, ok}, left{2, 1}},
		{both, ok, codesOf{ok, ok}, left{1, 0}},
		{both, ok, codesOf{ok, over}, left{0, 0}},
		{both, over, codesOf{over, over}, left{0, 0}},
	})
	f = start1(t, setup{rules: threeLimits, mark: func(r *rules.Rule) { r.QuotaMode = true }})
	f.ask(both)
	f.ask(both)
	if h := headers(f.ask(both)); h["retry-after"] != "" || h["ratelimit"] != `"user";r=0;t=45` {
		t.Errorf("an admission says %v", h)
	}
}

func TestShadow(t *testing.T) {
	shadow := func(r *rules.Rule) {
		if r.Name == "user" {
			r.Mode = rules.Shadow
		}
	}
	both := request(descriptor("user", "ann"), descriptor("team", "red"))
	// A rule in shadow mode has the status OK.
	f := start1(t, setup{rules: threeLimits, mark: shadow})
	f.trace([]step{
		{request(hits(2, descriptor("user", "ann"))), ok, codesOf{ok}, left{1}},
		{both, ok, codesOf{ok, ok}, left{0, 1}},
		{both, ok, codesOf{ok, ok}, left{0, 0}},
		{both, over, codesOf{ok, over}, left{0, 0}},
	})
	// In global shadow mode, statuses show what would have been decided.
	f = start1(t, setup{rules: threeLimits, rls: rls.Options{Shadow: true}})
	f.trace([]step{
		{both, ok, codesOf{ok, ok}, left{2, 1}},
		{both, ok, codesOf{ok, ok}, left{1, 0}},
		{both, ok, codesOf{ok, over}, left{0, 0}},
		{both, ok, codesOf{over, over}, left{0, 0}},
	})
}

func TestReplacedLimits(t *testing.T) {
	f := start1(t, setup{rules: threeLimits, mark: func(r *rules.Rule) {
		if r.Name == "user" {
			r.Replaces = []string{"team"}
		}
	}})
	f.trace([]step{
		{request(hits(9, descriptor("team", "red")), descriptor("user", "ann")), ok, codesOf{ok, ok}, left{0, 2}},
		{request(hits(9, descriptor("team", "red"))), over, codesOf{over}, left{0}},
	})
}

func TestStoreDown(t *testing.T) {
	down := memory.New()
	_ = down.Close()
	f := start1(t, setup{rules: threeLimits, store: down, mark: func(r *rules.Rule) {
		if r.Name == "team" {
			r.OnStoreError = rules.StoreErrorDeny
		}
	}})
	f.trace([]step{
		{request(descriptor("user", "ann")), ok, codesOf{ok}, left{0}},
		{request(descriptor("user", "ann"), descriptor("team", "red")), over, codesOf{ok, over}, left{0, 0}},
	})
	response := f.ask(request(descriptor("user", "ann"), descriptor("team", "red")))
	if response.GetStatuses()[0].GetCurrentLimit() != nil {
		t.Error("numbers of a limit that nobody counts")
	}
	if h := headers(response); h["retry-after"] != "1" || !strings.Contains(string(response.GetRawBody()), "temporary-reduced-capacity") {
		t.Errorf("%v: %s", h, response.GetRawBody())
	}
}

func TestAttributesOfADescriptor(t *testing.T) {
	f := start1(t, setup{rules: `
domain: api
limits:
  - {name: login, match: {method: POST, path: /login}, key: [client_ip], rate: 1/minute, algorithm: fixed_window}
  - {name: key, match: {headers: {X-Api-Key: {present: true}}}, key: ["header:X-Api-Key"], rate: 1/minute, algorithm: fixed_window}
  - {name: lan, match: {client_ip: 10.0.0.0/8}, rate: 0/minute, algorithm: fixed_window}
`})
	login := func(ip string) *envoy.RateLimitRequest {
		return request(descriptor("method", "POST", "path", "/login", "remote_address", ip))
	}
	f.trace([]step{
		{login("198.51.100.7"), ok, codesOf{ok}, left{0}},
		{login("198.51.100.8"), ok, codesOf{ok}, left{0}},
		{login("198.51.100.7"), over, codesOf{over}, left{0}},
		{login("2001:db8::1"), ok, codesOf{ok}, left{0}},
		{login("2001:db8::2"), over, codesOf{over}, left{0}}, // the same /64
		{request(descriptor("remote_address", "10.1.2.3")), over, codesOf{over}, left{0}},
		{request(descriptor("client_ip", "192.0.2.1", "remote_address", "10.1.2.3")), ok, codesOf{ok}, left{0}},
		{request(descriptor("remote_address", "nonsense")), ok, codesOf{ok}, left{0}},
		{request(descriptor("header:x-api-key", "k")), ok, codesOf{ok}, left{0}},
		{request(descriptor("header:X-API-KEY", "k")), over, codesOf{over}, left{0}},
	})
}

func TestDynamicMetadata(t *testing.T) {
	f := start1(t, setup{rules: threeLimits, rls: rls.Options{DynamicMetadata: true}, mark: func(r *rules.Rule) {
		r.Metadata = map[string]any{"rule": r.Name, "nested": map[string]any{r.Name: int64(1), "first": r.Name}}
	}})
	r := request(descriptor("user", "ann", "b", "c"), hits(2, descriptor("team", "red")))
	r.Descriptors = append(r.Descriptors, limited(5, typev3.RateLimitUnit_MINUTE, descriptor("x", "")))
	r.HitsAddend = 1
	got := f.ask(r).GetDynamicMetadata().AsMap()
	want := map[string]any{
		"domain": "api", "hitsAddend": 1.0, "quotaModeEnabled": false,
		"descriptors": []any{
			map[string]any{"entries": []any{"user=ann", "b=c"}},
			map[string]any{"entries": []any{"team=red"}, "hitsAddend": 2.0},
			map[string]any{"entries": []any{"x="}, "limit": "requests_per_unit:5 unit:MINUTE"},
		},
		"metadata": map[string]any{"rule": "user", "nested": map[string]any{"first": "user", "user": 1.0, "team": 1.0}},
	}
	equal(t, got, want)
	// A limit of 0 is left out, as in protobuf's text form.
	got = f.ask(request(limited(0, typev3.RateLimitUnit_DAY, descriptor("x", "y")))).GetDynamicMetadata().AsMap()
	equal(t, got["descriptors"], any([]any{map[string]any{"entries": []any{"x=y"}, "limit": "unit:DAY"}}))
	// A rule that refuses adds no metadata.
	got = f.ask(request(descriptor("team", "red"))).GetDynamicMetadata().AsMap()
	equal(t, got, map[string]any{
		"domain": "api", "quotaModeEnabled": false, "descriptors": []any{map[string]any{"entries": []any{"team=red"}}},
	})
	if m := start1(t, setup{rules: threeLimits}).ask(r).GetDynamicMetadata(); m != nil {
		t.Errorf("metadata that nobody asked for: %v", m)
	}
}
