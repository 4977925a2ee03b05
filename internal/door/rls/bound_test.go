package rls_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	headgatev1 "github.com/headgate/headgate/api/headgate/v1"
	"github.com/headgate/headgate/internal/door/grpcserver"
	"github.com/headgate/headgate/internal/transport/h2bound"
)

const (
	rateLimit   = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
	healthCheck = "/grpc.health.v1.Health/Check"
)

// rude is an HTTP/2 client that can break the rules.
type rude struct {
	t      *testing.T
	nc     net.Conn
	frames *http2.Framer
	fields bytes.Buffer
	encode *hpack.Encoder
	last   uint32 // stream ID
}

func (f *fixture) rude(t *testing.T, settings ...http2.Setting) *rude {
	t.Helper()
	var d net.Dialer
	nc, err := d.DialContext(context.Background(), "tcp", f.address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	r := &rude{t: t, nc: nc, frames: http2.NewFramer(nc, nc)}
	r.encode = hpack.NewEncoder(&r.fields)
	if _, err := io.WriteString(nc, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	if err := r.frames.WriteSettings(settings...); err != nil {
		t.Fatal(err)
	}
	return r
}

// open starts a call. It reports false if the connection is closed.
func (r *rude) open(path string) bool {
	r.fields.Reset()
	for _, f := range [][2]string{
		{":method", "POST"},
		{":scheme", "http"},
		{":path", path},
		{":authority", "localhost"},
		{"content-type", "application/grpc"},
		{"te", "trailers"},
	} {
		_ = r.encode.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
	}
	r.last = max(r.last+2, 1) | 1
	return r.frames.WriteHeaders(http2.HeadersFrameParam{StreamID: r.last, BlockFragment: r.fields.Bytes(), EndHeaders: true}) == nil
}

// begins sends the first bytes of a message of a given size. It reports false if the
// connection is closed.
func (r *rude) begins(size, sent int) bool {
	message := make([]byte, 5+sent)
	binary.BigEndian.PutUint32(message[1:], uint32(size))
	for len(message) > 0 {
		n := min(len(message), 16<<10)
		if r.frames.WriteData(r.last, false, message[:n]) != nil {
			return false
		}
		message = message[n:]
	}
	return true
}

// asks starts a call and sends a complete message.
func (r *rude) asks(path string, m proto.Message) bool {
	body, err := proto.Marshal(m)
	if err != nil {
		r.t.Fatal(err)
	}
	if !r.open(path) {
		return false
	}
	framed := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(body)))
	return r.frames.WriteData(r.last, true, append(framed, body...)) == nil
}

// closed waits until the server has closed the connection.
func (r *rude) closed() {
	r.t.Helper()
	_ = r.nc.SetReadDeadline(time.Now().Add(20 * time.Second))
	for {
		_, err := r.frames.ReadFrame()
		var timeout net.Error
		switch {
		case errors.As(err, &timeout) && timeout.Timeout():
			r.t.Fatal("the connection stays open")
		case err != nil:
			return
		}
	}
}

// Unfinished messages take a bounded amount of memory, whatever the method and however
// many connections send them, and other calls are answered.
func TestUnfinishedMessagesAreBounded(t *testing.T) {
	for _, path := range []string{rateLimit, healthCheck} {
		t.Run(path, func(t *testing.T) {
			const most = 1 << 20
			f := start1(t, setup{
				rules:  threeLimits,
				server: grpcserver.Options{MaxBuffers: most, MaxMessage: 256 << 10, ReadTimeout: time.Minute},
			})
			f.trace([]step{{request(descriptor("user", "ann")), ok, codesOf{ok}, left{2}}})
			var flood []*rude
			for range 10 {
				r := f.rude(t)
				flood = append(flood, r)
				for range 50 { // 60 KB each fits in the flow-control windows
					if !r.open(path) || !r.begins(200<<10, 1200) {
						break
					}
				}
			}
			for f.server.Bounded().Evicted == 0 {
				f.ask(request(descriptor("none", "x")))
			}
			// The limit may be exceeded until the next connection is closed.
			for held := f.server.Bounded().Held; held > most; held = f.server.Bounded().Held {
				if held > 2*most {
					t.Fatalf("%d bytes are kept, want at most %d", held, most)
				}
				f.ask(request(descriptor("none", "x")))
			}
			f.trace([]step{{request(descriptor("user", "ann")), ok, codesOf{ok}, left{1}}})
			for _, r := range flood {
				_ = r.nc.Close()
			}
			for f.server.Bounded().Held != 0 {
				f.ask(request(descriptor("none", "x")))
			}
		})
	}
}

