package httplimit_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/middleware/httplimit"
)

// workers is a handler with so many workers, each of which takes 20 ms for a request.
func workers(n int) http.Handler {
	free := make(chan struct{}, n)
	return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case free <- struct{}{}:
		case <-r.Context().Done():
			return
		}
		time.Sleep(20 * time.Millisecond)
		<-free
	})
}

// asked sends a request, whose client waits for a second, and returns the status of the answer.
func asked(t *testing.T, h http.Handler, path string) int {
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil))
	if ctx.Err() != nil {
		return 0
	}
	return w.Code
}

// In an overload, what is let in is answered in time, and critical requests are let in.
func TestAdaptiveKeepsCapacity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := httplimit.Adaptive{Critical: func(r *http.Request) bool { return r.URL.Path == "/pay" }}
		h := a.Limit(workers(4)) // 200 a second
		var mu sync.Mutex
		codes := map[string]map[int]int{"/": {}, "/pay": {}}
		var all sync.WaitGroup
		const seconds = 30
		for i := range seconds * 1000 {
			path := "/"
			if i%50 == 0 { // 20 a second
				path = "/pay"
			}
			all.Go(func() {
				code := asked(t, h, path)
				mu.Lock()
				defer mu.Unlock()
				codes[path][code]++
			})
			time.Sleep(time.Millisecond)
		}
		all.Wait()
		if good := codes["/"][200] + codes["/pay"][200]; good < seconds*200*9/10 {
			t.Errorf("%d answers in time, want at least 90 %% of %d", good, seconds*200)
		}
		if codes["/pay"][200] < seconds*20-2 {
			t.Errorf("of %d critical requests %d were answered", seconds*20, codes["/pay"][200])
		}
		if s := a.State(); s.InFlight != 0 || s.Refused == 0 || s.Limit < 4 || s.Limit > 20 || s.Service < 15*time.Millisecond || s.Service > 30*time.Millisecond {
			t.Errorf("%+v", s)
		}
	})
}

// However a request ends, its place is free again, and it is a sample only of what works.
func TestAdaptivePlacesAreGivenBack(t *testing.T) {
	for name, serve := range map[string]http.HandlerFunc{
		"an answer": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") },
		"nothing":   func(http.ResponseWriter, *http.Request) {},
		"an error":  func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
		"a panic":   func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"a hijack":  func(w http.ResponseWriter, _ *http.Request) { _, _, _ = http.NewResponseController(w).Hijack() },
		"a body":    func(_ http.ResponseWriter, r *http.Request) { _, _ = io.ReadAll(r.Body) },
	} {
		t.Run(name, func(t *testing.T) {
			a := httplimit.Adaptive{Max: 3}
			h := a.Limit(serve)
			for range 10 {
				func() {
					defer func() { _ = recover() }()
					h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", strings.NewReader("body")))
				}()
			}
			if s := a.State(); s.InFlight != 0 || s.Refused != 0 {
				t.Errorf("%+v after all have ended", s)
			}
		})
	}
}

// A stream holds its place until it begins, a long poll for a second.
func TestAdaptiveStreamsHoldNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		a := httplimit.Adaptive{Min: 1, Max: 1}
		h := a.Limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/stream":
				_ = http.NewResponseController(w).Flush()
				<-end
			case "/poll":
				<-end
			}
		}))
		var all sync.WaitGroup
		send := func(path string, want int) {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
			if w.Code != want {
				t.Errorf("%s: %d, want %d", path, w.Code, want)
			}
			if after := w.Header().Get("Retry-After"); (after != "") != (want == 503) || after != "" && !strings.Contains("123", after) {
				t.Errorf("%s: Retry-After %q", path, after)
			}
		}
		all.Go(func() { send("/stream", 200) })
		synctest.Wait()
		send("/", 200)
		all.Go(func() { send("/poll", 200) })
		synctest.Wait()
		send("/", 503)
		time.Sleep(time.Second)
		synctest.Wait()
		send("/", 200)
		close(end)
		all.Wait()
	})
}

// takesOver is a writer whose connection can be taken over.
type takesOver struct{ *httptest.ResponseRecorder }

func (takesOver) Hijack() (net.Conn, *bufio.ReadWriter, error) { return nil, nil, nil }

// cutOff is a body that its client breaks off.
type cutOff struct{}

func (cutOff) Read([]byte) (int, error) {
	time.Sleep(600 * time.Millisecond)
	return 0, io.ErrUnexpectedEOF
}

// WebSockets that have begun, and uploads that are broken off, are no load and no sign of a line.
func TestAdaptiveOthersFindPlaces(t *testing.T) {
	for path, rate := range map[string]time.Duration{"/socket": 60, "/upload": 25, "/error": 60} {
		t.Run(path, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, end := httplimit.Adaptive{}, make(chan struct{})
				h := a.Limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					time.Sleep(10 * time.Millisecond)
					switch r.URL.Path {
					case "/socket":
						_, _, _ = http.NewResponseController(w).Hijack()
						<-end
					case "/upload":
						if _, err := io.ReadAll(r.Body); err != nil {
							w.WriteHeader(http.StatusBadRequest)
						}
					case "/error":
						time.Sleep(100 * time.Millisecond)
						w.WriteHeader(http.StatusInternalServerError)
					}
				}))
				var all sync.WaitGroup
				var shed atomic.Int64
				const seconds = 120
				for i := range seconds * int(rate) {
					for _, path := range []string{path, "/"}[:2-min(i%10, 1)] {
						all.Go(func() {
							w := takesOver{httptest.NewRecorder()}
							h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, cutOff{}))
							if path == "/" && w.Code == http.StatusServiceUnavailable {
								shed.Add(1)
							}
						})
					}
					time.Sleep(time.Second / rate)
				}
				if asked := seconds * int64(rate) / 10; shed.Load()*4 > asked {
					t.Errorf("%d of %d were shed, want at most a quarter: there are two experiments; %+v", shed.Load(), asked, a.State())
				}
				close(end)
				all.Wait()
				if s := a.State(); s.InFlight != 0 || s.Limit < 20 {
					t.Errorf("%+v after all have ended", s)
				}
			})
		})
	}
}

func TestAdaptiveNeedsAHandler(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	new(httplimit.Adaptive).Limit(nil)
}
