package admin_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/door/admin"
)

const token = "0123456789abcdef"

func says(text string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) })
}

func door(token string, pprof bool) http.Handler {
	return admin.Guarded(admin.Options{Settings: admin.Settings{Token: config.Secret(token), Pprof: pprof}, Health: says("healthy")},
		map[string]http.Handler{"GET /rlconfig": says("rules"), "/v1/keys": says("keys")})
}

func ask(h http.Handler, method, path string, change func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, nil)
	r.Host = "127.0.0.1:6070"
	if change != nil {
		change(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestWithoutAToken(t *testing.T) {
	rows := []struct {
		method, path, host, fetch string
		want                      int
	}{
		{"GET", "/rlconfig", "127.0.0.1:6070", "", 200},
		{"GET", "/rlconfig", "localhost:6070", "", 200},
		{"GET", "/rlconfig", "LocalHost", "", 200},
		{"GET", "/rlconfig", "[::1]:6070", "", 200},
		{"GET", "/rlconfig", "[::1]", "", 200},
		{"GET", "/rlconfig", "[::ffff:127.0.0.1]:6070", "", 200},
		{"GET", "/rlconfig", "evil.example:6070", "", 403}, // a name that resolves to loopback
		{"GET", "/rlconfig", "127.0.0.1.evil.example", "", 403},
		{"GET", "/rlconfig", "10.0.0.1:6070", "", 403},
		{"GET", "/rlconfig", "", "", 403},
		{"POST", "/v1/keys", "localhost", "cross-site", 403},
		{"POST", "/v1/keys", "localhost", "same-origin", 200},
		{"POST", "/v1/keys", "localhost", "", 200}, // not a browser
		{"POST", "/rlconfig", "localhost", "", 405},
		{"GET", "/nothing", "localhost", "", 404},
		{"GET", "/debug/pprof/", "localhost", "", 404},
		{"GET", "/healthz", "10.0.0.1:6070", "", 200},
	}
	h := door("", false)
	for _, row := range rows {
		got := ask(h, row.method, row.path, func(r *http.Request) {
			r.Host = row.host
			if row.fetch != "" {
				r.Header.Set("Sec-Fetch-Site", row.fetch)
			}
		})
		if got.Code != row.want {
			t.Errorf("%s %s at %q, %q: %d, want %d", row.method, row.path, row.host, row.fetch, got.Code, row.want)
		}
	}
}

func TestWithAToken(t *testing.T) {
	rows := []struct {
		name, path, authorization string
		want                      int
	}{
		{"none", "/rlconfig", "", 401},
		{"bearer", "/rlconfig", "Bearer " + token, 200},
		{"bearer in small letters", "/rlconfig", "bearer " + token, 200},
		{"wrong", "/rlconfig", "Bearer 0123456789abcdeF", 401},
		{"a part", "/rlconfig", "Bearer 0123456789", 401},
		{"empty", "/rlconfig", "Bearer ", 401},
		{"more", "/rlconfig", "Bearer " + token + "0", 401},
		{"without a scheme", "/rlconfig", token, 401},
		{"as a password", "/rlconfig", "Basic YW55Ym9keTowMTIzNDU2Nzg5YWJjZGVm", 200},
		{"as a user", "/rlconfig", "Basic MDEyMzQ1Njc4OWFiY2RlZjo=", 401},
		{"no route without it either", "/nothing", "", 401},
		{"profiler", "/debug/pprof/", "", 401},
		{"probes need none", "/healthz", "", 200},
	}
	h := door(token, true)
	for _, row := range rows {
		got := ask(h, "GET", row.path, func(r *http.Request) {
			r.Host = "headgate.internal:6070" // with a token, any name is allowed
			if row.authorization != "" {
				r.Header.Set("Authorization", row.authorization)
			}
		})
		if got.Code != row.want {
			t.Errorf("%s: %d, want %d", row.name, got.Code, row.want)
		}
		if row.want == http.StatusUnauthorized && len(got.Header().Values("WWW-Authenticate")) != 2 {
			t.Errorf("%s: the answer does not ask: %v", row.name, got.Header())
		}
		if strings.Contains(got.Body.String(), token) {
			t.Errorf("%s: the token comes back: %s", row.name, got.Body)
		}
	}
}

// The command line may contain passwords.
func TestProfilerDoesNotTellTheCommandLine(t *testing.T) {
	h := door("", true)
	for _, path := range []string{"/debug/pprof/cmdline", "/debug/pprof/cmdline?debug=1", "/debug/pprof/"} {
		got := ask(h, "GET", path, nil)
		if strings.Contains(got.Body.String(), os.Args[0]) || strings.Contains(path, "cmdline") != (got.Code == http.StatusNotFound) {
			t.Errorf("%s: %d %s", path, got.Code, got.Body)
		}
	}
}

func TestProfilerHasToBeAskedFor(t *testing.T) {
	for _, open := range []bool{false, true} {
		got := ask(door("", open), "GET", "/debug/pprof/goroutine?debug=1", nil)
		if ok := got.Code == http.StatusOK && strings.Contains(got.Body.String(), "goroutine profile"); ok != open {
			t.Errorf("open %v: %d %.60s", open, got.Code, got.Body)
		}
	}
}

// For an unknown address, a browser gets a page with links, and programs an error. A
// wrong method stays a 405.
func TestUnknownAddresses(t *testing.T) {
	door := admin.Guarded(admin.Options{Health: says("healthy")}, map[string]http.Handler{"GET /rules": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "the rules")
	})})
	for _, row := range []struct {
		method, path, accept string
		status               int
		kind, text           string
	}{
		{"GET", "/rules", "text/html", 200, "text/plain; charset=utf-8", "the rules"},
		{"GET", "/ruels", "text/html,*/*;q=0.8", 404, "text/html; charset=utf-8", `<a href="/rules">`},
		{"GET", "/v1/ruels", "*/*", 404, "application/problem+json", "unknown path: the pages"},
		{"POST", "/rules", "text/html", 405, "text/plain; charset=utf-8", "Method Not Allowed"},
	} {
		r := httptest.NewRequestWithContext(t.Context(), row.method, row.path, nil)
		r.Host = "127.0.0.1:6070"
		r.Header.Set("Accept", row.accept)
		w := httptest.NewRecorder()
		door.ServeHTTP(w, r)
		if w.Code != row.status || w.Header().Get("Content-Type") != row.kind || !strings.Contains(w.Body.String(), row.text) {
			t.Errorf("%s %s: %d %q %s", row.method, row.path, w.Code, w.Header().Get("Content-Type"), w.Body)
		}
		if strings.Contains(w.Body.String(), "404 page not found") {
			t.Errorf("%s: %s", row.path, w.Body)
		}
	}
}
