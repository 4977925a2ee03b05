package proxy_test

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"
)

// The limit starts with 100 and refills 10 a second. Two requests take 50 each, the
// third is sent after five seconds, and the time of the fourth shows the third's cost.
func TestQueuedRequestsCostWhatTheyTell(t *testing.T) {
	const text = `
domain: api
limits:
  - name: tokens
    rate: 10/second
    burst: 100
    cost: {estimate: 50, from_response: X-Tokens, on_error: cancel, on_abort: 150}
    on_limit: {action: queue}
`
	long := strings.Repeat("x", 1<<20)
	for name, row := range map[string]struct {
		status  int
		header  string
		trailer string
		body    io.Reader
		fault   error
		fourth  time.Duration
	}{
		"more":                            {header: "200", fourth: 25 * time.Second},
		"less":                            {header: "10", fourth: 6 * time.Second},
		"nothing":                         {header: "0", fourth: 5 * time.Second},
		"not told":                        {fourth: 10 * time.Second},
		"in a trailer":                    {trailer: "200", fourth: 25 * time.Second},
		"in a trailer behind a long body": {trailer: "200", body: strings.NewReader(long), fourth: 25 * time.Second},
		"told, and a body that breaks":    {header: "10", body: iotest.ErrReader(io.ErrUnexpectedEOF), fourth: 6 * time.Second},
		"a body that breaks":              {body: iotest.ErrReader(io.ErrUnexpectedEOF), fourth: 10 * time.Second},
		"an error":                        {status: 503, fourth: 5 * time.Second},
		"not reached":                     {fault: &net.OpError{Op: "dial", Err: errors.New("refused")}, fourth: 5 * time.Second},
		"no answer in time":               {fault: &net.OpError{Op: "read", Err: timeout{}}, fourth: 20 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLaterOf(t, text, func(r *http.Request) (*http.Response, error) {
					res := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody, Request: r, ProtoMajor: 1, ProtoMinor: 1}
					if r.URL.Path != "/3" {
						return res, nil
					}
					if row.fault != nil {
						return nil, row.fault
					}
					if row.status > 0 {
						res.StatusCode = row.status
					}
					if row.header != "" {
						res.Header.Set("X-Tokens", row.header)
					}
					body := row.body
					if body == nil {
						body = strings.NewReader("made")
					}
					res.Body = io.NopCloser(io.MultiReader(body, atEnd(func() {
						if row.trailer != "" {
							res.Trailer = http.Header{"X-Tokens": {row.trailer}}
						}
					})))
					return res, nil
				})
				l.policy.Retries = 0
				for _, path := range []string{"/1", "/2"} {
					if w := l.ask("GET", path, ""); w.Code != http.StatusOK {
						t.Fatal(w.Code)
					}
				}
				idOf(t, l.ask("GET", "/3", ""))
				idOf(t, l.ask("GET", "/4", ""))
				time.Sleep(time.Minute)
				up := " GET http://upstream.example/"
				l.want("0s"+up+"1 ", "0s"+up+"2 ", "5s"+up+"3 ", row.fourth.String()+up+"4 ")
				if err := l.queue.Close(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// atEnd is an empty reader that is called when the reader before it has ended.
type atEnd func()

// Read implements io.Reader.
func (f atEnd) Read([]byte) (int, error) {
	f()
	return 0, io.EOF
}

// A queued request counts by its own answer. The limit refills one a second: the time of
// the fourth request shows what the third counted.
func TestQueuedRequestsCountByTheirAnswer(t *testing.T) {
	const text = `
domain: api
limits:
  - {name: failed, rate: 1/second, burst: 2, charge_on: {status: 401}, on_limit: queue}
`
	for status, fourth := range map[int]string{http.StatusOK: "1s", http.StatusUnauthorized: "2s"} {
		synctest.Test(t, func(t *testing.T) {
			l := newLaterOf(t, text, func(r *http.Request) (*http.Response, error) {
				res, err := ok(r)
				if res.StatusCode = http.StatusUnauthorized; r.URL.Path == "/3" {
					res.StatusCode = status
				}
				return res, err
			})
			l.policy.Retries = 0
			for _, path := range []string{"/1", "/2"} {
				l.ask("GET", path, "")
			}
			idOf(t, l.ask("GET", "/3", ""))
			idOf(t, l.ask("GET", "/4", ""))
			time.Sleep(time.Minute)
			up := " GET http://upstream.example/"
			l.want("0s"+up+"1 ", "0s"+up+"2 ", "1s"+up+"3 ", fourth+up+"4 ")
			if err := l.queue.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}
