package fiberlimit_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/recover"
	"github.com/valyala/fasthttp"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/middleware/fiberlimit"
	"github.com/headgate/headgate/middleware/httplimit"
	"github.com/headgate/headgate/store/memory"
)

// failed counts failed logins.
func failed() httplimit.Option {
	return httplimit.ChargeOn(func(status int, header http.Header) bool {
		return status == http.StatusUnauthorized || header.Get("X-Login") == "failed"
	})
}

// remaining asks app and returns what is left by its header.
func remaining(t *testing.T, app *fiber.App, target string) string {
	t.Helper()
	res, err := app.Test(httptest.NewRequest(http.MethodGet, target, http.NoBody), fiber.TestConfig{Timeout: 0})
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	return res.Header.Get("X-Ratelimit-Remaining")
}

// Requests count by the answer, however the handler gives it.
func TestRequestsCountByTheirAnswer(t *testing.T) {
	for name, row := range map[string]struct {
		answer fiber.Handler
		want   string // what is left
	}{
		"nothing":       {func(fiber.Ctx) error { return nil }, "5"},
		"a string":      {func(c fiber.Ctx) error { return c.SendString("right") }, "5"},
		"JSON":          {func(c fiber.Ctx) error { return c.Status(401).JSON("wrong") }, "4"},
		"a status":      {func(c fiber.Ctx) error { return c.SendStatus(401) }, "4"},
		"an error":      {func(fiber.Ctx) error { return fiber.ErrUnauthorized }, "4"},
		"another error": {func(fiber.Ctx) error { return errors.New("broken") }, "5"},
		"a field":       {func(c fiber.Ctx) error { c.Set("x-login", "failed"); return nil }, "4"},
		"a stream":      {func(c fiber.Ctx) error { return c.Status(401).SendStream(strings.NewReader("wrong")) }, "4"},
		"a panic":       {func(fiber.Ctx) error { panic("broken") }, "4"},
	} {
		limiter := headgate.New(memory.New())
		limit := headgate.PerDay(5).WithAlgorithm(headgate.FixedWindow).WithName("logins")
		app := fiber.New()
		app.Use(recover.New())
		app.Get("/", fiberlimit.New(limiter, limit, failed()), row.answer)
		app.Get("/left", fiberlimit.New(limiter, limit, httplimit.Cost(func(*http.Request) int64 { return 0 })), func(fiber.Ctx) error { return nil })
		told := remaining(t, app, "/")
		if left := remaining(t, app, "/left"); left != row.want || told != row.want {
			t.Errorf("%s: %s left, %s by the header, want %s", name, left, told, row.want)
		}
	}
}

// Of 100 parallel guesses exactly five reach the handler.
func TestParallelGuesses(t *testing.T) {
	var reached, wrong atomic.Int64
	app := fiber.New()
	app.Get("/", fiberlimit.New(headgate.New(memory.New()), headgate.PerHour(5).WithAlgorithm(headgate.SlidingLog), failed()), func(c fiber.Ctx) error {
		reached.Add(1)
		return c.SendStatus(http.StatusUnauthorized)
	})
	h := app.Handler()
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			var c fasthttp.RequestCtx
			c.Request.SetRequestURI("/")
			if h(&c); c.Response.StatusCode() == http.StatusUnauthorized {
				wrong.Add(1)
			}
		})
	}
	wg.Wait()
	if reached.Load() != 5 || wrong.Load() != 5 {
		t.Errorf("%d reached the handler, %d were answered 401", reached.Load(), wrong.Load())
	}
}
