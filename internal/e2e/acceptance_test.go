package e2e

import (
	"encoding/json"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"
)

// The acceptance trace of the project: five answers of the backend, then a 429 with
// exact headers. It starts 12 s into a one-minute window.
func TestAcceptanceTrace(t *testing.T) {
	f := run(t, loginRules, hello)
	for _, remaining := range []string{"4", "3", "2", "1", "0"} {
		res, body := f.get(t, f.proxyURL("/login"))
		if res.StatusCode != http.StatusOK || body != "hello\n" || res.Header.Get("X-RateLimit-Remaining") != remaining {
			t.Errorf("%d %q with %s left, want the backend's with %s", res.StatusCode, body, res.Header.Get("X-RateLimit-Remaining"), remaining)
		}
		if got := res.Header.Values("X-RateLimit-Limit"); len(got) != 1 || got[0] != "5" {
			t.Errorf("X-RateLimit-Limit %q, want ours in place of the upstream's", got)
		}
	}
	res, body := f.get(t, f.proxyURL("/login"))
	if res.StatusCode != http.StatusTooManyRequests {
		t.Errorf("the sixth got %d", res.StatusCode)
	}
	want := map[string]string{
		"Content-Type":            "application/problem+json",
		"Retry-After":             "49", // 48 s to the next window, plus one tick: 5 × less than 1 is 4
		"X-Ratelimit-Retry-After": "49",
		"X-Ratelimit-Limit":       "5",
		"X-Ratelimit-Remaining":   "0",
		"Ratelimit":               `"login";r=0;t=49`,
		"Ratelimit-Policy":        `"login";q=5;w=60`,
		"Cache-Control":           "no-store",
	}
	for name, value := range want {
		if got := res.Header.Get(name); got != value {
			t.Errorf("%s: %q, want %q", name, got, value)
		}
	}
	var problem map[string]any
	if err := json.Unmarshal([]byte(body), &problem); err != nil {
		t.Fatalf("%q: %v", body, err)
	}
	if problem["type"] != "https://iana.org/assignments/http-problem-types#quota-exceeded" || problem["status"] != 429.0 {
		t.Errorf("problem %v", problem)
	}
	f.clock.advance(48*time.Second + 12*time.Second) // more than a fifth into the next window: 5 × 0.8 = 4
	if res, _ := f.get(t, f.proxyURL("/login")); res.StatusCode != http.StatusOK {
		t.Errorf("after Retry-After: %d", res.StatusCode)
	}
}

func TestOtherPathsAreNotLimited(t *testing.T) {
	f := run(t, loginRules, hello)
	for range 10 {
		res, _ := f.get(t, f.proxyURL("/other"))
		if res.StatusCode != http.StatusOK || res.Header.Get("RateLimit") != "" {
			t.Fatalf("%d %v", res.StatusCode, res.Header)
		}
		if got := res.Header.Get("X-RateLimit-Limit"); got != "999" {
			t.Fatalf("X-RateLimit-Limit %q, want the upstream's where we have no limit", got)
		}
	}
}

// All doors use the same counts.
func TestAPIAndProxyShareTheStore(t *testing.T) {
	f := run(t, loginRules, hello)
	for range 3 {
		f.get(t, f.proxyURL("/login"))
	}
	res, err := f.client.Post(f.apiURL("/v1/check"), "application/json",
		strings.NewReader(`{"domain":"api","attributes":{"path":"/login","client_ip":"127.0.0.1"}}`))
	if err != nil {
		t.Fatal(err)
	}
	if body := read(t, res); !strings.Contains(body, `"remaining":1,`) {
		t.Errorf("%s; want 1 remaining", body)
	}
}

func TestRuleChoosesTheRefusal(t *testing.T) {
	f := run(t, `
domain: api
limits:
  - name: closed
    rate: 0/minute
    on_limit: {status: 503, body: "<p>later</p>", content_type: text/html, headers: {X-Reason: closed}}
`, hello)
	res, body := f.get(t, f.proxyURL("/"))
	if res.StatusCode != http.StatusServiceUnavailable || body != "<p>later</p>" || res.Header.Get("Content-Type") != "text/html" || res.Header.Get("X-Reason") != "closed" {
		t.Errorf("%d %q %v", res.StatusCode, body, res.Header)
	}
}

// With many concurrent clients and keys, exactly as many requests as the limits allow
// reach the backend.
func TestConcurrentRequestsPassExactlyToTheLimits(t *testing.T) {
	var mu sync.Mutex
	passed := map[string]int{}
	f := run(t, `
domain: api
limits:
  - {name: per-key, match: {path: /v1/**}, key: ["header:X-Api-Key"], rate: 20/minute}
  - {name: login, match: {path: /login}, key: [client_ip], rate: 5/minute, algorithm: sliding_log}
  - {name: all, match: {path: /v1/**}, rate: 110/hour, algorithm: fixed_window}
`, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		passed[r.URL.Path+r.Header.Get("X-Api-Key")]++
	}), trust("127.0.0.0/8"))
	f.client.Transport = &http.Transport{MaxIdleConnsPerHost: 16}
	var wg sync.WaitGroup
	for range 12 {
		wg.Go(func() {
			for i := range 60 {
				f.get(t, f.proxyURL("/v1/x"), "X-Api-Key", string(rune('a'+i%5)))
				f.get(t, f.proxyURL("/login"), "X-Forwarded-For", netip.AddrFrom4([4]byte{198, 51, 100, byte(i % 3)}).String())
			}
		})
	}
	wg.Wait()
	// Five keys with 20 each make 100. The 110 of all are not used up, since requests
	// refused by per-key are not charged to it.
	for _, key := range []string{"a", "b", "c", "d", "e"} {
		if got := passed["/v1/x"+key]; got != 20 {
			t.Errorf("key %s: %d passed, want 20", key, got)
		}
	}
	if got := passed["/login"]; got != 15 {
		t.Errorf("logins: %d passed, want 5 for each of 3 clients", got)
	}
	for range 11 {
		f.get(t, f.proxyURL("/v1/x"), "X-Api-Key", "z")
	}
	if got := passed["/v1/xz"]; got != 10 {
		t.Errorf("key z: %d passed, want the 10 that all has left", got)
	}
}
