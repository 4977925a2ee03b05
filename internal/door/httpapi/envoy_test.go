package httpapi_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/decide/admission"
	"github.com/headgate/headgate/internal/door"
	"github.com/headgate/headgate/internal/door/httpapi"
	"github.com/headgate/headgate/store/memory"
)

func get(h http.Handler, method, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader("{}")))
	return w
}

func TestHealthcheck(t *testing.T) {
	a := newAPI(t, memory.New())
	if w := get(a.handler, "GET", "/healthcheck"); w.Code != 200 || w.Body.String() != "OK" {
		t.Errorf("%d %q", w.Code, w.Body)
	}
	a.ready = door.Readiness{Draining: true}
	if w := get(a.handler, "GET", "/healthcheck"); w.Code != 503 || !strings.Contains(w.Body.String(), "draining") {
		t.Errorf("%d %q", w.Code, w.Body)
	}
	a.ready = door.Readiness{Store: errors.New("gone")}
	if w := get(a.handler, "HEAD", "/healthcheck"); w.Code != 503 {
		t.Errorf("%d", w.Code)
	}
	a.ready = door.Readiness{Store: errors.New("gone"), StoreMayFail: true} // the rules decide then
	if w := get(a.handler, "GET", "/healthcheck"); w.Code != 200 {
		t.Errorf("with rules that do without the store: %d %q", w.Code, w.Body)
	}
	if w := get(a.handler, "POST", "/healthcheck"); w.Code != 405 {
		t.Errorf("%d", w.Code)
	}
}

func TestJSONGoesToTheRateLimitService(t *testing.T) {
	h := httpapi.New(httpapi.Options{
		Asker: admission.Asker{Logger: slog.New(slog.DiscardHandler)},
		Ready: func(context.Context) door.Readiness { return door.Readiness{} }, RateLimit: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTooManyRequests) }),
	})
	for _, method := range []string{"POST", "GET", "PUT", "DELETE"} { // as in the original
		if w := get(h, method, "/json"); w.Code != 429 {
			t.Errorf("%s: %d", method, w.Code)
		}
	}
	if w := get(newAPI(t, memory.New()).handler, "POST", "/json"); w.Code != 404 {
		t.Errorf("without a service: %d", w.Code)
	}
}
