package h2bound_test

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"github.com/headgate/headgate/internal/transport/h2bound"
	"github.com/headgate/headgate/internal/transport/membound"
)

// script is a connection with given input.
type script struct {
	net.Conn // nil
	in       io.Reader
	closed   atomic.Bool
}

func (s *script) Read(p []byte) (int, error) { return s.in.Read(p) }

func (*script) Write(p []byte) (int, error) { return len(p), nil }

func (s *script) Close() error {
	s.closed.Store(true)
	return nil
}

func (*script) RemoteAddr() net.Addr { return &net.TCPAddr{} }

func newBound(t testing.TB, most int64) *h2bound.Bound {
	t.Helper()
	b := h2bound.New(h2bound.Options{
		Room: membound.New(membound.Options{Most: most}), ReadTimeout: time.Hour, WriteTimeout: time.Hour, Logger: slog.New(slog.DiscardHandler),
	})
	t.Cleanup(b.Stop)
	return b
}

// framed returns what write writes.
func framed(write func(*http2.Framer)) []byte {
	var b bytes.Buffer
	write(http2.NewFramer(&b, nil))
	return b.Bytes()
}

// The count does not depend on how reads and writes are split, and returns to zero.
func TestFramesAreFoundHoweverTheyAreCut(t *testing.T) {
	requests := framed(func(f *http2.Framer) {
		_ = f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
		for id := uint32(1); id < 41; id += 2 {
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: make([]byte, 300)})
			_ = f.WriteContinuation(id, true, make([]byte, 200))
			_ = f.WriteData(id, false, make([]byte, 5000))
			_ = f.WriteDataPadded(id, true, make([]byte, 10), make([]byte, 200))
			_ = f.WritePing(false, [8]byte{})
		}
		_ = f.WriteRSTStream(3, http2.ErrCodeCancel)
	})
	answers := framed(func(f *http2.Framer) {
		_ = f.WriteSettingsAck()
		_ = f.WriteRSTStream(1, http2.ErrCodeCancel)
		for id := uint32(5); id < 41; id += 2 {
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: make([]byte, 30), EndHeaders: true})
			_ = f.WriteData(id, id%4 == 1, make([]byte, 300))
			if id%4 != 1 {
				_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: make([]byte, 30), EndHeaders: true, EndStream: true})
			}
		}
	})
	var want int64
	for _, cut := range []int{1 << 20, 1, 2, 5, 9, 10, 1000} {
		b := newBound(t, 1<<30)
		nc := &script{in: io.MultiReader(strings.NewReader(http2.ClientPreface), bytes.NewReader(requests))}
		c := b.Wrap(nc, nc)
		for p := make([]byte, cut); ; {
			if _, err := c.Read(p); err != nil {
				break
			}
		}
		held := b.Stats().Held
		if want == 0 {
			want = held
		}
		if held != want || held < 19*(5000+4096) {
			t.Errorf("cut at %d: %d bytes are held, want %d", cut, held, want)
		}
		for rest := answers; len(rest) > 0; {
			n := min(cut, len(rest))
			if _, err := c.Write(rest[:n]); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		if held := b.Stats().Held; held != 0 {
			t.Errorf("cut at %d: %d bytes are held when all is answered", cut, held)
		}
	}
}

// opens returns the frames of calls that never end.
func opens(streams, size int) io.Reader {
	return io.MultiReader(strings.NewReader(http2.ClientPreface), bytes.NewReader(framed(func(f *http2.Framer) {
		for i := range streams {
			id := uint32(2*i + 1)
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, EndHeaders: true})
			_ = f.WriteData(id, false, make([]byte, size))
		}
	})))
}

