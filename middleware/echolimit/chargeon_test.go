package echolimit_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/labstack/echo/v5"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/middleware/echolimit"
	"github.com/headgate/headgate/middleware/httplimit"
	"github.com/headgate/headgate/store/memory"
)

// failed counts failed logins.
func failed() httplimit.Option {
	return httplimit.ChargeOn(func(status int, header http.Header) bool {
		return status == http.StatusUnauthorized || header.Get("X-Login") == "failed"
	})
}

// suggest sets a status that the first write sends.
func suggest(c *echo.Context, status int) {
	if res, err := echo.UnwrapResponse(c.Response()); err == nil {
		res.Status = status
	}
}

// recovering is middleware that answers panics with 500.
func recovering(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c *echo.Context) (err error) {
		defer func() {
			if recover() != nil {
				err = echo.ErrInternalServerError
			}
		}()
		return next(c)
	}
}

// Requests count by the answer, however the handler gives it.
func TestRequestsCountByTheirAnswer(t *testing.T) {
	set := func(c *echo.Context) { c.Response().Header().Set("X-Login", "failed") }
	for name, row := range map[string]struct {
		answer echo.HandlerFunc
		want   string // what is left
	}{
		"nothing":          {func(*echo.Context) error { return nil }, "5"},
		"a string":         {func(c *echo.Context) error { return c.String(200, "right") }, "5"},
		"JSON":             {func(c *echo.Context) error { return c.JSON(401, "wrong") }, "4"},
		"a status":         {func(c *echo.Context) error { return c.NoContent(401) }, "4"},
		"an error":         {func(*echo.Context) error { return echo.ErrUnauthorized }, "4"},
		"another error":    {func(*echo.Context) error { return errors.New("broken") }, "5"},
		"a field":          {func(c *echo.Context) error { set(c); return c.String(200, "wrong") }, "4"},
		"a field too late": {func(c *echo.Context) error { err := c.String(200, "right"); set(c); return err }, "5"},
		"a suggested status": {func(c *echo.Context) error {
			suggest(c, 401)
			_, err := c.Response().Write([]byte("x"))
			return err
		}, "4"},
		"1xx, then a status": {func(c *echo.Context) error {
			c.Response().WriteHeader(http.StatusEarlyHints)
			return echo.ErrUnauthorized // after a header, echo keeps to it
		}, "5"},
		"a panic": {func(*echo.Context) error { panic("broken") }, "4"},
	} {
		limiter := headgate.New(memory.New())
		limit := headgate.PerDay(5).WithAlgorithm(headgate.FixedWindow).WithName("logins")
		e := echo.New()
		e.Use(recovering)
		e.GET("/", row.answer, echolimit.New(limiter, limit, failed()))
		e.GET("/left", func(c *echo.Context) error { return c.NoContent(200) },
			echolimit.New(limiter, limit, httplimit.Cost(func(*http.Request) int64 { return 0 })))
		told := ask(e, "/", nil).Header().Get("X-Ratelimit-Remaining")
		if left := ask(e, "/left", nil).Header().Get("X-Ratelimit-Remaining"); left != row.want || told != row.want {
			t.Errorf("%s: %s left, %s by the header, want %s", name, left, told, row.want)
		}
	}
}

// A flush sends the header with the status that counts.
func TestFlushedAnswers(t *testing.T) {
	limiter := headgate.New(memory.New())
	e := echo.New()
	e.GET("/:status", func(c *echo.Context) error {
		if c.Param("status") == "401" {
			suggest(c, 401)
		}
		return http.NewResponseController(c.Response()).Flush()
	}, echolimit.New(limiter, headgate.PerDay(5).WithAlgorithm(headgate.FixedWindow), failed()))
	var left []string
	for _, path := range []string{"/200", "/200", "/401", "/200"} {
		left = append(left, ask(e, path, nil).Result().Header.Get("X-Ratelimit-Remaining"))
	}
	if want := []string{"4", "4", "4", "3"}; !slices.Equal(left, want) { // the header is sent before the refund
		t.Errorf("left: %v, want %v", left, want)
	}
}

// Of 100 parallel guesses exactly five reach the handler.
func TestParallelGuesses(t *testing.T) {
	var reached, wrong atomic.Int64
	e := echo.New()
	e.GET("/", func(*echo.Context) error {
		reached.Add(1)
		return echo.ErrUnauthorized
	}, echolimit.New(headgate.New(memory.New()), headgate.PerHour(5).WithAlgorithm(headgate.SlidingLog), failed()))
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			rec := httptest.NewRecorder()
			if e.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/", nil)); rec.Code == http.StatusUnauthorized {
				wrong.Add(1)
			}
		})
	}
	wg.Wait()
	if reached.Load() != 5 || wrong.Load() != 5 {
		t.Errorf("%d reached the handler, %d were answered 401", reached.Load(), wrong.Load())
	}
}
