package proxy_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/decide/adaptive"
	"github.com/headgate/headgate/internal/door/proxy"
	"github.com/headgate/headgate/internal/request/client"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

const noLimits = "domain: api\nlimits: []\n"

// limiting returns a limiter with one place, and what gives it to a proxy.
func limiting(change ...func(*adaptive.Options)) (*adaptive.Limiter, func(*proxy.Options)) {
	o := adaptive.Options{Min: 1, Max: 1}
	for _, f := range change {
		f(&o)
	}
	l := adaptive.New(o)
	return l, func(o *proxy.Options) { o.Adaptive = l }
}

// sends returns the answer to a request.
func sends(t *testing.T, p *proxy.Proxy, method, target string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	p.ServeHTTP(w, request(t.Context(), method, target))
	return w
}

// holding is an upstream that answers when it is told to.
func holding() (to upstream, release func()) {
	free := make(chan struct{})
	return func(r *http.Request) (*http.Response, error) {
		select {
		case <-free:
			return ok(r)
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}, func() { close(free) }
}

// A request for which the upstream has no place is told so, and costs nothing.
func TestShedRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to, release := holding()
		l, on := limiting()
		p := newProxy(t, "domain: api\nlimits:\n  - {name: all, rate: 10/hour, algorithm: fixed_window}\n", memory.New(memory.WithClock(time.Now)), to, on)
		var first sync.WaitGroup
		first.Go(func() { sends(t, p, "GET", "/") })
		synctest.Wait()
		for range 20 {
			w := sends(t, p, "POST", "/")
			after, err := strconv.Atoi(w.Header().Get("Retry-After"))
			if w.Code != 503 || err != nil || after < 1 || after > 3 || !strings.Contains(w.Body.String(), "the upstream is overloaded") {
				t.Fatalf("%d, Retry-After %q, %s", w.Code, w.Header().Get("Retry-After"), w.Body)
			}
			if told := w.Header().Get("RateLimit") + w.Header().Get("X-RateLimit-Limit"); told != "" {
				t.Errorf("a shed request is told of limits: %s", told)
			}
		}
		release()
		first.Wait()
		if w := sends(t, p, "GET", "/"); w.Code != 200 || !strings.Contains(w.Header().Get("RateLimit"), "r=8") {
			t.Errorf("%d, %s; want 200 and 8 left: shed requests are not charged", w.Code, w.Header().Get("RateLimit"))
		}
		if s := l.State(); s.InFlight != 0 || s.Refused != 20 {
			t.Errorf("%+v, want nothing in flight and 20 shed", s)
		}
	})
}

func TestShadowModeShedsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to, release := holding()
		l, on := limiting(func(o *adaptive.Options) { o.Shadow = true })
		p := newProxy(t, noLimits, memory.New(), to, on)
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				if w := sends(t, p, "GET", "/"); w.Code != 200 {
					t.Errorf("%d, want 200", w.Code)
				}
			})
		}
		synctest.Wait()
		release()
		all.Wait()
		if s := l.State(); s.Refused != 2 || s.InFlight != 0 {
			t.Errorf("%+v, want 2 that would have been shed", s)
		}
	})
}

// shopped are rules with classes, by the rule that chooses them or a header.
const shopped = "domain: api\npriorities: {classes: [critical, default, sheddable], from: \"header:X-Class\", rules: [{match: {path: /pay/**}, class: critical}]}\nlimits: []\n"

// Classes leave room to those above them, and what is shed is counted by class. A class that any
// client could claim counts as the default.
func TestClassesLeaveRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to, release := holding()
		l, on := limiting(func(o *adaptive.Options) { o.Max = 10 }) // at first
		shed := map[string]int{}
		p := newProxy(t, shopped, memory.New(memory.WithClock(time.Now)), to, on, func(o *proxy.Options) {
			o.Headroom = []proxy.Kept{{Class: "default", Part: 100_000}, {Class: "critical", Part: 400_000}}
			o.Shed = func(class string) { shed[class]++ }
		})
		var all sync.WaitGroup
		for _, row := range []struct {
			path, header string
			want         int // in flight afterwards
		}{{"/", "critical", 12}, {"/", "sheddable", 12}, {"/pay/1", "sheddable", 20}, {"/", "", 20}} { // a client is not believed
			for range 25 {
				all.Go(func() {
					p.ServeHTTP(httptest.NewRecorder(), request(t.Context(), "GET", row.path, "X-Class", row.header))
				})
				synctest.Wait()
			}
			if s := l.State(); s.InFlight != row.want {
				t.Errorf("%s %s: %d in flight, want %d", row.path, row.header, s.InFlight, row.want)
			}
		}
		release()
		all.Wait()
		if want := map[string]int{"default": 63, "critical": 17}; !maps.Equal(shed, want) {
			t.Errorf("shed %v, want %v", shed, want)
		}
	})
}

