package proxy_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/decide/admission"
	"github.com/headgate/headgate/internal/door"
	"github.com/headgate/headgate/internal/door/proxy"
	"github.com/headgate/headgate/internal/transport/netbound"
	"github.com/headgate/headgate/internal/transport/unread"
	"github.com/headgate/headgate/store/memory"
)

const (
	wholeAnswer = 640_000
	oneAtATime  = "domain: api\nlimits:\n  - {name: one, concurrency: 1, lease: 2h}\n"
)

// sized answers with as many bytes as the path says, or with events an hour apart.
func sized(r *http.Request) (*http.Response, error) {
	res, err := ok(r)
	switch path := strings.TrimPrefix(r.URL.Path, "/"); path {
	case "events":
		res.Header.Set("Content-Type", "text/event-stream")
		res.ContentLength = -1
		out, in := io.Pipe()
		res.Body = out
		go func() {
			for range 3 {
				_, _ = io.WriteString(in, "data: x\n\n")
				time.Sleep(time.Hour)
			}
			_ = in.Close()
		}()
	default:
		res.ContentLength, _ = strconv.ParseInt(path, 10, 64)
		res.Body = io.NopCloser(io.LimitReader(zeros{}, res.ContentLength))
	}
	return res, err
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// serveWatched is the door of a proxy with limits on unread answers, in memory.
func serveWatched(t *testing.T, rulesText string, most int64) *pipes {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	watch := unread.New(unread.Options{Most: most, Logger: log})
	watch.Start()
	p := newProxy(t, rulesText, memory.New(memory.WithClock(time.Now)), sized, func(o *proxy.Options) { o.Abandoned.Time = -1 })
	terms := unread.Terms{Cost: 96 << 10}
	h, err := door.NewHTTP(&door.Process{
		Name: "proxy", Settings: new(config.Door), Config: new(config.Config), Asker: admission.Asker{Logger: log}, Unread: watch, Terms: terms,
	}, door.HTTPOptions{Handler: p, Endless: true, Cleartext: true})
	if err != nil {
		t.Fatal(err)
	}
	l := &pipes{conns: make(chan net.Conn), ended: make(chan struct{})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = h.Serve(netbound.New(l, netbound.Options{Max: 100, Logger: log, Unread: watch, Terms: terms}))
	}()
	t.Cleanup(func() {
		watch.Stop()
		_ = h.Shutdown(t.Context())
		<-done
	})
	return l
}

// streams is a client over HTTP/2 that reads frames, but grants no room for answers.
type streams struct {
	*http2.Framer
	conn net.Conn
	next uint32
	out  chan func() error // sends something; net.Pipe has no buffer
}

func (l *pipes) streams(t *testing.T) *streams {
	t.Helper()
	nc := l.dial()
	t.Cleanup(func() { _ = nc.Close() })
	s := &streams{Framer: http2.NewFramer(nc, nc), conn: nc, next: 1, out: make(chan func() error, 1000)}
	t.Cleanup(func() { close(s.out) })
	go func() {
		for send := range s.out {
			_ = send()
		}
	}()
	s.out <- func() error { _, err := io.WriteString(nc, http2.ClientPreface); return err }
	s.out <- func() error { return s.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}) }
	return s
}

func (s *streams) get(path string) (id uint32) {
	var fields bytes.Buffer
	encode := hpack.NewEncoder(&fields)
	for _, f := range [][2]string{{":method", "GET"}, {":scheme", "http"}, {":path", path}, {":authority", "x"}} {
		_ = encode.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
	}
	id, s.next = s.next, s.next+2
	s.out <- func() error {
		return s.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: fields.Bytes(), EndHeaders: true, EndStream: true})
	}
	return id
}

// grant grants n bytes of room to a stream.
func (s *streams) grant(id, n uint32) {
	s.out <- func() error { return errors.Join(s.WriteWindowUpdate(id, n), s.WriteWindowUpdate(0, n)) }
}

// until reads frames until stream id is reset or ends, or the connection does.
func (s *streams) until(id uint32) (got int, reset bool, err error) {
	for {
		f, err := s.ReadFrame()
		if err != nil {
			return got, false, err
		}
		switch f := f.(type) {
		case *http2.DataFrame:
			if got += len(f.Data()); f.StreamID == id && f.StreamEnded() {
				return got, false, nil
			}
		case *http2.RSTStreamFrame:
			if f.StreamID == id {
				return got, true, nil
			}
		case *http2.PingFrame:
			data := f.Data
			s.out <- func() error { return s.WritePing(true, data) }
		}
	}
}

// free reports whether the only slot is free.
func free(l *pipes) bool {
	nc := l.dial()
	defer func() { _ = nc.Close() }()
	go func() { _, _ = io.WriteString(nc, "GET /0 HTTP/1.1\r\nHost: x\r\n\r\n") }()
	return status(bufio.NewReader(nc)) == http.StatusOK
}

