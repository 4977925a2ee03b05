package rulefiles_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/request/client"
	"github.com/headgate/headgate/store/memory"
)

func TestLimitsHandler(t *testing.T) {
	const text = "domain: api\nlimits: [{name: per-key, match: {path: /v1/**}, key: 'header:X-Api-Key', rate: 60/minute}]\n"
	r, c, _, _ := open(t, memory.New(), text)
	mux := http.NewServeMux()
	mux.Handle("/", r.Middleware(http.HandlerFunc(handler)))
	mux.Handle("GET /me/limits", r.LimitsHandler())
	address := serve(t, mux)
	for range 3 {
		get(t, address+"/v1/a", "X-Api-Key", "k")
	}
	left := func(key string) (status int, remaining []int64) {
		status, _, body := get(t, address+"/me/limits", "X-Api-Key", key)
		var a struct{ Limits []struct{ Remaining int64 } }
		if err := json.Unmarshal([]byte(body), &a); err != nil {
			t.Fatalf("%v: %s", err, body)
		}
		for _, l := range a.Limits {
			remaining = append(remaining, l.Remaining)
		}
		return status, remaining
	}
	for key, want := range map[string]int64{"k": 57, "other": 60} {
		if status, got := left(key); status != http.StatusOK || len(got) != 1 || got[0] != want {
			t.Errorf("%s: %d %v, want %d", key, status, got, want)
		}
	}
	c.pass(time.Second)
	if _, got := left("k"); got[0] != 58 {
		t.Errorf("a second later: %v", got)
	}
	last := 0
	for range 100 {
		last, _, _ = get(t, address+"/me/limits")
	}
	if last != http.StatusTooManyRequests {
		t.Errorf("after 100 requests: %d", last)
	}
	c.pass(time.Minute)
	many := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/me/limits", nil)
	for i := range client.MaxFields + 1 {
		many.Header.Set(fmt.Sprintf("X-%d", i), "1")
	}
	w := httptest.NewRecorder()
	if r.LimitsHandler().ServeHTTP(w, many); w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "header fields") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