// asking verifies all tokens, but asks before whether their sender is refused anyway.
type asking struct{ asked *int }

func (a asking) Verify(h http.Header, _ time.Time, by client.Sender) (client.Verified, error) {
	if *a.asked++; by != nil && by.Refused() {
		return client.Verified{Unchecked: true}, nil
	}
	return client.Verified{First: client.NewClaims(map[string]any{"class": h.Get("Authorization")})}, nil
}

// The class may be a claim of a token, which is verified before any limit is asked, and once.
func TestClassFromAToken(t *testing.T) {
	const limits = "domain: api\npriorities: {classes: [critical, default], from: \"jwt:class\"}\nlimits: [{name: all, rate: 100/hour}]\n"
	synctest.Test(t, func(t *testing.T) {
		to, release := holding()
		_, on := limiting()
		asked := 0
		p := newProxy(t, limits, memory.New(memory.WithClock(time.Now)), to, on, func(o *proxy.Options) {
			o.Headroom, o.Tokens = []proxy.Kept{{Class: "critical", Part: 500_000}}, asking{&asked}
		})
		var all sync.WaitGroup
		for _, row := range []struct {
			class string
			want  int
		}{{"", 200}, {"other", 503}, {"critical", 200}, {"critical", 503}} {
			all.Go(func() {
				w := httptest.NewRecorder()
				p.ServeHTTP(w, request(t.Context(), "GET", "/", "Authorization", row.class))
				if w.Code != row.want {
					t.Errorf("%q: %d, want %d", row.class, w.Code, row.want)
				}
			})
			synctest.Wait()
		}
		release()
		all.Wait()
		if asked != 4 {
			t.Errorf("the tokens of 4 requests were verified %d times", asked)
		}
	})
}

// However a request ends, its place is free again, once.
func TestPlacesAreGivenBackOnce(t *testing.T) {
	limits := "domain: api\nlimits:\n  - {name: one, key: path, match: {path: /limited}, rate: 1/hour}\n" +
		"  - {name: ban, match: {path: /banned}, rate: 1/hour, on_limit: {action: shadow_ban, latency: 1m}}\n" +
		"  - {name: wait, match: {path: /delayed}, rate: 1/second, burst: 5, algorithm: leaky_bucket}\n"
	cases := map[string]struct {
		method, target string
		header         []string
		to             upstream
		leaves         bool // the client, after a second
	}{
		"an answer":      {target: "/", to: ok},
		"a server error": {target: "/", to: answering(500)},
		"an error":       {target: "/", to: breaking(errors.New("reset"))},
		"unreached":      {target: "/", to: breaking(&net.OpError{Op: "dial", Err: errors.New("refused")})},
		"a bad status":   {target: "/", to: answering(42)},
		"a panic":        {target: "/", to: func(*http.Request) (*http.Response, error) { panic(http.ErrAbortHandler) }},
		"a refusal":      {target: "/limited", to: ok},
		"a shadow ban":   {target: "/banned", to: ok},
		"a turn":         {target: "/delayed", to: ok},
		"the server":     {method: "OPTIONS", target: "*", to: ok},
		"a client that leaves": {target: "/", leaves: true, to: func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}},
		"an upgrade that is refused": {target: "/", header: []string{"Connection", "Upgrade", "Upgrade", "websocket"}, to: ok},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, on := limiting(func(o *adaptive.Options) { o.Max = 30 })
				p := newProxy(t, limits, memory.New(memory.WithClock(time.Now)), c.to, on)
				for range 3 {
					ctx, cancel := context.WithCancel(t.Context())
					if c.leaves {
						ctx, cancel = context.WithTimeout(t.Context(), time.Second)
					}
					func() {
						defer func() { _ = recover() }()
						p.ServeHTTP(httptest.NewRecorder(), request(ctx, max(c.method, "GET"), c.target, c.header...))
					}()
					cancel()
				}
				if s := l.State(); s.InFlight != 0 {
					t.Errorf("%d in flight after all have ended", s.InFlight)
				}
			})
		})
	}
}

