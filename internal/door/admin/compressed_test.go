package admin_test

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/door/admin"
)

// A long answer, such as five hundred rules, is compressed for those who ask for it.
func TestLongAnswersAreCompressed(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a rule, ", 1000)
	for name, row := range map[string]struct {
		accepts, text string
		compressed    bool
	}{
		"asked for":       {"gzip, deflate", long, true},
		"not asked for":   {"", long, false},
		"refused":         {"gzip;q=0", long, false},
		"a short answer":  {"gzip", "a rule", false},
		"something else":  {"br", long, false},
		"by a wild guess": {"*", long, true},
	} {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", http.NoBody)
		r.Header.Set("Accept-Encoding", row.accepts)
		admin.Answered(row.text).ServeHTTP(w, r)
		body := io.Reader(w.Body)
		if got := w.Header().Get("Content-Encoding") == "gzip"; got != row.compressed {
			t.Errorf("%s: compressed: %v", name, got)
		} else if got {
			z, err := gzip.NewReader(w.Body)
			if err != nil {
				t.Fatal(err)
			}
			body = z
		}
		text, err := io.ReadAll(body)
		if err != nil || string(text) != `"`+row.text+"\"\n" || w.Header().Get("Vary") != "Accept-Encoding" {
			t.Errorf("%s: %.80s, %v, %v", name, text, err, w.Header())
		}
	}
}
