package door

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/decide/admission"
	"github.com/headgate/headgate/internal/testkit/certtest"
	"github.com/headgate/headgate/internal/transport/membound"
)

// bounded is a door over TLS whose HTTP/2 connections have little memory. It answers
// after reading the body, with 100 KB or, at /small, with little.
type bounded struct {
	address string
	room    *membound.Bound
	client  *tls.Config
}

func newBounded(t *testing.T, most int64) *bounded {
	t.Helper()
	authority := certtest.New(t)
	cert, key := authority.Issue("server", 1)
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &bounded{address: l.Addr().String(), room: membound.New(membound.Options{Most: most}), client: authority.Client("")}
	b.client.NextProtos = []string{"h2"}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		size := 100_000
		if r.URL.Path == "/small" {
			size = 10
		}
		if _, err := io.Copy(io.Discard, r.Body); err == nil {
			_, _ = w.Write(make([]byte, size))
		}
	})
	p := &Process{
		Name: "api", Settings: new(config.Door), Config: &config.Config{}, Asker: admission.Asker{Logger: slog.New(slog.DiscardHandler)}, Timeouts: Timeouts{Read: time.Minute, Write: time.Minute},
		TLS: &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2", "http/1.1"}, MinVersion: tls.VersionTLS12},
	}
	server, err := NewHTTP(p, HTTPOptions{Handler: handler, Room: b.room})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	t.Cleanup(func() {
		_ = server.server.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return b
}

// flood opens that many requests, whose bodies end only if whole is set, and reads no
// answers. It returns when they are sent, or the connection closes.
func (b *bounded) flood(t *testing.T, streams int, path string, body []byte, whole bool) {
	t.Helper()
	nc, err := (&tls.Dialer{Config: b.client}).DialContext(t.Context(), "tcp", b.address)
	if err != nil {
		t.Error(err)
		return
	}
	t.Cleanup(func() { _ = nc.Close() })
	_, _ = io.WriteString(nc, http2.ClientPreface)
	frames := http2.NewFramer(nc, nc)
	_ = frames.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	go func() { _, _ = io.Copy(io.Discard, nc) }()
	var fields bytes.Buffer
	encode := hpack.NewEncoder(&fields)
	for i := range streams {
		fields.Reset()
		for _, f := range [][2]string{{":method", "POST"}, {":scheme", "https"}, {":path", path}, {":authority", "localhost"}} {
			_ = encode.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
		}
		id := uint32(2*i + 1)
		_ = frames.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: fields.Bytes(), EndHeaders: true})
		if frames.WriteData(id, whole, body) != nil {
			return
		}
	}
}

// ask sends a well-behaved request and reports whether it was answered.
func (b *bounded) ask(ctx context.Context) bool {
	transport := &http.Transport{TLSClientConfig: b.client.Clone(), ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+b.address+"/", bytes.NewReader(make([]byte, 1000)))
	if err != nil {
		return false
	}
	res, err := (&http.Client{Transport: transport}).Do(r)
	if err != nil {
		return false
	}
	n, err := io.Copy(io.Discard, res.Body)
	_ = res.Body.Close()
	return err == nil && n == 100_000 && res.ProtoMajor == 2 && res.TLS != nil
}

// The memory of the many requests of an HTTP/2 connection is bounded, whether their
// bodies do not end or their answers, large or small, are not read. Other requests
// are still answered.
func TestStreamsAreBoundedTogether(t *testing.T) {
	t.Parallel()
	const most = 4 << 20
	for _, row := range []struct {
		name, path string
		body       int
		whole      bool
	}{
		{"bodies that do not end", "/", 200, false},
		{"answers that are not read", "/", 10, true},
		{"small answers that are not read", "/small", 10, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			b := newBounded(t, most)
			for range 5 {
				b.flood(t, 200, row.path, make([]byte, row.body), row.whole)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			for b.room.Evicted() == 0 {
				if !b.ask(ctx) {
					t.Fatal("another is not answered")
				}
			}
			if !b.ask(t.Context()) || b.room.Held() > most {
				t.Errorf("%d bytes are held", b.room.Held())
			}
		})
	}
}

// Requests no longer count once their answer has been read.
func TestAnsweredStreamsAreNotHeld(t *testing.T) {
	t.Parallel()
	b := newBounded(t, 4<<20)
	for range 100 {
		if !b.ask(t.Context()) {
			t.Fatal("not answered")
		}
	}
	for b.room.Held() != 0 { // until the server notices the end of the last one
		if !b.ask(t.Context()) {
			t.Fatal("not answered")
		}
	}
	if n := b.room.Evicted(); n != 0 {
		t.Errorf("%d were closed", n)
	}
}

// The counted memory of a request is about what it takes: goroutine, header, body and
// answer. (Both ends of its connection are in this process.)
func TestStreamsTakeWhatIsCounted(t *testing.T) {
	const conns, streams = 5, 200
	for _, row := range []struct {
		name, path string
		body       int
		whole      bool
	}{
		{"bodies that do not end", "/", 200, false},
		{"answers that are not read", "/", 10, true},
		{"small answers that are not read", "/small", 10, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := newBounded(t, 1<<30)
			before := inUse()
			for range conns {
				b.flood(t, streams, row.path, make([]byte, row.body), row.whole)
			}
			for b.room.Held() < conns*streams*streamCost {
				runtime.Gosched()
			}
			if taken, counted := inUse()-before, b.room.Held(); taken > 3*counted {
				t.Errorf("%d bytes are in use, %d counted", taken, counted)
			}
		})
	}
}

// inUse returns the memory in use after a garbage collection.
func inUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}