func answering(code int) upstream {
	return func(r *http.Request) (*http.Response, error) {
		res, err := ok(r)
		res.StatusCode = code
		return res, err
	}
}

func breaking(err error) upstream {
	return func(*http.Request) (*http.Response, error) { return nil, err }
}

// Requests that wait for their turn, and answers that wait for a ban, are not in progress.
func TestWaitingHoldsNoPlace(t *testing.T) {
	for name, limits := range map[string]string{
		"turn": "domain: api\nlimits:\n  - {name: wait, match: {path: /slow}, rate: 1/minute, burst: 5, algorithm: leaky_bucket}\n",
		"ban":  "domain: api\nlimits:\n  - {name: ban, match: {path: /slow}, rate: 1/hour, on_limit: {action: shadow_ban, latency: 1m}}\n",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, on := limiting()
				p := newProxy(t, limits, memory.New(memory.WithClock(time.Now)), ok, on)
				var all sync.WaitGroup
				for range 3 {
					all.Go(func() { sends(t, p, "GET", "/slow") })
					synctest.Wait()
				}
				if s := l.State(); s.InFlight != 0 {
					t.Errorf("%d in flight while they wait", s.InFlight)
				}
				if w := sends(t, p, "GET", "/"); w.Code != 200 {
					t.Errorf("%d for another request, want 200", w.Code)
				}
				all.Wait()
			})
		})
	}
}

// A long poll holds its place for a second, or 50 times what others take: clients that wait for
// an event lock nobody out.
func TestLongPollsHoldNoPlaceForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, on := limiting()
		polls, release := holding()
		p := newProxy(t, noLimits, memory.New(memory.WithClock(time.Now)), func(r *http.Request) (*http.Response, error) {
			if r.URL.Path == "/poll" {
				return polls(r)
			}
			return ok(r)
		}, on)
		var all sync.WaitGroup
		all.Go(func() { sends(t, p, "GET", "/poll") })
		synctest.Wait()
		for _, row := range []struct {
			after time.Duration
			want  int
		}{{0, 503}, {999 * time.Millisecond, 503}, {2 * time.Millisecond, 200}} {
			time.Sleep(row.after)
			if w := sends(t, p, "GET", "/"); w.Code != row.want {
				t.Errorf("%v later: %d, want %d", row.after, w.Code, row.want)
			}
		}
		release()
		all.Wait()
		if s := l.State(); s.InFlight != 0 {
			t.Errorf("%d in flight at the end", s.InFlight)
		}
	})
}

// slow is a store that takes its time.
type slow struct{ store.Store }

func (s slow) Do(ctx context.Context, b *store.Batch) {
	time.Sleep(time.Second / 2)
	s.Store.Do(ctx, b)
}

// Who is refused by a limit never had a place, however long the store takes to say so; and who
// finds none at the upstream after that gets back what the limits took.
func TestLimitsAreAskedWithoutAPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limits = "domain: api\nlimits:\n  - {name: few, match: {path: /few}, rate: 1/hour, algorithm: fixed_window}\n"
		l, on := limiting()
		counts := memory.New(memory.WithClock(time.Now))
		held, release := holding()
		p := newProxy(t, limits, slow{counts}, held, on)
		codes := make(chan int, 2)
		var all sync.WaitGroup
		for range 2 { // one is over the limit
			all.Go(func() { codes <- sends(t, p, "GET", "/few").Code })
		}
		synctest.Wait()
		all.Go(func() { sends(t, p, "GET", "/other") })
		synctest.Wait()
		if s := l.State(); s.InFlight != 1 { // /other, which no limit holds up
			t.Errorf("%d in flight while the store is asked", s.InFlight)
		}
		time.Sleep(3 * time.Second / 2)
		first, second := <-codes, <-codes
		if min(first, second) != 429 || max(first, second) != 503 {
			t.Errorf("%d and %d, want one over the limit, and no place for the other", first, second)
		}
		release()
		all.Wait()
		time.Sleep(2 * time.Second)
		if w := sends(t, p, "GET", "/few"); w.Code != 200 {
			t.Errorf("%d: what a shed request took of its limit is lost", w.Code)
		}
	})
}

