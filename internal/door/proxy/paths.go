package proxy

import (
	"net/http"
	"net/url"

	"github.com/headgate/headgate/internal/request/reading"
)

// admitPath returns r with the path that it goes on with, or why it does not.
func (p *Proxy) admitPath(r *http.Request) (admitted *http.Request, refusal string) {
	r = withItsEscapes(r)
	path := r.URL.EscapedPath()
	if path == "*" || reading.IsPlain(path) {
		return r, ""
	}
	switch p.options.Paths {
	case reading.Refuse:
		if reading.IsAmbiguous(path) {
			return nil, "the path can be read in several ways: leave out dot segments, doubled slashes, backslashes, semicolons and needless escapes"
		}
	case reading.CleanUp:
		if r = withPath(r, reading.Clean(path)); r == nil {
			return nil, "the path cannot be read"
		}
		path = r.URL.EscapedPath()
	case reading.Forward:
	}
	s, _ := p.readings.Get().(*reading.Set)
	defer p.readings.Put(s)
	s.Read(path)
	switch {
	case s.Beyond():
		return nil, "the path can be read in too many ways"
	case s.Climbs() && len(p.options.Upstream.Path) > 1:
		// Behind the upstream's own path it would lead out of that.
		return nil, "the path leads above its beginning"
	}
	return r, ""
}

// withItsEscapes returns r with the escapes that its path came with. Where one
// character may not stand in a path as it is, net/url escapes all of it again, and
// makes a slash of each %2f.
func withItsEscapes(r *http.Request) *http.Request {
	raw := r.URL.RawPath
	if raw == "" || raw == r.URL.EscapedPath() {
		return r
	}
	if again := withPath(r, reading.Escape(raw)); again != nil {
		return again
	}
	return r
}

// withPath returns r with another path, percent-encoded, or nil if it is none.
func withPath(r *http.Request, path string) *http.Request {
	decoded, err := url.PathUnescape(path)
	if err != nil {
		return nil
	}
	target := *r.URL
	target.Path, target.RawPath = decoded, path
	out := *r
	out.URL = &target
	return &out
}
