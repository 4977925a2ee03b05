package answer_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/headgate/headgate/internal/door/answer"
)

// A pretended answer is for a banned client alone. A cache in front must not store it for
// others, and otherwise the field is that of the backend.
func TestPretendedAnswersAreNotShared(t *testing.T) {
	for _, row := range []struct{ backend, want string }{
		{"", ""},
		{"public, max-age=600", "private, max-age=600"},
		{"max-age=600", "private, max-age=600"},
		{"Public , Max-Age=600, S-Maxage=9,immutable", "private, Max-Age=600, immutable"},
		{"no-store", "no-store"},
		{"no-cache", "no-cache"},
		{"private, max-age=60", "private, max-age=60"},
		{"no-cache=\"Set-Cookie\", max-age=60", "private, no-cache=\"Set-Cookie\", max-age=60"},
		{"private=\"X-A\", max-age=60", "private, max-age=60"},
		{"max-age=0, must-revalidate", "max-age=0, must-revalidate"},
		{"max-age=0, s-maxage=60", "private, max-age=0"},
		{"max-age=0, stale-while-revalidate=60", "private, max-age=0, stale-while-revalidate=60"},
		{"public", "private"},
	} {
		w := httptest.NewRecorder()
		if row.backend != "" {
			w.Header().Set("Cache-Control", row.backend)
		}
		answer.Pretend(w, httptest.NewRequest(http.MethodGet, "/", http.NoBody), answer.Refusal{Status: 200, Body: "x"})
		if got := w.Header().Get("Cache-Control"); got != row.want {
			t.Errorf("%q becomes %q, want %q", row.backend, got, row.want)
		}
	}
	for _, row := range []struct {
		headers map[string]string
		want    string
	}{{nil, "private"}, {map[string]string{"Cache-Control": "public"}, "public"}} {
		w := httptest.NewRecorder()
		w.Header().Set("Expires", "Thu, 01 Dec 2050 16:00:00 GMT")
		answer.Pretend(w, httptest.NewRequest(http.MethodGet, "/", http.NoBody), answer.Refusal{Status: 200, Body: "x", Headers: row.headers})
		if got := w.Header().Get("Cache-Control"); got != row.want {
			t.Errorf("with Expires: %q, want %q", got, row.want)
		}
	}
}
