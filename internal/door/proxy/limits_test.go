package proxy_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/answer"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/door/proxy"
	"github.com/headgate/headgate/internal/door/selfservice"
	"github.com/headgate/headgate/internal/request/client"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

const callerRules = `
domain: api
limits:
  - {name: per-key, match: {path: /v1/**}, key: "header:X-Api-Key", rate: 60/minute, burst: 10}
  - {name: login, match: {method: POST, path: /login}, key: client_ip, rate: 5/hour, algorithm: fixed_window}
  - {name: everyone, rate: 1000/second}
  - {name: hidden, key: client_ip, rate: 500/hour, on_limit: {action: shadow_ban}}
`

const limitsPath = selfservice.DefaultPath

// telling serves limits at the usual path.
func telling(o *proxy.Options) { o.LimitsPath = limitsPath }

// ask returns the answer to a request, and its body as the page of limits.
func ask(t *testing.T, p http.Handler, method, target string, header ...string) (*httptest.ResponseRecorder, selfservice.Answer) {
	t.Helper()
	w := httptest.NewRecorder()
	p.ServeHTTP(w, request(t.Context(), method, target, header...))
	var a selfservice.Answer
	if w.Code == http.StatusOK && strings.HasPrefix(w.Header().Get("Content-Type"), "application/json") {
		if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil {
			t.Fatalf("%v: %s", err, w.Body)
		}
	}
	return w, a
}

func TestCallersReadTheirLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProxy(t, callerRules, memory.New(memory.WithClock(time.Now)), ok, telling)
		for range 4 {
			ask(t, p, "GET", "/v1/things", "X-Api-Key", "k1")
		}
		w, a := ask(t, p, "GET", limitsPath, "X-Api-Key", "k1")
		begin, zero := time.Now().UTC(), int64(0)
		want := []selfservice.Limit{
			{
				Name: "per-key", Algorithm: "token_bucket", Limit: 10, Rate: "60/minute token_bucket burst 10", Period: 60_000,
				Used: 4, Remaining: 6, ResetAfter: 4000, Reset: new(begin.Add(4 * time.Second)), RetryAfter: &zero,
			},
			{
				Name: "login", Algorithm: "fixed_window", Limit: 5, Rate: "5/hour fixed_window", Period: 3_600_000,
				Remaining: 5, Reset: new(begin), RetryAfter: &zero,
			},
		}
		if diff := cmp.Diff(want, a.Limits); diff != "" || a.BannedUntil != nil || a.LeftOff != 0 {
			t.Errorf("%s, %+v", diff, a)
		}
		h := w.Header()
		if h.Get("X-Ratelimit-Limit") != "5" || h.Get("X-Ratelimit-Remaining") != "5" || h.Get("Retry-After") != "" || h.Get("Cache-Control") != "no-store" {
			t.Errorf("%v", h)
		}
		// Asking cost nothing, and another key's numbers are its own.
		if _, again := ask(t, p, "GET", limitsPath, "X-Api-Key", "k1"); again.Limits[0].Used != 4 {
			t.Errorf("%+v", again)
		}
		if _, other := ask(t, p, "GET", limitsPath, "X-Api-Key", "k2"); other.Limits[0].Used != 0 {
			t.Errorf("%+v", other)
		}
		if _, nobody := ask(t, p, "GET", limitsPath); len(nobody.Limits) != 1 || nobody.Limits[0].Name != "login" {
			t.Errorf("%+v", nobody)
		}
		if w, _ := ask(t, p, "HEAD", limitsPath); w.Code != http.StatusOK {
			t.Errorf("HEAD: %d", w.Code)
		}
		if w, _ := ask(t, p, "POST", limitsPath); w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET, HEAD" {
			t.Errorf("POST: %d %v", w.Code, w.Header())
		}
	})
}

func TestRefusedCallerReadsWhenToRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProxy(t, callerRules, memory.New(memory.WithClock(time.Now)), ok, telling)
		for range 11 {
			ask(t, p, "GET", "/v1/things", "X-Api-Key", "k1")
		}
		w, a := ask(t, p, "GET", limitsPath, "X-Api-Key", "k1")
		if l := a.Limits[0]; w.Code != http.StatusOK || l.Remaining != 0 || *l.RetryAfter != 1000 || w.Header().Get("X-Ratelimit-Remaining") != "0" || w.Header().Get("Retry-After") != "" {
			t.Errorf("%d %+v %v", w.Code, l, w.Header())
		}
	})
}

func TestBannedCallerReadsUntilWhen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var e *engine.Engine
		p := newProxy(t, callerRules, memory.New(memory.WithClock(time.Now)), ok, telling, func(o *proxy.Options) { e = o.Engine })
		until := time.Now().Add(time.Hour).UTC()
		key := string(store.AppendKeyPart(nil, "k1"))
		hidden := string(store.AppendKeyPart(nil, "192.0.2.1"))
		e.SetExceptions(engine.NewExceptions([]engine.Exception{
			{Scope: "api/per-key", Key: key, BannedUntil: until.UnixMicro()},
			{Scope: "api/hidden", Key: hidden, BannedUntil: until.Add(time.Hour).UnixMicro()},
		}, time.Now().UnixMicro()))
		_, a := ask(t, p, "GET", limitsPath, "X-Api-Key", "k1")
		if a.BannedUntil == nil || !a.BannedUntil.Equal(until) || *a.Limits[0].RetryAfter != 3_600_000 || a.Limits[0].Remaining != 10 || len(a.Limits) != 2 {
			t.Errorf("%+v", a)
		}
		if _, other := ask(t, p, "GET", limitsPath, "X-Api-Key", "k2"); other.BannedUntil != nil {
			t.Errorf("%+v", other)
		}
	})
}

