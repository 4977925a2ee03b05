//go:build !race

// Under the race detector, sync.Pool drops items on purpose.

package httpapi_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/headgate/headgate/store/memory"
)

// A repeated check with its own limit allocates no more than one by rules.
func TestInlineAllocs(t *testing.T) {
	a := newAPI(t, memory.New())
	measure := func(text string) float64 {
		body := strings.NewReader("")
		r := httptest.NewRequest(http.MethodPost, "/v1/check", nil)
		r.Body, r.ContentLength = io.NopCloser(body), int64(len(text))
		w := &sink{header: http.Header{}}
		return testing.AllocsPerRun(200, func() {
			body.Reset(text)
			clear(w.header)
			a.handler.ServeHTTP(w, r)
		})
	}
	if own, rule := measure(inlineBody), measure(loginBody); own > rule+2 {
		t.Errorf("%v allocations, a check by rules has %v", own, rule)
	}
}
