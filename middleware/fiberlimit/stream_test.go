package fiberlimit_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/compress"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/middleware/fiberlimit"
	"github.com/headgate/headgate/middleware/httplimit"
	"github.com/headgate/headgate/store/memory"
)

// serve starts app and returns its address.
func serve(t *testing.T, app *fiber.App) string {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- app.Listener(listener, fiber.ListenConfig{DisableStartupMessage: true}) }()
	t.Cleanup(func() {
		if err := errors.Join(app.Shutdown(), <-done); err != nil {
			t.Error(err)
		}
	})
	return "http://" + listener.Addr().String()
}

// gated is the body "firstlast". It signals the first read and waits for the gate.
type gated struct {
	started, gate chan struct{}
	done          bool
}

func (g *gated) Read(b []byte) (int, error) {
	if g.done {
		return 0, io.EOF
	}
	g.started <- struct{}{}
	<-g.gate
	g.done = true
	return copy(b, "firstlast"), nil
}

// streams are the ways in which fiber handlers stream "firstlast".
func streams(g *gated) map[string]fiber.Handler {
	return map[string]fiber.Handler{
		"SendStreamWriter": func(c fiber.Ctx) error {
			return c.SendStreamWriter(func(w *bufio.Writer) {
				_, _ = w.WriteString("first")
				_ = w.Flush()
				g.started <- struct{}{}
				<-g.gate
				_, _ = w.WriteString("last")
			})
		},
		"SendStream":           func(c fiber.Ctx) error { return c.SendStream(g) },
		"SendStream of a size": func(c fiber.Ctx) error { return c.SendStream(g, len("firstlast")) },
		"a reader of a size":   func(c fiber.Ctx) error { return c.SendStream(io.LimitReader(g, int64(len("firstlast")))) },
		"flushed at once": func(c fiber.Ctx) error {
			c.Response().ImmediateHeaderFlush = true
			return c.SendStream(g)
		},
	}
}

// answer is a response whose body is not read yet.
type answer struct {
	status int
	length int64
	header http.Header
	body   io.Reader
}

// get requests a URL. Without an answer, the status is 0.
func get(ctx context.Context, t *testing.T, url string) answer {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Error(err)
		return answer{}
	}
	r.Header.Set("Accept-Encoding", "identity")
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Error(err)
		return answer{}
	}
	t.Cleanup(func() { _ = res.Body.Close() })
	return answer{res.StatusCode, res.ContentLength, res.Header, res.Body}
}

// becomesFree waits until the only slot is free.
func becomesFree(t *testing.T, url string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for get(ctx, t, url+"/plain").status != http.StatusOK {
		if ctx.Err() != nil {
			t.Fatal("the place is never free again")
		}
	}
}

// fiber streams after the handler has returned. The slot is held until the stream ends,
// and the answer is the same as without a limit.
func TestStreamsHoldTheirPlace(t *testing.T) {
	for name := range streams(nil) {
		t.Run(name, func(t *testing.T) {
			gate := make(chan struct{})
			started := make(chan struct{}, 1)
			handler := func(c fiber.Ctx) error {
				c.Cookie(&fiber.Cookie{Name: "a", Value: "b"})
				c.Set("X-Own", "own")
				return streams(&gated{started: started, gate: gate})[name](c.Status(http.StatusAccepted))
			}
			app := fiber.New()
			app.Get("/bare", handler)
			app.Use(fiberlimit.New(headgate.New(memory.New()), headgate.Concurrent(1)))
			app.Get("/stream", handler)
			app.Get("/plain", func(c fiber.Ctx) error { return c.SendString("plain") })
			url := serve(t, app)

			answered := make(chan answer)
			go func() { answered <- get(t.Context(), t, url+"/stream") }()
			<-started
			if second := get(t.Context(), t, url+"/plain"); second.status != http.StatusTooManyRequests {
				t.Errorf("during the stream a request is answered %d", second.status)
			}
			close(gate)
			got := <-answered
			want := get(t.Context(), t, url+"/bare")
			for _, field := range []string{"Set-Cookie", "X-Own", "Content-Type", "Content-Length", "Transfer-Encoding"} {
				if got, want := got.header.Get(field), want.header.Get(field); got != want {
					t.Errorf("%s: %q, want %q", field, got, want)
				}
			}
			if got.length != want.length || got.status != want.status || got.header.Get("RateLimit") == "" {
				t.Errorf("%d, %d bytes, want %d, %d: %v", got.status, got.length, want.status, want.length, got.header)
			}
			if body, err := io.ReadAll(got.body); err != nil || string(body) != "firstlast" {
				t.Errorf("%q, %v", body, err)
			}
			becomesFree(t, url)
		})
	}
}

// The slot is freed if the client disconnects, an error's answer replaces the stream,
// other middleware compresses it, or the body is not sent.
func TestStreamsThatEndEarly(t *testing.T) {
	endless := func(c fiber.Ctx) error {
		return c.SendStreamWriter(func(w *bufio.Writer) {
			for {
				if _, err := w.WriteString(strings.Repeat("x", 1<<10)); err != nil {
					return
				}
			}
		})
	}
	app := fiber.New()
	app.Use("/packed", compress.New())
	app.Use(fiberlimit.New(headgate.New(memory.New()), headgate.Concurrent(1), httplimit.IETF))
	app.Get("/endless", endless)
	app.Get("/packed", func(c fiber.Ctx) error {
		return c.Type("txt").SendStream(strings.NewReader(strings.Repeat("x", 1<<16)))
	})
	app.Get("/error", func(c fiber.Ctx) error {
		if err := c.SendStream(strings.NewReader("x")); err != nil {
			return err
		}
		return fiber.ErrTeapot
	})
	app.Get("/plain", func(c fiber.Ctx) error { return c.SendString("plain") })
	url := serve(t, app)

	ctx, breakOff := context.WithCancel(t.Context())
	if _, err := io.ReadFull(get(ctx, t, url+"/endless").body, make([]byte, 1<<16)); err != nil {
		t.Fatal(err)
	}
	if plain := get(t.Context(), t, url+"/plain"); plain.status != http.StatusTooManyRequests {
		t.Errorf("during the stream: answered %d", plain.status)
	}
	breakOff()
	becomesFree(t, url)

	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/packed", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(r) // it requests gzip
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(res.Body)
	if _ = res.Body.Close(); err != nil || len(body) != 1<<16 || !res.Uncompressed {
		t.Errorf("packed: %d bytes, unpacked %t, %v", len(body), res.Uncompressed, err)
	}
	becomesFree(t, url)

	if res := get(t.Context(), t, url+"/error"); res.status != http.StatusTeapot {
		t.Errorf("an error: answered %d", res.status)
	}
	becomesFree(t, url)

	// Use a separate connection: after the header of a chunked answer to HEAD, fasthttp
	// writes an extra empty line, which belongs to no answer.
	r, err = http.NewRequestWithContext(t.Context(), http.MethodHead, url+"/endless", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Close = true
	head, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = head.Body.Close()
	becomesFree(t, url)
}
