package httplimit_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/middleware/httplimit"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// onRealTime returns a Limiter that uses time.Now, for synctest bubbles.
func onRealTime() *headgate.Limiter {
	return headgate.New(memory.New(memory.WithClock(time.Now)), headgate.WithClock(time.Now))
}

// A request holds its slot until it ends, however short the lease, and frees it at once,
// however it ends.
func TestPlacesAreHeldUntilTheHandlerIsDone(t *testing.T) {
	t.Parallel()
	for name, handle := range map[string]http.HandlerFunc{
		"answered": ok,
		"a stream": func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, "x")
			_ = http.NewResponseController(w).Flush()
		},
		"a panic":  func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"a refund": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) },
		"client is gone": func(_ http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limit := headgate.Concurrent(1).WithLease(time.Second)
				h := httplimit.New(onRealTime(), limit, httplimit.RefundIf(http.StatusBadGateway),
					httplimit.Also(headgate.PerHour(1000)))(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/next" {
						return
					}
					time.Sleep(time.Minute) // sixty leases
					handle(w, r)
				}))
				ctx, leave := context.WithTimeout(t.Context(), 2*time.Minute)
				defer leave()
				done := make(chan struct{})
				go func() {
					defer close(done)
					defer func() { _ = recover() }() // as net/http does
					ask(h, func(r *http.Request) { *r = *r.WithContext(ctx) })
				}()
				for range 59 {
					synctest.Wait()
					if rec := ask(h, to("/next")); rec.Code != http.StatusTooManyRequests || rec.Header().Get("Retry-After") != "1" {
						t.Fatalf("a second of one: %d, Retry-After %q", rec.Code, rec.Header().Get("Retry-After"))
					}
					time.Sleep(time.Second)
				}
				<-done
				for range 2 {
					if rec := ask(h, to("/next")); rec.Code != http.StatusOK {
						t.Errorf("the request has ended and its place is not free: %d", rec.Code)
					}
				}
			})
		})
	}
}

// A request that waits for its turn holds no slot. If no slot is free at its turn, it is
// refused and charged nothing.
func TestWhoWaitsHoldsNoPlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		limiter := onRealTime()
		queue := headgate.PerSecond(1).WithAlgorithm(headgate.LeakyBucket).WithBurst(9)
		places := headgate.Concurrent(1).WithLease(10 * time.Second)
		day := headgate.PerDay(9)
		h := httplimit.New(limiter, queue, httplimit.Name("queue"), httplimit.Also(places, httplimit.Name("places"), httplimit.By(func(*http.Request) (string, bool) { return "all", true })),
			httplimit.Also(day, httplimit.Name("day")))(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/slow" {
				time.Sleep(10 * time.Second)
			}
		}))
		from := func(address string) func(*http.Request) {
			return func(r *http.Request) { r.RemoteAddr = address + ":9" }
		}
		begin := time.Now()
		later := func(options ...func(*http.Request)) chan string {
			answered := make(chan string, 1)
			go func() {
				rec := ask(h, options...)
				answered <- fmt.Sprintf("%d at %s", rec.Code, time.Since(begin))
			}()
			synctest.Wait()
			return answered
		}
		want := func(answered chan string, want string) {
			t.Helper()
			if got := <-answered; got != want {
				t.Errorf("%s, want %s", got, want)
			}
		}
		want(later(from("192.0.2.1")), "200 at 0s")
		waits := later(from("192.0.2.1"))
		want(later(from("192.0.2.2")), "200 at 0s") // the slot is free
		want(waits, "200 at 1s")
		waits = later(from("192.0.2.1"))
		slow := later(from("192.0.2.3"), to("/slow"))
		want(waits, "429 at 2s")
		d, err := limiter.Caller().Do(t.Context(), store.Op{Key: "192.0.2.1", Scope: "day", Rule: day.Rule(), Kind: store.KindPeek, Cost: 1})
		if err != nil || d.Remaining != 7 {
			t.Errorf("%d left of the day, want 7: %v", d.Remaining, err)
		}
		want(slow, "200 at 11s")
		want(later(from("192.0.2.1")), "200 at 11s")
	})
}

// A client that leaves while its request waits in the queue holds no slot.
func TestWhoGivesUpWaitingHoldsNoPlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		limiter := onRealTime()
		queue := headgate.PerMinute(1).WithAlgorithm(headgate.LeakyBucket).WithBurst(3)
		places := headgate.Concurrent(2).WithLease(10 * time.Second)
		h := httplimit.New(limiter, places, httplimit.Name("places"), httplimit.Also(queue, httplimit.Name("queue")))(http.HandlerFunc(ok))
		ask(h) // the queue's next turn is a minute away
		ctx, leave := context.WithCancel(t.Context())
		var gone *httptest.ResponseRecorder
		go func() { gone = ask(h, func(r *http.Request) { *r = *r.WithContext(ctx) }) }()
		synctest.Wait()
		left := func() int64 {
			d, err := limiter.Caller().Do(t.Context(), store.Op{Key: "198.51.100.7", Scope: "places", Rule: places.Rule(), Kind: store.KindPeek, Cost: 1})
			if err != nil {
				t.Fatal(err)
			}
			return d.Remaining
		}
		time.Sleep(30 * time.Second)
		if got := left(); got != 2 {
			t.Errorf("%d places are free while one waits, want 2", got)
		}
		leave()
		synctest.Wait()
		if gone == nil || gone.Code != http.StatusServiceUnavailable || left() != 2 {
			t.Errorf("who went away got %+v, and %d of 2 places are free", gone, left())
		}
	})
}

// On a real server, a client that disconnects during a stream frees its slot.
func TestPlacesOverARealConnection(t *testing.T) {
	t.Parallel()
	limiter := headgate.New(memory.New())
	entered := make(chan struct{}, 1)
	server := httptest.NewServer(httplimit.New(limiter, headgate.Concurrent(1).WithLease(time.Hour))(
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/next" {
				return
			}
			entered <- struct{}{}
			for r.Context().Err() == nil {
				fmt.Fprintln(w, "more")
				_ = http.NewResponseController(w).Flush()
			}
		})))
	defer server.Close()
	get := func(ctx context.Context, path string) *http.Response {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	ctx, leave := context.WithCancel(t.Context())
	stream := get(ctx, "/")
	defer func() { _ = stream.Body.Close() }()
	<-entered
	status := func() int {
		res := get(t.Context(), "/next")
		_ = res.Body.Close()
		return res.StatusCode
	}
	if got := status(); got != http.StatusTooManyRequests {
		t.Errorf("a second of one: %d", got)
	}
	leave()
	deadline := time.Now().Add(20 * time.Second)
	for status() != http.StatusOK {
		if time.Now().After(deadline) {
			t.Fatal("the client is gone and its place is not free")
		}
	}
}
