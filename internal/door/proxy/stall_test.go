package proxy_test

import (
	"bufio"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/door/proxy"
	"github.com/headgate/headgate/store/memory"
)

// A client that stalls in the middle of an unwanted body is disconnected, and the
// concurrency slot of its request is freed.
func TestBodiesThatNobodyWants(t *testing.T) {
	const text = "domain: api\nlimits:\n  - {name: one, match: {path: /early}, concurrency: 1, lease: 2h}\n"
	// Like net/http's transport, it keeps reading after the answer.
	early := func(r *http.Request) (*http.Response, error) {
		res, err := ok(r)
		if r.Body != nil && r.Body != http.NoBody {
			go func() { _, _ = io.Copy(io.Discard, r.Body) }()
			time.Sleep(time.Second) // until it waits for the client
		}
		return res, err
	}
	for _, row := range []struct {
		name, line string
		want       int
	}{
		{"answered early", "POST /early HTTP/1.1", http.StatusOK},
		{"what became of a request", "POST /.status/x HTTP/1.1", http.StatusMethodNotAllowed},
		{"a tunnel", "CONNECT x.example:80 HTTP/1.1", http.StatusNotImplemented},
	} {
		for _, header := range []string{
			"Content-Length: 100", "Content-Length: 1000000", "Transfer-Encoding: chunked", "Content-Length: 100\r\nExpect: 100-continue",
		} {
			synctest.Test(t, func(t *testing.T) {
				p := newProxy(t, text, memory.New(memory.WithClock(time.Now)), early, func(o *proxy.Options) { o.StatusPath = "/.status/" })
				l := serveInMemory(t, p, 0)
				begin := time.Now()
				nc := l.dial()
				defer func() { _ = nc.Close() }()
				_ = nc.SetDeadline(begin.Add(time.Hour))
				go func() { _, _ = io.WriteString(nc, row.line+"\r\nHost: x.example\r\n"+header+"\r\n\r\n1") }()
				in := bufio.NewReader(nc)
				if got := status(in); got != row.want {
					t.Errorf("%s, %q: %d after %s", row.name, header, got, time.Since(begin))
				}
				if _, err := io.Copy(io.Discard, in); err != nil || time.Since(begin) > 70*time.Second {
					t.Errorf("%s, %q: the connection ends with %v after %s", row.name, header, err, time.Since(begin))
				}
				next := l.dial()
				defer func() { _ = next.Close() }()
				go func() { _, _ = io.WriteString(next, "GET /early HTTP/1.1\r\nHost: x\r\n\r\n") }()
				if got := status(bufio.NewReader(next)); got != http.StatusOK {
					t.Errorf("%s, %q: the next request: %d", row.name, header, got)
				}
			})
		}
	}
}

// status returns the status of an answer, or 0 if there is none.
func status(in *bufio.Reader) int {
	for {
		res, err := http.ReadResponse(in, nil)
		if err != nil {
			return 0
		}
		_ = res.Body.Close()
		if res.StatusCode != http.StatusContinue {
			return res.StatusCode
		}
	}
}
