package proxy_test

import (
	"context"
	"crypto/tls"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/door/proxy"
	"github.com/headgate/headgate/internal/queue"
	"github.com/headgate/headgate/store/memory"
)

// TestWhatEndsConnectionsIsSentTwice: a request that makes the upstream close connections
// without an answer is sent a second time, since an idle connection may end at any time, and not
// over each of those that are idle.
func TestWhatEndsConnectionsIsSentTwice(t *testing.T) {
	t.Parallel()
	const idle = 20
	upgrade := http.Header{"Connection": {"Upgrade"}, "Upgrade": {"other"}}
	for _, row := range []struct {
		name   string
		tls    bool
		header http.Header
		method string
		want   int64
	}{
		{"GET", false, nil, http.MethodGet, 2},
		{"GET with TLS", true, nil, http.MethodGet, 2},
		{"upgrade", false, upgrade, http.MethodGet, 2},
		{"upgrade with TLS", true, upgrade, http.MethodGet, 1},
		{"POST", false, nil, http.MethodPost, 1},
		{"POST with a key", false, http.Header{"Idempotency-Key": {"k"}}, http.MethodPost, 2},
		{"queued", false, nil, "", 2},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			var arrived, ended atomic.Int64
			all := make(chan struct{})
			up := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/end" {
					ended.Add(1)
					panic(http.ErrAbortHandler)
				}
				if arrived.Add(1) == idle {
					close(all)
				}
				<-all // each has a connection of its own
				w.WriteHeader(http.StatusNoContent)
			}))
			if row.tls {
				up.StartTLS()
			} else {
				up.Start()
			}
			defer up.Close()
			to, _ := url.Parse(up.URL)
			var config *tls.Config
			if row.tls {
				own, _ := up.Client().Transport.(*http.Transport)
				config = own.TLSClientConfig
			}
			ways, end := proxy.NewWays(config)
			defer end()
			p := newProxy(t, "domain: api\nlimits:\n  - {name: count, rate: 1000/day}\n", memory.New(), nil, func(o *proxy.Options) { o.Upstream, o.Transport = to, ways })
			send := func(method, path string) int {
				w := httptest.NewRecorder()
				r := request(t.Context(), method, "http://api.example"+path)
				r.RemoteAddr = "192.0.2.1:1234"
				maps.Copy(r.Header, row.header.Clone())
				p.ServeHTTP(w, r)
				return w.Code
			}
			var others sync.WaitGroup
			for range idle {
				others.Go(func() { send(http.MethodGet, "/other") })
			}
			others.Wait()
			if row.method == "" {
				_, err := p.Deliver(t.Context(), &queue.Entry{ID: "1", Method: http.MethodDelete, URI: "/end", Host: "api.example"}, 0)
				if err == nil {
					t.Error("delivered")
				}
			} else if status := send(row.method, "/end"); status != http.StatusBadGateway {
				t.Errorf("status %d", status)
			}
			if n := ended.Load(); n != row.want {
				t.Errorf("the upstream got it %d times, want %d", n, row.want)
			}
		})
	}
}

// TestIdleConnectionsThatHaveEnded: whatever ends all idle connections, such as a balancer that
// has forgotten them, costs no request its answer.
func TestIdleConnectionsThatHaveEnded(t *testing.T) {
	t.Parallel()
	const idle = 20
	var arrived, opened atomic.Int64
	var forgets atomic.Bool
	all := make(chan struct{})
	up := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n, _ := r.Context().Value(nthKey{}).(int64); forgets.Load() && n <= idle {
			panic(http.ErrAbortHandler)
		}
		if n := arrived.Add(1); n == idle {
			close(all)
		}
		<-all
		w.WriteHeader(http.StatusNoContent)
	}))
	up.Config.ConnContext = func(ctx context.Context, _ net.Conn) context.Context {
		return context.WithValue(ctx, nthKey{}, opened.Add(1))
	}
	up.Start()
	defer up.Close()
	to, _ := url.Parse(up.URL)
	ways, end := proxy.NewWays(nil)
	defer end()
	p := newProxy(t, "domain: api\nlimits: []\n", memory.New(), nil, func(o *proxy.Options) { o.Upstream, o.Transport = to, ways })
	get := func() int {
		w := httptest.NewRecorder()
		p.ServeHTTP(w, request(t.Context(), http.MethodGet, "http://api.example/"))
		return w.Code
	}
	var first sync.WaitGroup
	for range idle {
		first.Go(func() { get() })
	}
	first.Wait()
	forgets.Store(true)
	for i := range 2 * idle {
		if status := get(); status != http.StatusNoContent {
			t.Errorf("request %d: %d", i, status)
		}
	}
}

// TestASilentConnectionOfHTTP2IsLeft: an upstream whose connection takes requests and never
// says anything keeps them for ten seconds. The next one gets a new connection.
func TestASilentConnectionOfHTTP2IsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport, dialed := proxy.NewTransport(), 0
		accepted := make(chan net.Conn, 1)
		transport.DialContext = func(context.Context, string, string) (net.Conn, error) {
			mine, theirs := net.Pipe()
			if dialed++; dialed == 1 {
				go func() { _, _ = io.Copy(io.Discard, theirs) }()
			} else {
				accepted <- theirs
			}
			return mine, nil
		}
		proxy.Reach{Cleartext: true}.Set(transport)
		server := &http.Server{Protocols: new(http.Protocols), Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}
		server.Protocols.SetUnencryptedHTTP2(true)
		served := make(chan struct{})
		go func() {
			_ = server.Serve(piped(accepted))
			close(served)
		}()
		began := time.Now()
		for _, want := range []bool{false, true} {
			r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://upstream.example/", http.NoBody)
			res, err := transport.RoundTrip(r)
			if (err == nil) != want {
				t.Errorf("after %v: %v", time.Since(began), err)
			}
			if err == nil {
				_ = res.Body.Close()
			}
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("it took %v to leave the silent connection", took)
		}
		transport.CloseIdleConnections()
		_ = server.Close()
		<-served
	})
}

// nthKey is the key of the number of a connection.
type nthKey struct{}

// piped is a listener in memory.
type piped chan net.Conn

func (p piped) Accept() (net.Conn, error) {
	if nc, ok := <-p; ok {
		return nc, nil
	}
	return nil, net.ErrClosed
}

func (p piped) Close() error {
	close(p)
	return nil
}

func (piped) Addr() net.Addr { return &net.UnixAddr{} }