// The place is free when the header of the answer is there: a stream may last for hours
// (envoy#42243).
func TestStreamsHoldNoPlace(t *testing.T) {
	body, end := io.Pipe()
	l, on := limiting()
	p := newProxy(t, noLimits, memory.New(), func(r *http.Request) (*http.Response, error) {
		res, err := ok(r)
		res.Body = body
		return res, err
	}, on)
	front := httptest.NewServer(p)
	defer front.Close()
	res, err := http.Get(front.URL) //nolint:noctx // a test
	if err != nil {
		t.Fatal(err)
	}
	if s := l.State(); s.InFlight != 0 {
		t.Errorf("%d in flight while an answer streams", s.InFlight)
	}
	_ = end.Close()
	_ = res.Body.Close()
}

// A tunnel is over when its client likes. Neither does it hold a place, nor is it a sample.
func TestTunnelsHoldNoPlace(t *testing.T) {
	to, upstreams := switching(t)
	l, on := limiting()
	p := newProxy(t, noLimits, memory.New(), nil, on, func(o *proxy.Options) { o.Upstream, o.Transport = to, proxy.NewTransport() })
	front := httptest.NewServer(p)
	defer front.Close()
	client := upgrade(t, front.Listener.Addr().String())
	if s := l.State(); s.InFlight != 0 {
		t.Errorf("%d in flight while a tunnel is open", s.InFlight)
	}
	_ = client.Close()
	_ = (<-upstreams).Close()
}

// A client that sends its body slowly takes the place of nobody.
func TestSlowUploadsHoldNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, on := limiting()
		p := newProxy(t, noLimits, memory.New(), func(r *http.Request) (*http.Response, error) {
			if r.Body != nil {
				_, _ = io.Copy(io.Discard, r.Body)
			}
			return ok(r)
		}, on)
		in := serveInMemory(t, p, 0)
		nc := in.dial()
		defer func() { _ = nc.Close() }()
		_, _ = io.WriteString(nc, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n12345")
		synctest.Wait()
		if s := l.State(); s.InFlight != 1 {
			t.Fatalf("%d in flight, want 1", s.InFlight)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if s := l.State(); s.InFlight != 0 {
			t.Errorf("%d in flight, though the body has not arrived", s.InFlight)
		}
		_, _ = io.WriteString(nc, "67890")
		res, err := http.ReadResponse(bufio.NewReader(nc), nil)
		if err != nil || res.StatusCode != http.StatusOK {
			t.Fatalf("%v, %v", res, err)
		}
		_ = res.Body.Close()
		if s := l.State(); s.InFlight != 0 {
			t.Errorf("%d in flight at the end", s.InFlight)
		}
	})
}

// TestBackendProcess is the backend of TestBackendIsKilled: it tells of each request, and
// answers none.
func TestBackendProcess(t *testing.T) {
	if os.Getenv("HEADGATE_TEST_BACKEND") == "" {
		t.Skip("a process of its own")
	}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("listens %s\n", l.Addr())
	_ = http.Serve(l, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		fmt.Println("request")
		select {}
	}))
}

// When the upstream is killed, no place is lost.
func TestBackendIsKilled(t *testing.T) {
	backend := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestBackendProcess$")
	backend.Env = append(os.Environ(), "HEADGATE_TEST_BACKEND=1")
	out, err := backend.StdoutPipe()
	if err == nil {
		err = backend.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	next := func(begins string) string {
		for lines.Scan() {
			if rest, ok := strings.CutPrefix(lines.Text(), begins); ok {
				return rest
			}
		}
		t.Fatal("the backend has ended")
		return ""
	}
	to := &url.URL{Scheme: "http", Host: next("listens ")}
	l, on := limiting(func(o *adaptive.Options) { o.Max = 100 })
	p := newProxy(t, noLimits, memory.New(), nil, on, func(o *proxy.Options) { o.Upstream, o.Transport = to, proxy.NewTransport() })
	const requests = 15
	var all sync.WaitGroup
	for range requests {
		all.Go(func() {
			if w := sends(t, p, "GET", "/"); w.Code != http.StatusBadGateway {
				t.Errorf("%d, want 502", w.Code)
			}
		})
	}
	for range requests {
		next("request")
	}
	if s := l.State(); s.InFlight != requests {
		t.Errorf("%d in flight, want %d", s.InFlight, requests)
	}
	_ = backend.Process.Kill()
	_ = backend.Wait()
	all.Wait()
	if s := l.State(); s.InFlight != 0 {
		t.Errorf("%d in flight after the backend was killed", s.InFlight)
	}
	if w := sends(t, p, "GET", "/"); w.Code != http.StatusBadGateway || l.State().InFlight != 0 {
		t.Errorf("%d and %d in flight, want 502 and none", w.Code, l.State().InFlight)
	}
}
