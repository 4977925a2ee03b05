package dashboard_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/door/admin/dashboard"
)

func site(t *testing.T) http.Handler {
	t.Helper()
	routes, err := dashboard.Routes()
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	for pattern, h := range routes {
		mux.Handle(pattern, h)
	}
	return mux
}

func get(h http.Handler, target string, header http.Header) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, target, nil)
	maps.Copy(r.Header, header)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func gzipped() http.Header { return http.Header{"Accept-Encoding": {"br, gzip"}} }

func unzipped(t *testing.T, w *httptest.ResponseRecorder) string {
	t.Helper()
	if w.Header().Get("Content-Encoding") != "gzip" {
		return w.Body.String()
	}
	r, err := gzip.NewReader(bytes.NewReader(w.Body.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

var (
	linked   = regexp.MustCompile(`(?:src|href)="([^"]+)"`)
	external = regexp.MustCompile(`(?:src|href)="(?:https?:)?//`)
	inline   = regexp.MustCompile(`<script>|<style|style="|\son[a-z]+="`)
)

// A page that loads a missing file, or violates its own policy, breaks only in the
// browser, so this test reads its text.
func TestPagesAskForNothingThatIsMissing(t *testing.T) {
	h := site(t)
	for _, target := range pages() {
		w := get(h, target, nil)
		if w.Code != http.StatusOK {
			t.Fatalf("%s: %d", target, w.Code)
		}
		page := w.Body.String()
		if external.MatchString(page) || inline.MatchString(page) {
			t.Errorf("%s asks another host, or has inline code:\n%s", target, page)
		}
		links := linked.FindAllStringSubmatch(page, -1)
		if len(links) < 4 {
			t.Fatalf("%s has no script, style, theme or icon:\n%s", target, page)
		}
		for _, link := range links {
			target := "/" + strings.TrimPrefix(link[1], "./")
			if got := get(h, target, gzipped()); got.Code != http.StatusOK || got.Body.Len() == 0 {
				t.Errorf("%s: %d, %d bytes", target, got.Code, got.Body.Len())
			}
		}
	}
}

// pages returns the addresses of all pages.
func pages() []string {
	return []string{"/", "/rules", "/keys", "/queue", "/events", "/playground"}
}

// Each page says what it is before its script is there, which may take seconds.
func TestPagesSayWhatTheyLoad(t *testing.T) {
	pages, err := filepath.Glob("dist/*.html")
	if err != nil || len(pages) < 5 {
		t.Fatal(pages, err)
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		found := regexp.MustCompile(`(?s)<title>(.+) · Headgate</title>.*<div id="app"><p class="loading" role="status">Headgate · (.+): loading …</p></div>`).FindSubmatch(text)
		if found == nil || string(found[1]) != string(found[2]) {
			t.Errorf("%s: %s", page, text)
		}
	}
}

func TestPolicy(t *testing.T) {
	h := site(t)
	for _, target := range pages() {
		policy := get(h, target, gzipped()).Header().Get("Content-Security-Policy")
		for _, part := range []string{"default-src 'none'", "script-src 'self' 'wasm-unsafe-eval';", "style-src 'self';", "connect-src 'self';", "frame-ancestors 'none'"} {
			if !strings.Contains(policy, part) {
				t.Errorf("%s: %s is not in the policy %q", target, part, policy)
			}
		}
	}
}

func TestHeaders(t *testing.T) {
	h := site(t)
	page := get(h, "/playground", gzipped())
	script := regexp.MustCompile(`assets/[\w.-]+\.js`).FindString(unzipped(t, page))
	rows := []struct{ path, kind, cache, policy string }{
		{"/playground", "text/html; charset=utf-8", "no-cache", "default-src 'none'"},
		{"/" + script, "text/javascript; charset=utf-8", "immutable", ""},
		{"/theme.js", "text/javascript; charset=utf-8", "no-cache", ""},
		{"/favicon.svg", "image/svg+xml", "no-cache", ""},
	}
	for _, row := range rows {
		got := get(h, row.path, gzipped()).Header()
		if got.Get("Content-Type") != row.kind || !strings.Contains(got.Get("Cache-Control"), row.cache) {
			t.Errorf("%s: %q, %q", row.path, got.Get("Content-Type"), got.Get("Cache-Control"))
		}
		if got.Get("X-Content-Type-Options") != "nosniff" || got.Get("Vary") != "Accept-Encoding" || got.Get("ETag") == "" {
			t.Errorf("%s: %v", row.path, got)
		}
		if p := got.Get("Content-Security-Policy"); !strings.HasPrefix(p, row.policy) || strings.Contains(p, "unsafe-inline") {
			t.Errorf("%s: policy %q", row.path, p)
		}
	}
}

func TestEncodings(t *testing.T) {
	h := site(t)
	plain := get(h, "/playground", nil).Body.String()
	rows := []struct {
		accept string
		gzip   bool
	}{
		{"", false},
		{"gzip", true},
		{"br;q=1.0, GZIP;q=0.5", true},
		{"*", true},
		{"*;q=0", false},
		{"*, gzip;q=0", false},
		{"gzip; q=0.000", false},
		{"gzip;q=0.001", true},
		{"br", false},
		{"identity", false},
	}
	for _, row := range rows {
		w := get(h, "/playground", http.Header{"Accept-Encoding": {row.accept}})
		if got := w.Header().Get("Content-Encoding") == "gzip"; got != row.gzip {
			t.Errorf("Accept-Encoding %q: gzip %v, want %v", row.accept, got, row.gzip)
		}
		if unzipped(t, w) != plain {
			t.Errorf("Accept-Encoding %q: another page", row.accept)
		}
	}
}

func TestAKnownFileIsNotSentAgain(t *testing.T) {
	h := site(t)
	for _, accept := range []string{"", "gzip"} {
		first := get(h, "/theme.js", http.Header{"Accept-Encoding": {accept}})
		again := get(h, "/theme.js", http.Header{"Accept-Encoding": {accept}, "If-None-Match": {first.Header().Get("ETag")}})
		if again.Code != http.StatusNotModified || again.Body.Len() != 0 {
			t.Errorf("accepting %q: %d with %d bytes", accept, again.Code, again.Body.Len())
		}
	}
}

func TestNothingElseIsThere(t *testing.T) {
	h := site(t)
	for _, target := range []string{
		"/nothing", "/assets/", "/assets/nothing.js", "/dist/playground.html", "/playground.html", "/playground/",
		"/assets/%2e%2e/dashboard.go", "/assets/..%2fdashboard.go", "/assets/..%5c..%5cgo.mod",
	} {
		if got := get(h, target, nil).Code; got != http.StatusNotFound {
			t.Errorf("%s: %d", target, got)
		}
	}
	r := httptest.NewRequest(http.MethodPost, "/playground", nil)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", w.Code)
	}
}
