package proxy_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/store/memory"
)

const costRules = `
domain: api
limits:
  - {name: keep, match: {path: /keep}, rate: 1000/day, algorithm: fixed_window, cost: {estimate: 300, from_response: X-Tokens-Used}}
  - {name: cancel, match: {path: /cancel}, rate: 1000/day, algorithm: fixed_window, cost: {estimate: 300, from_response: X-Tokens-Used, on_error: cancel}}
`

// The estimate is charged before the request and the difference after it, whatever its
// outcome.
func TestTheResponseTellsTheCost(t *testing.T) {
	answers := func(status int, header, trailer string) upstream {
		return func(r *http.Request) (*http.Response, error) {
			res, err := ok(r)
			res.StatusCode = status
			if header != "" {
				res.Header.Set("X-Tokens-Used", header)
			}
			if trailer != "" && r.Header.Get("Te") == "trailers" { // as RFC 9110 says in 6.5.1
				res.Trailer = http.Header{"X-Tokens-Used": nil}
				res.Body = io.NopCloser(&announced{strings.NewReader("stream"), func() { res.Trailer.Set("X-Tokens-Used", trailer) }})
			}
			return res, err
		}
	}
	down := func(*http.Request) (*http.Response, error) { return nil, errors.New("refused") }
	gone := func(r *http.Request) (*http.Response, error) { return nil, context.Canceled }
	for _, c := range []struct {
		name string
		path string
		to   upstream
		used int64
	}{
		{"less", "/keep", answers(200, "120", ""), 120},
		{"nothing", "/keep", answers(200, "0", ""), 0},
		{"more", "/keep", answers(200, "812", ""), 812},
		{"more than there is", "/keep", answers(200, "5000", ""), 5000},
		{"as estimated", "/keep", answers(200, "300", ""), 300},
		{"in a trailer", "/keep", answers(200, "", "450"), 450},
		{"a header before a trailer", "/keep", answers(200, "10", "450"), 10},
		{"not told", "/keep", answers(200, "", ""), 300},
		{"no number", "/keep", answers(200, "many", ""), 300},
		{"an error that tells", "/keep", answers(503, "40", ""), 40},
		{"an error that does not", "/keep", answers(503, "", ""), 300},
		{"an error, cancelled", "/cancel", answers(503, "40", ""), 0},
		{"a client's mistake", "/cancel", answers(404, "", ""), 300},
		{"upstream down", "/keep", down, 300},
		{"upstream down, cancelled", "/cancel", down, 0},
		{"client gone", "/cancel", gone, 300},
	} {
		t.Run(c.name, func(t *testing.T) {
			store := memory.New(memory.WithClock(time.Now))
			p := newProxy(t, costRules, store, c.to)
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			if c.name == "client gone" {
				inner := c.to
				p = newProxy(t, costRules, store, func(r *http.Request) (*http.Response, error) { leave(); return inner(r) })
			}
			p.ServeHTTP(httptest.NewRecorder(), request(ctx, "GET", c.path))
			w := httptest.NewRecorder()
			newProxy(t, costRules, store, ok).ServeHTTP(w, request(t.Context(), "GET", c.path))
			want := max(1000-c.used-300, 0)
			if 1000-c.used < 300 {
				want = max(1000-c.used, 0) // refused
			}
			if got := w.Header().Get("X-RateLimit-Remaining"); got != strconv.FormatInt(want, 10) {
				t.Errorf("the next is told %s remaining, want %d", got, want)
			}
		})
	}
}

// announced is a body followed by trailers.
type announced struct {
	io.Reader
	end func()
}

func (a *announced) Read(p []byte) (int, error) {
	n, err := a.Reader.Read(p)
	if errors.Is(err, io.EOF) {
		a.end()
	}
	return n, err
}
