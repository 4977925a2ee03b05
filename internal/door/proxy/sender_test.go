package proxy_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/decide/admission"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/door/proxy"
	"github.com/headgate/headgate/internal/request/client"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// suspicious verifies no token, and notes whether it would have.
type suspicious struct{ refused []bool }

func (s *suspicious) Verify(_ http.Header, _ time.Time, by client.Sender) (client.Verified, error) {
	s.refused = append(s.refused, by.Refused())
	return client.Verified{}, nil
}

// Tokens are checked unless the request is refused whatever they say.
func TestWhoseTokensAreChecked(t *testing.T) {
	const byClaim = "  - {name: user, key: 'jwt:sub', rate: 1/hour, algorithm: fixed_window}\n"
	const once = "rate: 1/hour, algorithm: fixed_window"
	for name, row := range map[string]struct {
		domain, rules string
		broken        bool
		last          bool // of three requests
	}{
		"over a limit by address":       {"", "  - {name: ip, key: client_ip, " + once + "}\n", false, true},
		"over a limit for all":          {"", "  - {name: all, " + once + "}\n", false, true},
		"over the limit of a path":      {"", "  - {name: ip, match: {path: /a}, key: client_ip, " + once + "}\n", false, true},
		"over that of another path":     {"", "  - {name: ip, match: {path: /b}, key: client_ip, " + once + "}\n", false, false},
		"only observed":                 {"", "  - {name: ip, key: client_ip, mode: shadow, " + once + "}\n", false, false},
		"on a deny list":                {"deny: {client_ip: [192.0.2.0/24]}\n", "", false, true},
		"on an allow list":              {"allow: {client_ip: [192.0.2.0/24]}\n", "  - {name: ip, key: client_ip, " + once + "}\n", false, false},
		"over a limit by claim":         {"", "", false, false},
		"over one by claim and address": {"", "  - {name: both, key: ['jwt:sub', client_ip], " + once + "}\n", false, false},
		"of a tier by claim":            {"", "  - {name: ip, key: client_ip, " + once + ", tiers: {by: 'jwt:plan', pro: {rate: unlimited}}}\n", false, false},
		"if a claim matches":            {"", "  - {name: ip, match: {jwt: {plan: {not: pro}}}, key: client_ip, " + once + "}\n", false, false},
		"cost by claim":                 {"", "  - {name: ip, key: client_ip, " + once + ", cost: {from: 'jwt:weight', max: 1}}\n", false, false},
		"on an allow list by claim":     {"allow: {'jwt:sub': [boss]}\n", "  - {name: ip, key: client_ip, " + once + "}\n", false, false},
		"unless a claim is known":       {"descriptors: [{key: client_ip, rate_limit: {unit: hour, requests_per_unit: 1}, descriptors: [{key: 'jwt:plan', value: pro}]}]\n", "", false, false},
		"unless a claim replaces it":    {"descriptors: [{key: client_ip, rate_limit: {name: ip, unit: hour, requests_per_unit: 1}}, {key: 'jwt:plan', value: pro, rate_limit: {unit: hour, requests_per_unit: 9, replaces: [{name: ip}]}}]\n", "", false, false},
		"shadow ban":                    {"", "  - {name: ip, key: client_ip, " + once + ", on_limit: {action: shadow_ban, latency: 1ms}}\n", false, false},
		"without the store":             {"", "  - {name: ip, key: client_ip, " + once + ", on_store_error: deny}\n", true, false},
	} {
		tokens := new(suspicious)
		store := memory.New()
		if row.broken {
			_ = store.Close()
		}
		p := newProxy(t, "domain: api\n"+row.domain+"limits:\n"+row.rules+byClaim, store, ok, func(o *proxy.Options) { o.Tokens = tokens })
		for range 3 {
			p.ServeHTTP(httptest.NewRecorder(), request(t.Context(), "GET", "/a"))
		}
		if n := len(tokens.refused); n == 0 && name != "on a deny list" && name != "on an allow list" || n > 0 && tokens.refused[n-1] != row.last {
			t.Errorf("%s: %v, want %t at last", name, tokens.refused, row.last)
		}
	}
}

// So it is with an address that is banned.
func TestTokensOfTheBannedAreNotChecked(t *testing.T) {
	tokens := new(suspicious)
	var asker admission.Asker
	p := newProxy(t, "domain: api\nlimits: [{name: ip, key: client_ip, rate: 9/hour}, {name: user, key: 'jwt:sub', rate: 9/hour}]\n", memory.New(), ok,
		func(o *proxy.Options) { o.Tokens = tokens; asker = o.Asker })
	asker.Engine.SetExceptions(engine.NewExceptions([]engine.Exception{{
		Scope: asker.Engine.Rules().Rule("api", "ip").Scope, Key: string(store.AppendKeyPart(nil, "192.0.2.1")), BannedUntil: time.Now().Add(time.Hour).UnixMicro(),
	}}, 0))
	p.ServeHTTP(httptest.NewRecorder(), request(t.Context(), "GET", "/a"))
	if len(tokens.refused) != 1 || !tokens.refused[0] {
		t.Error(tokens.refused)
	}
}

// late finds its sender banned, and the ban is then lifted.
type late struct{ lift func() }

func (l late) Verify(_ http.Header, _ time.Time, by client.Sender) (client.Verified, error) {
	if by != nil && by.Refused() {
		l.lift()
		return client.Verified{Unchecked: true}, nil
	}
	return client.Verified{First: client.NewClaims(map[string]any{"sub": "a"})}, nil
}

// A request that is not refused after all is counted by its claims, and only once.
func TestTokensAreCheckedIfNothingRefuses(t *testing.T) {
	var asker admission.Asker
	p := newProxy(t, "domain: api\nlimits: [{name: ip, key: client_ip, rate: 3/hour, algorithm: fixed_window}, {name: user, key: 'jwt:sub', key_missing: skip, rate: 1/hour, algorithm: fixed_window}]\n", memory.New(), ok,
		func(o *proxy.Options) {
			o.Tokens = late{func() { asker.Engine.SetExceptions(nil) }}
			asker = o.Asker
		})
	ban := engine.NewExceptions([]engine.Exception{{
		Scope: asker.Engine.Rules().Rule("api", "ip").Scope, Key: string(store.AppendKeyPart(nil, "192.0.2.1")), BannedUntil: time.Now().Add(time.Hour).UnixMicro(),
	}}, 0)
	for i, want := range []int{http.StatusOK, http.StatusTooManyRequests, http.StatusTooManyRequests} {
		asker.Engine.SetExceptions(ban)
		w := httptest.NewRecorder()
		p.ServeHTTP(w, request(t.Context(), "GET", "/a"))
		if left := w.Header().Get("RateLimit"); w.Code != want || !strings.Contains(left, `"ip";r=2`) {
			t.Errorf("request %d: %d, %s", i+1, w.Code, left)
		}
	}
}
