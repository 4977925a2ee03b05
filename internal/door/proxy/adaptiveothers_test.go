package proxy_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/headgate/headgate/internal/decide/adaptive"
	"github.com/headgate/headgate/store/memory"
)

// brokenOff is a body that its client breaks off after a while.
type brokenOff struct{ sent bool }

func (s *brokenOff) Read(p []byte) (int, error) {
	if !s.sent {
		s.sent = true
		return copy(p, "x"), nil
	}
	time.Sleep(600 * time.Millisecond)
	return 0, io.ErrUnexpectedEOF
}

// Tunnels, requests that their clients break off while they send them, and errors of an upstream are
// no line: others find a place, but while the limiter finds that out.
func TestOthersFindPlaces(t *testing.T) {
	to := func(r *http.Request) (*http.Response, error) {
		if r.Body != nil {
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				return nil, err
			}
		}
		switch r.URL.Path {
		case "/tunnel":
			time.Sleep(100 * time.Millisecond)
			return answering(http.StatusSwitchingProtocols)(r)
		case "/error":
			time.Sleep(100 * time.Millisecond)
			return answering(http.StatusInternalServerError)(r)
		case "/reset":
			time.Sleep(100 * time.Millisecond)
			return nil, errors.New("reset")
		}
		time.Sleep(10 * time.Millisecond)
		return ok(r)
	}
	for _, path := range []string{"/tunnel", "/error", "/reset", "/upload"} {
		t.Run(path, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, on := limiting(func(o *adaptive.Options) { o.Min, o.Max = 3, 1000 })
				p := newProxy(t, noLimits, memory.New(memory.WithClock(time.Now)), upstream(to), on)
				var all sync.WaitGroup
				var shed atomic.Int64
				send := func(r *http.Request) {
					all.Go(func() {
						w := httptest.NewRecorder()
						if p.ServeHTTP(w, r); w.Code == http.StatusServiceUnavailable && r.URL.Path == "/" {
							shed.Add(1)
						}
					})
				}
				const others = 720
				for i := range 10 * others { // two minutes
					r := request(t.Context(), "GET", path)
					if path == "/upload" {
						r = request(t.Context(), "POST", path)
						r.Body, r.ContentLength = io.NopCloser(new(brokenOff)), 2
					}
					if send(r); i%10 == 0 {
						send(request(t.Context(), "GET", "/"))
					}
					time.Sleep(time.Second / 60)
				}
				if shed.Load()*4 > others {
					t.Errorf("%d of %d others were shed, want at most a quarter: there are two experiments; %+v", shed.Load(), others, l.State())
				}
				all.Wait()
				if s := l.State(); s.InFlight != 0 {
					t.Errorf("%d in flight after all have ended", s.InFlight)
				}
			})
		})
	}
}

// A gRPC error that comes without a message is to the limit what a 5xx is: an upstream that fails
// fast is not a fast one.
func TestErrorsOfGRPCAreNoAnswers(t *testing.T) {
	upstreamFails := []codes.Code{codes.Unknown, codes.DeadlineExceeded, codes.ResourceExhausted, codes.Internal, codes.Unavailable, codes.DataLoss}
	rows := map[string]struct {
		status int
		header []string // of the answer
		fails  bool
	}{
		"500":             {500, nil, true},
		"503":             {503, nil, true},
		"404":             {404, nil, false},
		"not a number":    {200, []string{"x"}, false},
		"no such code":    {200, []string{"99"}, true}, // which clients take for UNKNOWN
		"in the trailer":  {200, nil, false},
		"500 and success": {500, []string{"0"}, true},
	}
	for code := codes.OK; code <= codes.Unauthenticated; code++ {
		rows[code.String()] = struct {
			status int
			header []string
			fails  bool
		}{200, []string{strconv.Itoa(int(code))}, slices.Contains(upstreamFails, code)}
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, on := limiting(func(o *adaptive.Options) { o.Max = 30 })
				p := newProxy(t, noLimits, memory.New(memory.WithClock(time.Now)), func(r *http.Request) (*http.Response, error) {
					time.Sleep(50 * time.Millisecond)
					res, err := answering(row.status)(r)
					res.Header["Content-Type"] = []string{"application/grpc"}
					if res.Header["Grpc-Status"] = row.header; row.header == nil {
						delete(res.Header, "Grpc-Status")
						res.Trailer = http.Header{"Grpc-Status": {"14"}}
					}
					return res, err
				}, on)
				for range 200 {
					sends(t, p, http.MethodPost, "/")
				}
				if s := l.State(); (s.Service == 0) != row.fails {
					t.Errorf("the service takes %gs, although fails is %t", s.Service, row.fails)
				}
			})
		})
	}
}