// A client that does not read its answer is disconnected after a minute, and its slot is
// free: over HTTP/1, as a stream of HTTP/2, as a connection of HTTP/2, and if only the end
// of the answer is left, which net/http sends after the handler.
func TestWhoeverDoesNotReadIsEnded(t *testing.T) {
	for name, stall := range map[string]func(*testing.T, *pipes) (ended string){
		"HTTP/1": func(t *testing.T, l *pipes) string {
			nc := l.dial()
			defer func() { _ = nc.Close() }()
			_, _ = io.WriteString(nc, "GET /640000 HTTP/1.1\r\nHost: x\r\n\r\n")
			time.Sleep(70 * time.Second)
			if n, _ := io.Copy(io.Discard, nc); n < wholeAnswer {
				return "closed"
			}
			return ""
		},
		"a stream": func(t *testing.T, l *pipes) string {
			s := l.streams(t)
			first := s.get("/640000")
			begin := time.Now()
			if _, reset, err := s.until(first); !reset || time.Since(begin) < time.Minute || time.Since(begin) > 62*time.Second {
				t.Errorf("the stream ends after %s: reset %t, %v", time.Since(begin), reset, err)
			}
			synctest.Wait()       // for its slot
			second := s.get("/0") // has no data
			if _, reset, err := s.until(second); reset || err != nil {
				t.Errorf("the next stream ends with reset %t, %v", reset, err)
			}
			return "reset"
		},
		"a connection": func(t *testing.T, l *pipes) string {
			s := l.streams(t)
			s.get("/640000")
			time.Sleep(70 * time.Second)
			if _, reset, err := s.until(1); !reset && errors.Is(err, io.EOF) {
				return "closed"
			}
			return ""
		},
		"the end of an answer": func(t *testing.T, l *pipes) string {
			s := l.streams(t)
			begin := time.Now()
			if got, _, err := s.until(s.get("/10?a b")); got != 0 || !errors.Is(err, io.EOF) || time.Since(begin) < time.Minute || time.Since(begin) > 62*time.Second {
				t.Errorf("%d bytes, %v after %s", got, err, time.Since(begin))
			}
			return "closed"
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := serveWatched(t, oneAtATime, 64<<20)
				if how := stall(t, l); how == "" {
					t.Error("it was not ended")
				}
				synctest.Wait()
				if !free(l) {
					t.Error("its slot is not free")
				}
			})
		})
	}
}

// A client that reads a little less than once a minute gets all of its answer, and one to
// which the upstream sends nothing keeps its connection.
func TestWhoeverReadsSlowlyIsNotEnded(t *testing.T) {
	const pause, events = 55 * time.Second, 3 * len("data: x\n\n")
	for name, read := range map[string]func(*testing.T, *pipes) (got, want int){
		"HTTP/1": func(t *testing.T, l *pipes) (int, int) {
			nc := l.dial()
			defer func() { _ = nc.Close() }()
			_, _ = io.WriteString(nc, "GET /640000 HTTP/1.0\r\nHost: x\r\n\r\n")
			got := 0
			for buf := make([]byte, 64<<10); ; time.Sleep(pause) {
				n, err := io.ReadFull(nc, buf)
				if got += n; err != nil {
					return min(got, wholeAnswer), wholeAnswer
				}
			}
		},
		"HTTP/2": func(t *testing.T, l *pipes) (int, int) {
			s := l.streams(t)
			id := s.get("/640000")
			for i := range uint32(wholeAnswer/(16<<10) + 1) {
				time.AfterFunc(time.Duration(i+1)*pause, func() { s.grant(id, 16<<10) })
			}
			got, _, err := s.until(id)
			if err != nil {
				t.Error(err)
			}
			return got, wholeAnswer
		},
		"silent events, HTTP/1": func(t *testing.T, l *pipes) (int, int) {
			nc := l.dial()
			defer func() { _ = nc.Close() }()
			_, _ = io.WriteString(nc, "GET /events HTTP/1.0\r\nHost: x\r\n\r\n")
			all, err := io.ReadAll(nc)
			if err != nil {
				t.Error(err)
			}
			return strings.Count(string(all), "data: x\n\n") * len("data: x\n\n"), events
		},
		"silent events, HTTP/2": func(t *testing.T, l *pipes) (int, int) {
			s := l.streams(t)
			id := s.get("/events")
			s.grant(id, 1000)
			begin := time.Now()
			got, _, err := s.until(id)
			if err != nil {
				t.Error(err, time.Since(begin))
			}
			return got, events
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if got, want := read(t, serveWatched(t, oneAtATime, 64<<20)); got != want {
					t.Errorf("%d of %d bytes", got, want)
				}
			})
		})
	}
}

// Unread answers hold a limited amount of memory together. Beyond it, those that have
// waited longest are ended at once, and those of others that read are not.
func TestUnreadAnswersHaveABound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most, flood = 20, 50
		l := serveWatched(t, "domain: api\nlimits: []\n", most*96<<10)
		s := l.streams(t)
		var reset []uint32
		done := make(chan struct{})
		go func() {
			defer close(done)
			for {
				f, err := s.ReadFrame()
				if err != nil {
					return
				}
				if f, ok := f.(*http2.RSTStreamFrame); ok {
					reset = append(reset, f.StreamID)
				}
			}
		}()
		for range flood {
			s.get("/640000")
			time.Sleep(time.Second)
		}
		_ = s.conn.Close()
		<-done
		for i, id := range reset {
			if want := uint32(2*i + 1); id != want {
				t.Fatalf("stream %d was ended in place of %d, which waited longer", id, want)
			}
		}
		if len(reset) < flood-most-1 || len(reset) > flood-most+1 {
			t.Errorf("%d of %d streams were ended, want all but %d", len(reset), flood, most)
		}
	})
}
