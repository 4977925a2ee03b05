package proxy_test

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/door/proxy"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

const abortRules = `
domain: api
limits:
  - {name: largest, match: {path: /largest}, key: "header:X-Key", rate: 100000/day, algorithm: fixed_window, cost: {estimate: 10, from_response: X-Cost}}
  - {name: cancel, match: {path: /cancel}, key: "header:X-Key", rate: 100000/day, algorithm: fixed_window, cost: {estimate: 10, from_response: X-Cost, on_error: cancel}}
  - {name: number, match: {path: /number}, key: "header:X-Key", rate: 100000/day, algorithm: fixed_window, cost: {estimate: 10, from_response: X-Cost, on_abort: 70}}
  - {name: estimate, match: {path: /estimate}, key: "header:X-Key", rate: 100000/day, algorithm: fixed_window, cost: {estimate: 10, from_response: X-Cost, on_abort: estimate}}
`

// pieces is a body that pauses before each of its pieces.
type pieces struct {
	ctx   context.Context //nolint:containedctx // of the request, as in a transport
	each  time.Duration
	piece string
	left  int
	end   func() error
}

func (b *pieces) Read(p []byte) (int, error) {
	timer := time.NewTimer(b.each)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-b.ctx.Done():
		return 0, b.ctx.Err()
	}
	if b.left == 0 {
		return 0, b.end()
	}
	b.left--
	return copy(p, b.piece), nil
}

func (b *pieces) Close() error { return nil }

// works answers after a second with count pieces, one each second, and a cost of 500 in
// the trailer.
func works(count int, piece string) upstream { return worksUntil(count, piece, io.EOF) }

func worksUntil(count int, piece string, err error) upstream {
	return func(r *http.Request) (*http.Response, error) {
		select {
		case <-time.After(time.Second):
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
		res, _ := ok(r)
		res.Trailer = http.Header{"X-Cost": nil}
		res.Body = &pieces{r.Context(), time.Second, piece, count, func() error {
			if errors.Is(err, io.EOF) {
				res.Trailer.Set("X-Cost", "500")
			}
			return err
		}}
		return res, nil
	}
}

// used returns how much key has used of a path's rule.
func used(t *testing.T, store store.Store, path, key string) int64 {
	t.Helper()
	w := httptest.NewRecorder()
	newProxy(t, abortRules, store, func(r *http.Request) (*http.Response, error) {
		res, err := ok(r)
		res.Header.Set("X-Cost", "10")
		return res, err
	}).ServeHTTP(w, request(t.Context(), "GET", path, "X-Key", key))
	left, err := strconv.ParseInt(w.Header().Get("X-RateLimit-Remaining"), 10, 64)
	if err != nil {
		t.Fatalf("%d %v", w.Code, w.Header())
	}
	return 100_000 - left - 10
}

// A client never pays less by hanging up, at any time. The most expensive request so
// far has cost 300; a client that stays pays 500.
func TestHangingUpIsNeverCheaper(t *testing.T) {
	dial := &net.OpError{Op: "dial", Err: errors.New("refused")}
	fails := func(err error) upstream { return func(*http.Request) (*http.Response, error) { return nil, err } }
	tells := func(r *http.Request) (*http.Response, error) {
		res, err := works(100, "x")(r)
		if err == nil {
			res.Header.Set("X-Cost", "400")
		}
		return res, err
	}
	for _, row := range []struct {
		name  string
		to    upstream
		after time.Duration // the client goes away; 0 for never
		path  string
		want  int64
	}{
		{"it stays", works(3, "x"), 0, "/largest", 500},
		{"before the header", works(3, "x"), 10 * time.Millisecond, "/largest", 500},
		{"in the middle", works(3, "x"), 2500 * time.Millisecond, "/largest", 500},
		{"before the trailer", works(3, "x"), 4500 * time.Millisecond, "/largest", 500},
		{"the header told", tells, 5 * time.Second, "/largest", 400},
		{"the header will tell", tells, 10 * time.Millisecond, "/largest", 400},
		{"longer than we read", works(100, "x"), 10 * time.Millisecond, "/largest", 300},
		{"more than we read", works(100, strings.Repeat("x", 4096)), 10 * time.Millisecond, "/largest", 300},
		{"longer, at a stated price", works(100, "x"), 10 * time.Millisecond, "/number", 70},
		{"longer, at the estimate", works(100, "x"), 10 * time.Millisecond, "/estimate", 10},
		{"longer, errors are free", works(100, "x"), 10 * time.Millisecond, "/cancel", 300},
		{"the answer breaks off", worksUntil(3, "x", io.ErrUnexpectedEOF), 0, "/largest", 10}, // the client cannot help it
		{"it breaks off, errors are free", worksUntil(3, "x", io.ErrUnexpectedEOF), 0, "/cancel", 10},
		{"it breaks off, client gone", worksUntil(3, "x", io.ErrUnexpectedEOF), time.Millisecond, "/cancel", 300},
		{"no header in time", fails(timeout{}), 0, "/cancel", 300},
		{"it cannot be reached", fails(dial), 0, "/largest", 10},
		{"it cannot be reached, errors are free", fails(dial), 0, "/cancel", 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memory.New(memory.WithClock(time.Now))
				first := true
				p := newProxy(t, abortRules, store, func(r *http.Request) (*http.Response, error) {
					if first {
						first = false
						res, err := ok(r)
						res.Header.Set("X-Cost", "300")
						return res, err
					}
					return row.to(r)
				}, func(o *proxy.Options) { o.Abandoned = proxy.Abandoned{Time: 30 * time.Second, Bytes: 64 << 10} })
				p.ServeHTTP(httptest.NewRecorder(), request(t.Context(), "GET", row.path, "X-Key", "other"))
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				if row.after > 0 {
					time.AfterFunc(row.after, leave)
				}
				begin := time.Now()
				p.ServeHTTP(httptest.NewRecorder(), request(ctx, "GET", row.path, "X-Key", "it"))
				if took := time.Since(begin); row.after > 0 && took > row.after+31*time.Second {
					t.Errorf("it took %s", took)
				}
				if got := used(t, store, row.path, "it"); got != row.want {
					t.Errorf("%d used, want %d", got, row.want)
				}
			})
		})
	}
}

