package fiberlimit_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/valyala/fasthttp"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testkit/adaptertest"
	"github.com/headgate/headgate/middleware/fiberlimit"
	"github.com/headgate/headgate/middleware/httplimit"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

func newLimiter(clock func() time.Time) *headgate.Limiter {
	return headgate.New(memory.New(), headgate.WithClock(clock))
}

// router returns a fiber application that answers /status/N with N.
func router(before ...fiber.Handler) *fiber.App {
	app := fiber.New()
	for _, h := range before {
		app.Use(h)
	}
	app.All(adaptertest.Status+":status", func(c fiber.Ctx) error {
		c.Set(adaptertest.Marks, adaptertest.MarksOf(c.Context()))
		status := adaptertest.StatusOf(c.Path())
		if c.Query("error") != "" {
			return fiber.NewError(status, "wrong")
		}
		c.Status(status)
		return nil
	})
	return app
}

func ask(t *testing.T, app *fiber.App, target string, header http.Header) (status int, body string) {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, target, http.NoBody)
	r.Header = header
	res, err := app.Test(r, fiber.TestConfig{Timeout: 0})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(text)
}

func TestAnswersAsHTTPLimit(t *testing.T) {
	build := func(l *headgate.Limiter, limit headgate.Limit, options ...httplimit.Option) adaptertest.Server {
		app := router(fiberlimit.New(l, limit, options...))
		return func(r *http.Request) (*http.Response, error) { return app.Test(r, fiber.TestConfig{Timeout: 0}) }
	}
	for _, difference := range adaptertest.Differences(build, newLimiter) {
		t.Error(difference)
	}
	for _, mistake := range adaptertest.Mistakes(build) {
		t.Error(mistake)
	}
	nils := adaptertest.Nils{By: fiberlimit.By(nil), Cost: fiberlimit.Cost(nil), LimitBy: fiberlimit.LimitBy(nil), Headroom: fiberlimit.Headroom(nil), OnLimit: fiberlimit.OnLimit(nil)}
	for _, difference := range adaptertest.NilFunctions(build, newLimiter, nils) {
		t.Error(difference)
	}
}

// user is fiber middleware that sets the user.
func user(c fiber.Ctx) error {
	fiber.Locals(c, "user", strings.Clone(c.Get("X-User")))
	return c.Next()
}

func TestOptionsByContext(t *testing.T) {
	four := headgate.PerHour(4)
	app := router(user, fiberlimit.New(headgate.New(memory.New()), headgate.PerHour(3),
		httplimit.FirstOf(fiberlimit.By(func(c fiber.Ctx) (string, bool) { return fiber.Locals[string](c, "user"), true }), httplimit.ByIP()),
		fiberlimit.LimitBy(func(c fiber.Ctx) (headgate.Limit, bool) { return four, fiber.Locals[string](c, "user") != "" }),
		fiberlimit.Cost(func(c fiber.Ctx) int64 { return int64(len(c.Query("cost"))) }),
		fiberlimit.OnLimit(func(c fiber.Ctx) error {
			d, ok := fiberlimit.Refused(c)
			return c.Status(http.StatusForbidden).JSON(fiber.Map{"user": fiber.Locals[string](c, "user"), "known": ok, "limit": d.Limit})
		}),
	))
	var got []int
	for _, name := range []string{"ann", "ann", "bob", ""} {
		status, body := ask(t, app, "/status/200?cost=xxx", http.Header{"X-User": {name}})
		got = append(got, status)
		if status == http.StatusForbidden && body != `{"known":true,"limit":4,"user":"ann"}` {
			t.Error(body)
		}
	}
	if want := []int{200, 403, 200, 200}; !slices.Equal(got, want) {
		t.Errorf("answered %v, want %v", got, want)
	}
}

// The status of a *fiber.Error counts, although fiber writes it after the middleware.
// fiber also answers with the error of the OnLimit handler.
func TestErrors(t *testing.T) {
	app := router(fiberlimit.New(headgate.New(memory.New()), headgate.PerHour(2), httplimit.RefundIf(401),
		fiberlimit.OnLimit(func(fiber.Ctx) error { return fiber.ErrTeapot })))
	var got []int
	for _, target := range []string{"401", "401", "401", "404", "404", "401"} {
		status, _ := ask(t, app, adaptertest.Status+target+"?error=yes", nil)
		got = append(got, status)
	}
	if want := []int{401, 401, 401, 404, 404, 418}; !slices.Equal(got, want) {
		t.Errorf("answered %v, want %v", got, want)
	}
}

// Later handlers do not run for a refused request, and header fields about an earlier
// body are removed.
func TestRefusedStopsHere(t *testing.T) {
	ran := 0
	app := router(
		func(c fiber.Ctx) error {
			c.Set("Content-Encoding", "gzip")
			if err := c.SendString("earlier"); err != nil {
				return err
			}
			return c.Next()
		},
		fiberlimit.New(headgate.New(memory.New()), headgate.PerHour(0)),
		func(c fiber.Ctx) error { ran++; return c.Next() })
	status, body := ask(t, app, "/status/200", nil)
	if status != 429 || ran != 0 || !strings.HasPrefix(body, "{") {
		t.Errorf("%d %q, %d handlers ran", status, body, ran)
	}
}