// The connection that has held most for longest is closed first, not a busy one that
// holds more.
func TestTheOneThatHasKeptMostForLongIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBound(t, 1<<20)
		open := func(streams, size int) *script {
			nc := &script{in: opens(streams, size)}
			_, _ = io.Copy(io.Discard, b.Wrap(nc, nc))
			return nc
		}
		slow, other := open(30, 2000), open(1, 10)
		time.Sleep(5 * time.Second)
		busy := open(100, 4000)
		if slow.closed.Load() || busy.closed.Load() || other.closed.Load() {
			t.Fatal("closed too soon")
		}
		open(10, 10_000)
		if !slow.closed.Load() || busy.closed.Load() || other.closed.Load() {
			t.Errorf("closed: slow %t, busy %t, other %t; want the slow one alone", slow.closed.Load(), busy.closed.Load(), other.closed.Load())
		}
		if s := b.Stats(); s.Evicted != 1 || s.Slow != 0 || s.Held > 1<<20 {
			t.Errorf("%+v", s)
		}
	})
}

// Slow connections are closed, unless they are exempt.
func TestTimeouts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := h2bound.New(h2bound.Options{
			Room: membound.New(membound.Options{Most: 1 << 20}), ReadTimeout: 10 * time.Second, WriteTimeout: 20 * time.Second, Logger: slog.New(slog.DiscardHandler),
		})
		t.Cleanup(b.Stop)
		partial := &script{in: opens(1, 10)}
		_, _ = io.Copy(io.Discard, b.Wrap(partial, partial))
		whole := &script{in: io.MultiReader(strings.NewReader(http2.ClientPreface), bytes.NewReader(framed(func(f *http2.Framer) {
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndHeaders: true})
			_ = f.WriteData(1, true, nil)
		})))}
		_, _ = io.Copy(io.Discard, b.Wrap(whole, whole))
		lasts := &script{in: opens(2, 10)}
		c := b.Wrap(lasts, lasts)
		first, _ := c.Lasts()
		_, _ = c.Lasts()
		_, _ = io.Copy(io.Discard, c)
		for _, step := range []struct {
			after                  time.Duration
			partial, whole, lasted bool
		}{
			{9 * time.Second, false, false, false},
			{4 * time.Second, true, false, false},
			{6 * time.Second, true, false, false},
			{5 * time.Second, true, true, false},
			{time.Hour, true, true, false},
		} {
			time.Sleep(step.after)
			if partial.closed.Load() != step.partial || whole.closed.Load() != step.whole || lasts.closed.Load() != step.lasted {
				t.Errorf("after %s more: closed %t, %t, %t; want %+v", step.after, partial.closed.Load(), whole.closed.Load(), lasts.closed.Load(), step)
			}
		}
		first()
		time.Sleep(3 * time.Second)
		if !lasts.closed.Load() {
			t.Error("one stream may last, and two do")
		}
		if s := b.Stats(); s.Slow != 3 || s.Held != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// Counting allocates nothing.
func BenchmarkCall(b *testing.B) {
	bound := newBound(b, 1<<30)
	request := framed(func(f *http2.Framer) {
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: make([]byte, 60), EndHeaders: true})
		_ = f.WriteData(1, true, make([]byte, 100))
	})
	answer := framed(func(f *http2.Framer) {
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: make([]byte, 30), EndHeaders: true})
		_ = f.WriteData(1, false, make([]byte, 100))
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: make([]byte, 10), EndHeaders: true, EndStream: true})
	})
	in := bytes.NewReader([]byte(http2.ClientPreface))
	nc := &script{in: in}
	c := bound.Wrap(nc, nc)
	p := make([]byte, 1024)
	_, _ = c.Read(p)
	b.ReportAllocs()
	id := uint32(1)
	for b.Loop() {
		for _, frames := range [][]byte{request, answer} {
			for at := 0; at < len(frames); {
				length := int(frames[at])<<16 | int(frames[at+1])<<8 | int(frames[at+2])
				frames[at+5], frames[at+6], frames[at+7], frames[at+8] = byte(id>>24), byte(id>>16), byte(id>>8), byte(id)
				at += 9 + length
			}
		}
		in.Reset(request)
		_, _ = c.Read(p)
		c.Owes(1280)
		_, _ = c.Write(answer)
		c.Owes(-1280)
		id += 2
	}
	if held := bound.Stats().Held; held != 0 {
		b.Errorf("%d bytes are held", held)
	}
}
