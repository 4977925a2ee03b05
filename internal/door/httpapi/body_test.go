package httpapi_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/headgate/headgate/internal/door/httpapi"
	"github.com/headgate/headgate/store/memory"
)

func TestSizeIsBounded(t *testing.T) {
	a := newAPI(t, memory.New())
	body := `{"domain":"api","attributes":{"path":"` + strings.Repeat("x", httpapi.MaxBody) + `"}}`
	if w := a.check(body); w.Code != http.StatusRequestEntityTooLarge || w.Header().Get("Content-Type") != "application/problem+json" {
		t.Errorf("announced: %d %s", w.Code, w.Body)
	}
	r := httptest.NewRequest(http.MethodPost, "/v1/check", io.MultiReader(strings.NewReader(body)))
	r.ContentLength = -1 // chunked: the size shows only on the way
	w := httptest.NewRecorder()
	a.handler.ServeHTTP(w, r)
	if w.Code != http.StatusRequestEntityTooLarge {
		t.Errorf("chunked: %d %s", w.Code, w.Body)
	}
}

// What keeps a body from being read is the client's doing, and told apart.
func TestBodyThatDoesNotCome(t *testing.T) {
	a := newAPI(t, memory.New())
	for _, row := range []struct {
		err  error
		want int
	}{
		{&net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, http.StatusRequestTimeout},
		{io.ErrUnexpectedEOF, http.StatusBadRequest},
	} {
		for _, length := range []int64{int64(len(loginBody)), -1} {
			r := httptest.NewRequest(http.MethodPost, "/v1/check", io.MultiReader(strings.NewReader(loginBody[:9]), iotest.ErrReader(row.err)))
			r.ContentLength = length
			w := httptest.NewRecorder()
			a.handler.ServeHTTP(w, r)
			if w.Code != row.want || w.Header().Get("Content-Type") != "application/problem+json" {
				t.Errorf("%v, length %d: %d %s, want %d", row.err, length, w.Code, w.Body, row.want)
			}
		}
	}
}
