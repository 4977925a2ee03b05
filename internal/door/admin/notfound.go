package admin

import (
	"io"
	"net/http"
	"strings"

	"github.com/headgate/headgate/internal/door/answer"
)

// notFoundPage is what a browser gets for an address without a page. It needs
// nothing but itself.
const notFoundPage = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Page not found - Headgate</title>
<h1>Page not found</h1>
<p>There is no page at this address. Go to the <a href="/">dashboard</a>,
the <a href="/rules">rules</a>, the <a href="/keys">keys</a> or the <a href="/playground">playground</a>.</p>
</html>
`

// withNotFound answers what mux does not know: a browser with a page that leads
// on, everybody else with a problem. A method that an address does not take
// stays mux's own 405.
func withNotFound(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, pattern := mux.Handler(r); pattern == "" {
			w = &unknown{ResponseWriter: w, request: r}
		}
		mux.ServeHTTP(w, r)
	})
}

// unknown replaces a 404 and its body.
type unknown struct {
	http.ResponseWriter
	request  *http.Request
	replaced bool
}

// WriteHeader implements http.ResponseWriter.
func (u *unknown) WriteHeader(status int) {
	if status != http.StatusNotFound {
		u.ResponseWriter.WriteHeader(status)
		return
	}
	u.replaced = true
	if !strings.Contains(u.request.Header.Get("Accept"), "text/html") {
		answer.Problem(u.ResponseWriter, status, "there is nothing at this address; the pages are at /, the API of this door below /v1")
		return
	}
	h := u.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	u.ResponseWriter.WriteHeader(status)
	_, _ = io.WriteString(u.ResponseWriter, notFoundPage)
}

// Write implements http.ResponseWriter.
func (u *unknown) Write(p []byte) (int, error) {
	if u.replaced {
		return len(p), nil
	}
	return u.ResponseWriter.Write(p)
}
