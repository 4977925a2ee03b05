package sse_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/headgate/headgate/internal/observe/sse"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve returns a server for a Hub.
func serve(t *testing.T, h *sse.Hub[string]) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hello := func() []byte { return sse.Message("hello", []byte(`"`+r.URL.RawQuery+`"`)) }
		if !h.Serve(w, r, r.URL.RawQuery, hello) {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(func() {
		h.Close()
		s.Close()
	})
	return s
}

// stream is the connection of a reader.
type stream struct {
	*http.Response
	lines *bufio.Scanner
}

func open(t *testing.T, s *httptest.Server, query string) *stream {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"?"+query, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := s.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = answer.Body.Close() })
	return &stream{answer, bufio.NewScanner(answer.Body)}
}

// next returns the next event as one line.
func (s *stream) next() string {
	var lines []string
	for s.lines.Scan() {
		if s.lines.Text() == "" {
			if lines[0] == "event: alive" { // where the machine is slow
				lines = nil
				continue
			}
			return strings.Join(lines, " ")
		}
		lines = append(lines, s.lines.Text())
	}
	return "end"
}

func TestEveryReaderHearsEverything(t *testing.T) {
	h := sse.NewHub[string](2, 10)
	s := serve(t, h)
	a, b := open(t, s, "a"), open(t, s, "b")
	if got := a.next() + b.next(); got != `event: hello data: "a"event: hello data: "b"` {
		t.Error(got)
	}
	if got := a.Header.Get("Content-Type"); got != "text/event-stream" {
		t.Error(got)
	}
	if n := len(h.Readers()); n != 2 {
		t.Errorf("%d readers", n)
	}
	h.Send(sse.Message("news", []byte("1")))
	for _, r := range []*stream{a, b} {
		if got := r.next(); got != "event: news data: 1" {
			t.Error(got)
		}
	}
	third := open(t, s, "c")
	if third.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("a third reader got %d", third.StatusCode)
	}
	h.Close()
	if got := a.next(); got != "end" {
		t.Error(got)
	}
}

// slowWriter is a client that only reads when the test lets it.
type slowWriter struct {
	*httptest.ResponseRecorder
	writes chan string
}

func (w *slowWriter) Write(p []byte) (int, error) {
	w.writes <- string(p)
	return len(p), nil
}

func TestASlowReaderIsToldWhatItLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := sse.NewHub[string](1, 2)
		w := &slowWriter{httptest.NewRecorder(), make(chan string)}
		ctx, cancel := context.WithCancel(t.Context())
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", http.NoBody)
		done := make(chan struct{})
		go func() {
			defer close(done)
			h.Serve(w, r, "", nil)
		}()
		if first := <-w.writes; !strings.HasPrefix(first, ":") {
			t.Errorf("first came %q", first)
		}
		h.Send([]byte("0"))
		synctest.Wait() // it is being written, and nothing else is taken meanwhile
		for range 9 {
			h.Send([]byte("x"))
		}
		h.Readers()[0].Lose()
		// Two of nine are in the buffer.
		for _, want := range []string{"0", "event: lost\ndata: {\"lost\":8}\n\nx", "x", "event: alive\ndata: {}\n\n"} {
			if got := <-w.writes; got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		}
		cancel()
		<-done
		if n := len(h.Readers()); n != 0 {
			t.Errorf("%d readers", n)
		}
	})
}

func TestNobodyJoinsAClosedHub(t *testing.T) {
	h := sse.NewHub[string](1, 1)
	s := serve(t, h)
	h.Close()
	h.Close()
	a := open(t, s, "a")
	body, err := io.ReadAll(a.Body)
	if err != nil || !strings.HasPrefix(string(body), "event: hello") {
		t.Errorf("%q, %v", body, err)
	}
}

// A reader sees every few seconds that the server is there, though nothing happens: a page
// in a browser sees events only, no comments.
func TestAlive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, w := sse.NewHub[string](1, 1), httptest.NewRecorder()
		ctx, cancel := context.WithTimeout(t.Context(), 61*time.Second)
		defer cancel()
		h.Serve(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", http.NoBody), "", nil)
		if n := strings.Count(w.Body.String(), "event: alive\ndata: {}\n\n"); n != 15 {
			t.Errorf("%d events in 61 seconds", n)
		}
	})
}
