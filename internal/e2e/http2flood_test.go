package e2e

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/testkit/certtest"
)

// speaker is an HTTP/2 client that sends arbitrary frames.
type speaker struct {
	*http2.Framer
	conn  net.Conn
	out   *bufio.Writer
	block bytes.Buffer
	hpack *hpack.Encoder
}

func newSpeaker(t *testing.T, address string, client *tls.Config) *speaker {
	t.Helper()
	var nc net.Conn
	var err error
	if client == nil {
		nc, err = new(net.Dialer).DialContext(t.Context(), "tcp", address)
	} else {
		client = client.Clone()
		client.NextProtos = []string{"h2"}
		nc, err = (&tls.Dialer{Config: client}).DialContext(t.Context(), "tcp", address)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(5 * time.Minute))
	s := &speaker{conn: nc, out: bufio.NewWriter(nc)}
	s.Framer, s.hpack = http2.NewFramer(s.out, bufio.NewReader(nc)), hpack.NewEncoder(&s.block)
	_, _ = io.WriteString(s.out, http2.ClientPreface)
	_ = s.WriteSettings()
	return s
}

// request starts a request on a stream. Its header block ends, or is to be continued.
func (s *speaker) request(stream uint32, ends bool) error {
	s.block.Reset()
	for _, f := range [][2]string{{":method", "POST"}, {":scheme", "https"}, {":path", "/flood"}, {":authority", "localhost"}, {"content-type", "application/grpc"}} {
		_ = s.hpack.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
	}
	return s.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: s.block.Bytes(), EndHeaders: ends})
}

// ended reports whether the connection is over. If not, the server has read everything
// and answered a final ping.
func (s *speaker) ended() (bool, error) {
	last := [8]byte{'l', 'a', 's', 't'}
	_ = s.WritePing(false, last)
	_ = s.out.Flush()
	for {
		frame, err := s.ReadFrame()
		var late net.Error
		switch {
		case errors.As(err, &late) && late.Timeout():
			return false, err
		case err != nil:
			return true, nil
		}
		if ping, ok := frame.(*http2.PingFrame); ok && ping.IsAck() && ping.Data == last {
			return false, nil
		}
		if _, ok := frame.(*http2.GoAwayFrame); ok {
			return true, nil
		}
	}
}

// Frames that cost a client little cost the server little too: each flood ends its
// connection, or is read to its end while others are served, and all of them use
// limited memory. None of its requests over the limit reaches the upstream.
func TestHTTP2Floods(t *testing.T) {
	const frames, most = 1_000, 32 << 20
	kilobyte := make([]byte, 1<<10)
	var field bytes.Buffer
	_ = hpack.NewEncoder(&field).WriteField(hpack.HeaderField{Name: "x", Value: strings.Repeat("x", 1<<10), Sensitive: true})
	floods := []struct {
		name string
		ends bool // the connection must end; others may be read to their end
		say  func(s *speaker, i int) error
	}{
		{"resets", false, func(s *speaker, i int) error {
			return errors.Join(s.request(uint32(2*i+1), true), s.WriteRSTStream(uint32(2*i+1), http2.ErrCodeCancel))
		}},
		{"resets of what was not begun", false, func(s *speaker, i int) error { return s.WriteRSTStream(uint32(2*i+1), http2.ErrCodeCancel) }},
		{"streams", false, func(s *speaker, i int) error { return s.request(uint32(2*i+1), true) }},
		{"pings", false, func(s *speaker, _ int) error { return s.WritePing(false, [8]byte{}) }},
		{"settings", false, func(s *speaker, i int) error {
			return s.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(i)}, http2.Setting{ID: http2.SettingHeaderTableSize, Val: 1 << 30})
		}},
		{"windows", false, func(s *speaker, _ int) error { return s.WriteWindowUpdate(0, 1) }},
		{"windows beyond counting", false, func(s *speaker, _ int) error { return s.WriteWindowUpdate(0, 1<<31-1) }},
		{"continuations", true, func(s *speaker, i int) error {
			if i == 0 {
				return s.request(1, false)
			}
			return s.WriteContinuation(1, i == frames-1, field.Bytes())
		}},
		{"empty continuations", false, func(s *speaker, i int) error {
			if i == 0 {
				return s.request(1, false)
			}
			return s.WriteContinuation(1, i == frames-1, nil)
		}},
		{"empty data", false, func(s *speaker, i int) error {
			if i == 0 {
				return s.request(1, true)
			}
			return s.WriteData(1, false, nil)
		}},
		{"priorities", false, func(s *speaker, i int) error {
			return s.WritePriority(uint32(2*i+1), http2.PriorityParam{StreamDep: uint32(2*i + 3)})
		}},
		{"unknown frames", false, func(s *speaker, _ int) error { return s.WriteRawFrame(0xfe, 0, 0, kilobyte) }},
	}
	const limits = "domain: api\nlimits:\n  - {name: flood, match: {path: /flood}, rate: 5/hour}\n"
	var reached atomic.Int64
	upstream := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/flood" {
			reached.Add(1)
		}
	})
	a := certtest.New(t)
	cert, key := a.Issue("server", 2)
	sealed := run(t, limits, upstream, everywhere(config.TLS{Cert: cert, Key: key}))
	plain := run(t, limits, upstream)
	doors := []struct {
		name, door string
		f          *fixture
		client     *tls.Config
	}{
		{"proxy", doorProxy, sealed, a.Client("")},
		{"proxy without TLS", doorProxy, plain, nil},
		{"API", doorAPI, sealed, a.Client("")},
		{"gRPC", doorGRPC, sealed, a.Client("")},
	}
	before := inUse()
	var flooding sync.WaitGroup
	var open atomic.Int64
	for _, at := range doors {
		for _, flood := range floods {
			s := newSpeaker(t, at.f.Addr(at.door), at.client)
			open.Add(1)
			flooding.Go(func() {
				defer open.Add(-1)
				for i := 0; i < frames && flood.say(s, i) == nil; i++ {
				}
				if ended, err := s.ended(); err != nil || flood.ends && !ended {
					t.Errorf("%s, %s: ended %t, %v", at.name, flood.name, ended, err)
				}
			})
		}
	}
	for open.Load() > 0 {
		for _, at := range doors {
			if err := honest(at.door, at.f.Addr(at.door), at.client); err != nil {
				t.Errorf("%s: another is not served: %v", at.name, err)
			}
		}
	}
	flooding.Wait()
	if taken := inUse() - before; taken > most { // both ends of each connection are in this process
		t.Errorf("%d floods take %d bytes", len(doors)*len(floods), taken)
	}
	if n := reached.Load(); n > 2*5 {
		t.Errorf("%d requests of the floods reached the upstream, 2 × 5 may", n)
	}
}

// inUse returns the memory that garbage collection does not free.
func inUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}
