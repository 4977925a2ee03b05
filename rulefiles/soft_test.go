package rulefiles_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/headgate/headgate/rulefiles"
	"github.com/headgate/headgate/store/memory"
)

// Handlers read from the context which rules mark a request, whatever its client sends.
func TestHandlersSeeMarks(t *testing.T) {
	const text = `
domain: shop
limits:
  - {name: tokens, match: {path: /a}, rate: 4/day, soft: 25%}
  - {name: fair, match: {path: /a}, rate: 2/day, on_limit: pass}
`
	r, _, _, _ := open(t, memory.New(), text)
	var got []string
	h := r.Middleware(http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) {
		got = append(got, fmt.Sprint(rulefiles.Soft(request.Context())))
	}))
	for _, path := range []string{"/a", "/a", "/a", "/b", "/a", "/a"} {
		request := httptest.NewRequest(http.MethodGet, path, nil)
		request.Header.Set("X-Headgate-Soft", "forged")
		h.ServeHTTP(httptest.NewRecorder(), request)
	}
	if want := "[[] [tokens] [tokens fair] [] [tokens fair]]"; fmt.Sprint(got) != want {
		t.Errorf("handlers saw %v, want %s", got, want)
	}
	other, _, _, _ := open(t, memory.New(), text)
	for i, want := range []string{"[] allowed", "[tokens] marked"} {
		v, err := other.DecideAttributes(t.Context(), map[string]string{"path": "/a"}, 1)
		if told := fmt.Sprint(v.Soft, " ", v.Outcome); err != nil || told != want {
			t.Errorf("request %d: %s, %v, want %s", i, told, err, want)
		}
	}
}