// A body that the client does not finish is not an upstream error.
func TestBreakingOffTheBodyIsNotCheaper(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(memory.WithClock(time.Now))
		p := newProxy(t, abortRules, store, func(r *http.Request) (*http.Response, error) {
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				return nil, err
			}
			return ok(r)
		})
		l := serveInMemory(t, p, 0)
		nc := l.dial()
		go func() {
			_, _ = io.WriteString(nc, "POST /cancel HTTP/1.1\r\nHost: x\r\nX-Key: it\r\nContent-Length: 100\r\n\r\nhalf")
			synctest.Wait()
			_ = nc.Close()
		}()
		_, _ = io.Copy(io.Discard, nc)
		synctest.Wait()
		if got := used(t, store, "/cancel", "it"); got != 10 {
			t.Errorf("%d used, want the estimate of 10", got)
		}
	})
}

// Many clients hang up at once: more than Abandoned allows, and when the process stops.
func TestManyHangUpAtOnce(t *testing.T) {
	for _, row := range []struct {
		name  string
		room  int64
		count int
		stop  bool
		want  int64
	}{
		{"all of them are read to the end", 50, 50, false, 50 * 500},
		{"some are not", 20, 50, false, 20*500 + 30*300},
		{"the process stops", 50, 50, true, 50 * 300},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memory.New(memory.WithClock(time.Now))
				var first atomic.Bool
				p := newProxy(t, abortRules, store, func(r *http.Request) (*http.Response, error) {
					if first.CompareAndSwap(false, true) {
						res, err := ok(r)
						res.Header.Set("X-Cost", "300")
						return res, err
					}
					return works(8, "x")(r)
				}, func(o *proxy.Options) { o.Abandoned = proxy.Abandoned{Requests: row.room} })
				p.ServeHTTP(httptest.NewRecorder(), request(t.Context(), "GET", "/largest", "X-Key", "other"))
				ctx, leave := context.WithCancel(t.Context())
				var wg sync.WaitGroup
				for range row.count {
					wg.Go(func() { p.ServeHTTP(httptest.NewRecorder(), request(ctx, "GET", "/largest", "X-Key", "it")) })
				}
				time.Sleep(1500 * time.Millisecond)
				leave()
				if row.stop {
					begin := time.Now()
					p.Drain(begin.Add(2 * time.Second))
					stopping, cancel := context.WithTimeout(t.Context(), 2*time.Second)
					defer cancel()
					p.Finish(stopping)
					if took := time.Since(begin); took > 3*time.Second {
						t.Errorf("stopping took %s", took)
					}
				} else {
					p.Finish(t.Context())
				}
				if got := used(t, store, "/largest", "it"); got != row.want {
					t.Errorf("%d used, want %d", got, row.want)
				}
				wg.Wait()
			})
		})
	}
}