// A client gets 60 answers at once and then one a second, and the others are not refused
// for it.
func TestAskingForLimitsIsLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProxy(t, callerRules, memory.New(memory.WithClock(time.Now)), ok, telling)
		from := func(address string) *httptest.ResponseRecorder {
			r := request(t.Context(), "GET", limitsPath)
			r.RemoteAddr = address + ":1234"
			w := httptest.NewRecorder()
			p.ServeHTTP(w, r)
			return w
		}
		passed := 0
		for range 100 {
			if from("192.0.2.9").Code == http.StatusOK {
				passed++
			}
		}
		w := from("192.0.2.9")
		if passed != 60 || w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "1" {
			t.Errorf("%d passed, then %d %v", passed, w.Code, w.Header())
		}
		time.Sleep(2 * time.Second)
		for i, want := range []int{200, 200, 429} {
			if got := from("192.0.2.9").Code; got != want {
				t.Errorf("%d: %d, want %d", i, got, want)
			}
		}
		for i := range 200 {
			if got := from(fmt.Sprintf("198.51.100.%d", i)).Code; got != http.StatusOK {
				t.Errorf("another client: %d", got)
			}
		}
	})
}

// refusing knows no valid token.
type refusing struct{}

func (refusing) Verify(http.Header, time.Time, client.Sender) (client.Verified, error) {
	return client.Verified{}, errors.New("the token has expired")
}

func TestLimitsOfAnUnverifiedCallerAreNotTold(t *testing.T) {
	rules := "domain: api\nlimits: [{name: a, key: client_ip, rate: 5/minute}, {name: u, match: {path: /v1}, key: 'jwt:sub', rate: 5/minute}]\n"
	p := newProxy(t, rules, memory.New(), ok, telling, func(o *proxy.Options) { o.Tokens = refusing{} })
	if w, _ := ask(t, p, "GET", limitsPath); w.Code != http.StatusUnauthorized || strings.Contains(w.Body.String(), "limits\"") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestWhereLimitsAreTold(t *testing.T) {
	upstream := func(r *http.Request) (*http.Response, error) {
		res, err := ok(r)
		res.StatusCode = http.StatusTeapot
		return res, err
	}
	quiet := strings.Replace(callerRules, "limits:", "headers: none\nlimits:", 1)
	for name, row := range map[string]struct {
		rules, path string
		change      func(*proxy.Options)
		want        int
	}{
		"as usual":                    {callerRules, limitsPath, telling, 200},
		"nowhere":                     {callerRules, limitsPath, func(*proxy.Options) {}, 418},
		"no header fields":            {callerRules, limitsPath, func(o *proxy.Options) { o.LimitsPath, o.LimitsWhileTold, o.Dialect = limitsPath, true, answer.None }, 418},
		"none in the domain":          {quiet, limitsPath, func(o *proxy.Options) { o.LimitsPath, o.LimitsWhileTold = limitsPath, true }, 418},
		"none, but the path is given": {quiet, limitsPath, telling, 200},
		"below it":                    {callerRules, limitsPath + "/x", telling, 418},
		"in two ways":                 {callerRules, "/.headgate//limits", telling, 418},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProxy(t, row.rules, memory.New(), upstream, row.change)
			if w, _ := ask(t, p, "GET", row.path); w.Code != row.want {
				t.Errorf("%d, want %d", w.Code, row.want)
			}
		})
	}
}

// Callers on the deny list are refused here as everywhere, those on the allow list learn
// that nothing limits them.
func TestLimitsOfCallersOnLists(t *testing.T) {
	for lists, want := range map[string]string{
		"deny: {client_ip: 192.0.2.1, status: 451}": "451", "allow: {client_ip: 192.0.2.1}": `200 {"limits":[],"unlimited":true}`,
	} {
		p := newProxy(t, strings.Replace(callerRules, "limits:", lists+"\nlimits:", 1), memory.New(), ok, telling)
		w, _ := ask(t, p, "GET", limitsPath, "X-Api-Key", "k1")
		if got := fmt.Sprintf("%d %s", w.Code, w.Body); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s", lists, got)
		}
	}
}

// failing is a store that does not answer.
type failing struct{}

func (failing) Close() error { return nil }

func (failing) Do(_ context.Context, b *store.Batch) {
	b.Each(func([]store.Op, []store.Decision, store.Mode) error {
		return headgate.ErrUnavailable
	})
}

func TestLimitsWithoutTheStore(t *testing.T) {
	p := newProxy(t, callerRules, failing{}, ok, telling)
	if w, _ := ask(t, p, "GET", limitsPath); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "1" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
