package httpapi_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/headgate/headgate/store/memory"
)

// sink is a ResponseWriter without cost, so that only our code is measured.
type sink struct {
	header http.Header
	status int
}

func (s *sink) Header() http.Header         { return s.header }
func (s *sink) WriteHeader(status int)      { s.status = status }
func (s *sink) Write(b []byte) (int, error) { return len(b), nil }

func BenchmarkCheck(b *testing.B) {
	a := newAPI(b, memory.New())
	body := strings.NewReader("")
	r := httptest.NewRequest(http.MethodPost, "/v1/check", nil)
	r.Body = io.NopCloser(body)
	r.ContentLength = int64(len(loginBody))
	w := &sink{header: http.Header{}}
	b.ReportAllocs()
	for b.Loop() {
		body.Reset(loginBody)
		clear(w.header)
		a.handler.ServeHTTP(w, r)
	}
	if w.status != http.StatusTooManyRequests {
		b.Fatalf("status %d, want most to be refused", w.status)
	}
}