// Keys are copied: a store keeps them, and fiber reuses the memory of its strings.
func TestKeysOutliveTheRequest(t *testing.T) {
	var kept []string
	remember := httplimit.By(func(r *http.Request) (string, bool) {
		kept = append(kept, r.Header.Get("X-User")+r.URL.RawQuery+r.RemoteAddr)
		return kept[len(kept)-1], true
	})
	app := router(fiberlimit.New(headgate.New(memory.New()), headgate.PerHour(10), remember))
	for _, name := range []string{"ann", "bob", "eve"} {
		ask(t, app, "/status/200?"+name, http.Header{"X-User": {name}})
	}
	if want := []string{"annann0.0.0.0:0", "bobbob0.0.0.0:0", "eveeve0.0.0.0:0"}; !slices.Equal(kept, want) {
		t.Errorf("%q, want %q", kept, want)
	}
}

// A waiting request whose context ends frees its place in the queue.
func TestGivenUp(t *testing.T) {
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	app := router(func(c fiber.Ctx) error {
		if c.Query("gone") != "" {
			c.SetContext(canceled)
		}
		return c.Next()
	}, fiberlimit.New(headgate.New(memory.New()), headgate.PerSecond(50).WithBurst(2).WithAlgorithm(headgate.LeakyBucket)))
	var got []int
	for _, query := range []string{"", "?gone=1", "?gone=1", "?gone=1", ""} {
		status, _ := ask(t, app, "/status/200"+query, nil)
		got = append(got, status)
	}
	if want := []int{200, 503, 503, 503, 200}; !slices.Equal(got, want) {
		t.Errorf("answered %v, want %v", got, want)
	}
}

func TestHijackedIsNotRefunded(t *testing.T) {
	app := router(
		fiberlimit.New(headgate.New(memory.New()), headgate.PerHour(2), httplimit.RefundIf(http.StatusOK)),
		func(c fiber.Ctx) error { c.RequestCtx().Hijack(func(net.Conn) {}); return c.Next() })
	var got []int
	for range 3 {
		request := new(fasthttp.RequestCtx)
		request.Request.SetRequestURI("/status/200")
		app.Handler()(request)
		got = append(got, request.Response.StatusCode())
	}
	if want := []int{200, 200, 429}; !slices.Equal(got, want) {
		t.Errorf("answered %v, want %v", got, want)
	}
}

func TestOptionsWithoutFiber(t *testing.T) {
	h := httplimit.New(headgate.New(memory.New()), headgate.PerHour(1),
		fiberlimit.By(func(fiber.Ctx) (string, bool) { t.Error("asked"); return "", true }),
		fiberlimit.Cost(func(fiber.Ctx) int64 { t.Error("asked"); return 0 }),
		fiberlimit.OnLimit(func(fiber.Ctx) error { t.Error("asked"); return nil }),
	)(http.NotFoundHandler())
	for _, want := range []int{404, 429} {
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/", nil))
		if rec.Code != want {
			t.Errorf("answered %d, want %d", rec.Code, want)
		}
	}
}

func BenchmarkFiber(b *testing.B) {
	limited := router(fiberlimit.New(headgate.New(memory.New()), headgate.PerSecond(store.MaxLimit)))
	for name, app := range map[string]*fiber.App{"limited": limited, "bare": router()} {
		b.Run(name, func(b *testing.B) {
			var c fasthttp.RequestCtx
			c.Request.SetRequestURI("/status/204")
			for _, field := range []string{"User-Agent", "Accept", "Accept-Encoding", "X-Api-Key"} {
				c.Request.Header.Set(field, "some value of it")
			}
			h := app.Handler()
			b.ReportAllocs()
			for b.Loop() {
				c.Response.Reset()
				h(&c)
			}
			if c.Response.StatusCode() != 204 {
				b.Fatal(c.Response.StatusCode())
			}
		})
	}
}

// A request whose context ends before the answer gets no refund.
func TestHangingUpIsNotRefunded(t *testing.T) {
	ctx, hangUp := context.WithCancel(t.Context())
	first := true
	app := router(func(c fiber.Ctx) error {
		if first {
			c.SetContext(ctx)
		}
		return c.Next()
	}, fiberlimit.New(headgate.New(memory.New()), headgate.PerHour(1), httplimit.RefundIf(http.StatusOK)), func(c fiber.Ctx) error {
		if first {
			hangUp()
		}
		first = false
		return c.Next()
	})
	one, _ := ask(t, app, adaptertest.Status+"200", nil)
	two, _ := ask(t, app, adaptertest.Status+"200", nil)
	if one != http.StatusOK || two != http.StatusTooManyRequests {
		t.Errorf("answered %d, then %d", one, two)
	}
}

// If there are several values, fiber reads the one that limits count by.
func TestHandlersReadWhatCounts(t *testing.T) {
	app := fiber.New()
	app.Get("/", func(c fiber.Ctx) error {
		return c.SendString(c.Get("X-Api-Key") + "|" + c.Query("key") + "|" + c.Cookies("session"))
	})
	server := func(r *http.Request) (*http.Response, error) { return app.Test(r, fiber.TestConfig{Timeout: 0}) }
	for _, wrong := range adaptertest.Misread(server) {
		t.Error(wrong)
	}
}

func TestTwoMiddlewaresDoNotShareACountByAccident(t *testing.T) {
	limiter := headgate.New(memory.New())
	fiberlimit.New(limiter, headgate.PerMinute(4))
	fiberlimit.New(limiter, headgate.PerMinute(4), httplimit.Name("login"))
	defer func() {
		if recover() == nil {
			t.Error("a second middleware of an equal limit without a name")
		}
	}()
	fiberlimit.New(limiter, headgate.PerMinute(4))
}