// A client that breaks off its upload has its slot for as long as abandoned requests may
// run, not for the lease: the upstream has lost its connection, and nothing says what it does.
func TestBrokenUploadsFreeTheirSlots(t *testing.T) {
	const text = "domain: api\nlimits:\n  - {name: two, match: {path: /two}, concurrency: 2, lease: 5m}\n"
	for _, row := range []struct {
		name         string
		about        proxy.Abandoned
		answer       error // of the upstream; nil for that of its body
		after, taken time.Duration
	}{
		{"the default", proxy.Abandoned{}, nil, 61 * time.Second, 59 * time.Second},
		{"for a while", proxy.Abandoned{Time: 2 * time.Second}, nil, 2100 * time.Millisecond, 1900 * time.Millisecond},
		{"not at all", proxy.Abandoned{Time: -1}, nil, 0, 0},
		{"no answer in time", proxy.Abandoned{Time: 2 * time.Second}, timeout{}, 2100 * time.Millisecond, 1900 * time.Millisecond},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newProxy(t, text, memory.New(memory.WithClock(time.Now)), func(r *http.Request) (*http.Response, error) {
					if r.Body == nil || r.Body == http.NoBody {
						return ok(r)
					}
					_, err := io.Copy(io.Discard, r.Body)
					return nil, cmp.Or(row.answer, err)
				}, func(o *proxy.Options) { o.Abandoned = row.about })
				code := func(body io.Reader) int {
					r, w := request(t.Context(), "POST", "/two"), httptest.NewRecorder()
					if body != nil {
						r.Body, r.ContentLength = io.NopCloser(body), 1000
					}
					p.ServeHTTP(w, r)
					return w.Code
				}
				for range 2 {
					code(iotest.ErrReader(io.ErrUnexpectedEOF))
				}
				if row.taken > 0 {
					time.Sleep(row.taken)
					if got := code(nil); got != http.StatusTooManyRequests {
						t.Errorf("%d after %s, want 429: the upstream may go on", got, row.taken)
					}
				}
				time.Sleep(row.after - row.taken)
				if got := code(nil); got != http.StatusOK {
					t.Errorf("%d after %s, want 200", got, row.after)
				}
			})
		})
	}
}

// A process that stops leaves no slot of a broken upload to its lease.
func TestBrokenUploadsFreeTheirSlotsAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(memory.WithClock(time.Now))
		p := newProxy(t, "domain: api\nlimits:\n  - {name: one, match: {path: /one}, concurrency: 1, lease: 5m}\n", store, func(r *http.Request) (*http.Response, error) {
			if r.Body == nil || r.Body == http.NoBody {
				return ok(r)
			}
			_, err := io.Copy(io.Discard, r.Body)
			return nil, err
		})
		broken := request(t.Context(), "POST", "/one")
		broken.Body, broken.ContentLength = io.NopCloser(iotest.ErrReader(io.ErrUnexpectedEOF)), 1000
		p.ServeHTTP(httptest.NewRecorder(), broken)
		for _, want := range []int{http.StatusTooManyRequests, http.StatusOK} {
			w := httptest.NewRecorder()
			p.ServeHTTP(w, request(t.Context(), "POST", "/one"))
			if w.Code != want {
				t.Errorf("%d, want %d", w.Code, want)
			}
			p.Finish(t.Context())
		}
	})
}

// A slot is free when the upstream's work has ended, not when the client has gone: an
// upstream that does not notice never gets more requests than the limit.
func TestPlacesOutlastTheirClients(t *testing.T) {
	const text = "domain: api\nlimits:\n  - {name: two, match: {path: /two}, concurrency: 2, lease: 10s}\n"
	for _, row := range []struct {
		name  string
		about proxy.Abandoned
		free  time.Duration // when a slot is
	}{
		{"until the answer is done", proxy.Abandoned{}, 5 * time.Second},
		{"for as long as we read", proxy.Abandoned{Time: 2 * time.Second}, 2 * time.Second},
		{"without room, until the lease ends", proxy.Abandoned{Requests: 1}, 5 * time.Second},
		{"not at all", proxy.Abandoned{Time: -1}, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var now, most atomic.Int64
				p := newProxy(t, text, memory.New(memory.WithClock(time.Now)), func(r *http.Request) (*http.Response, error) {
					if n := now.Add(1); n > most.Load() {
						most.Store(n)
					}
					go func() { // whatever happens to the request
						time.Sleep(5 * time.Second)
						now.Add(-1)
					}()
					return works(3, "x")(r)
				}, func(o *proxy.Options) { o.Abandoned = row.about })
				send := func() {
					ctx, leave := context.WithTimeout(t.Context(), 20*time.Millisecond)
					defer leave()
					go p.ServeHTTP(httptest.NewRecorder(), request(ctx, "GET", "/two"))
					time.Sleep(30 * time.Millisecond)
				}
				begin := time.Now()
				for range 60 {
					send()
				}
				if row.free > 0 && most.Load() > 2 {
					t.Errorf("%d at once", most.Load())
				}
				var took time.Duration
				for code := http.StatusTooManyRequests; code == http.StatusTooManyRequests; {
					took = time.Since(begin)
					w := httptest.NewRecorder()
					short, leave := context.WithTimeout(t.Context(), time.Millisecond)
					p.ServeHTTP(w, request(short, "HEAD", "/two"))
					leave()
					code = w.Code
					time.Sleep(10 * time.Millisecond)
				}
				if row.free > 0 && (took < row.free || took > row.free+2*time.Second) {
					t.Errorf("a place is free after %s, want %s", took, row.free)
				}
				time.Sleep(time.Minute)
			})
		})
	}
}