// The connection of a message that arrives too slowly is closed.
func TestMessagesHaveToArriveInTime(t *testing.T) {
	for _, path := range []string{rateLimit, healthCheck} {
		f := start1(t, setup{rules: threeLimits, server: grpcserver.Options{ReadTimeout: 50 * time.Millisecond}})
		r := f.rude(t)
		if !r.open(path) || !r.begins(1000, 10) {
			t.Fatal("not sent")
		}
		r.closed()
		if s := f.server.Bounded(); s.Slow != 1 || s.Held != 0 {
			t.Errorf("%s: %+v", path, s)
		}
	}
}

// The connection of an answer that is not read is closed, also if the client reads
// single bytes.
func TestAnswersHaveToBeReadInTime(t *testing.T) {
	f := start1(t, setup{rules: threeLimits, server: grpcserver.Options{WriteTimeout: 50 * time.Millisecond}})
	r := f.rude(t, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	if !r.asks(rateLimit, request(descriptor("user", "ann"))) {
		t.Fatal("not sent")
	}
	r.closed()
	if s := f.server.Bounded(); s.Slow != 1 || s.Held != 0 {
		t.Errorf("%+v", s)
	}
}

// batches is a service with large answers.
type batches struct {
	headgatev1.UnimplementedLimiterServer
}

func (batches) CheckBatch(context.Context, *headgatev1.CheckBatchRequest) (*headgatev1.CheckBatchResponse, error) {
	return &headgatev1.CheckBatchResponse{Results: []*headgatev1.CheckResponse{{Lease: strings.Repeat("x", 100<<10)}}}, nil
}

// Unread answers take a bounded amount of memory.
func TestUnreadAnswersAreBounded(t *testing.T) {
	const most = 1 << 20
	f := start1(t, setup{rules: threeLimits, server: grpcserver.Options{
		MaxBuffers: most, MaxMessage: 256 << 10, WriteTimeout: time.Minute,
		Services: []grpcserver.Service{{Description: &headgatev1.Limiter_ServiceDesc, Server: batches{}}},
	}})
	r := f.rude(t, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	for range 100 {
		if !r.asks(headgatev1.Limiter_CheckBatch_FullMethodName, &headgatev1.CheckBatchRequest{}) {
			break
		}
	}
	r.closed()
	if s := f.server.Bounded(); s.Evicted != 1 || s.Held != 0 {
		t.Errorf("%+v", s)
	}
	// Answers that are read are no longer counted.
	limiter := headgatev1.NewLimiterClient(f.connection)
	for range 30 {
		if _, err := limiter.CheckBatch(context.Background(), &headgatev1.CheckBatchRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	if s := f.server.Bounded(); s.Evicted != 1 {
		t.Errorf("%+v", s)
	}
}

// Health watches may last, but their number per connection is limited.
func TestWatchesLastAndAreBounded(t *testing.T) {
	f := start1(t, setup{rules: threeLimits, server: grpcserver.Options{
		ReadTimeout: time.Second, WriteTimeout: time.Second, // a watch has to begin within it
	}})
	health := healthpb.NewHealthClient(f.connection)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var watches []grpc.ServerStreamingClient[healthpb.HealthCheckResponse]
	for range h2bound.MaxLasting {
		w, err := health.Watch(ctx, &healthpb.HealthCheckRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Recv(); err != nil {
			t.Fatal(err)
		}
		watches = append(watches, w)
	}
	w, err := health.Watch(ctx, &healthpb.HealthCheckRequest{})
	if err == nil {
		_, err = w.Recv()
	}
	if grpcstatus.Code(err) != codes.ResourceExhausted {
		t.Errorf("one more: %v", err)
	}
	slow := f.rude(t) // once it is closed, the timeout has passed for the others too
	if !slow.open(rateLimit) {
		t.Fatal("not sent")
	}
	slow.closed()
	slow = f.rude(t)
	if !slow.open(rateLimit) {
		t.Fatal("not sent")
	}
	slow.closed()
	f.server.SetServing(false)
	for i, w := range watches {
		if r, err := w.Recv(); err != nil || r.GetStatus() != healthpb.HealthCheckResponse_NOT_SERVING {
			t.Errorf("watch %d: %v, %v", i, r, err)
		}
	}
	cancel()
}

// The number of concurrent calls per connection is limited.
func TestStreamsAreBounded(t *testing.T) {
	f := start1(t, setup{rules: threeLimits})
	r := f.rude(t)
	for range grpcserver.DefaultMaxStreams + 1 {
		if !r.open(rateLimit) {
			t.Fatal("not sent")
		}
	}
	for {
		frame, err := r.frames.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if reset, ok := frame.(*http2.RSTStreamFrame); ok {
			if reset.StreamID != r.last || reset.ErrCode != http2.ErrCodeRefusedStream {
				t.Errorf("stream %d of %d: %s", reset.StreamID, r.last, reset.ErrCode)
			}
			return
		}
	}
}
