package echolimit_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/labstack/echo/v5"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testkit/adaptertest"
	"github.com/headgate/headgate/middleware/echolimit"
	"github.com/headgate/headgate/middleware/httplimit"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

func newLimiter(clock func() time.Time) *headgate.Limiter {
	return headgate.New(memory.New(), headgate.WithClock(clock))
}

// router returns an echo application that answers /status/N with N.
func router(before ...echo.MiddlewareFunc) *echo.Echo {
	e := echo.New()
	e.Use(before...)
	e.Any(adaptertest.Status+":status", func(c *echo.Context) error {
		c.Response().Header().Set(adaptertest.Marks, adaptertest.MarksOf(c.Request().Context()))
		status := adaptertest.StatusOf(c.Request().URL.Path)
		if c.QueryParam("error") != "" {
			return echo.NewHTTPError(status, "wrong")
		}
		return c.NoContent(status)
	})
	return e
}

func ask(h http.Handler, target string, header http.Header) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, target, nil)
	r.Header = header
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, r)
	return rec
}

func TestAnswersAsHTTPLimit(t *testing.T) {
	build := func(l *headgate.Limiter, limit headgate.Limit, options ...httplimit.Option) adaptertest.Server {
		return adaptertest.Serve(router(echolimit.New(l, limit, options...)))
	}
	for _, difference := range adaptertest.Differences(build, newLimiter) {
		t.Error(difference)
	}
	for _, mistake := range adaptertest.Mistakes(build) {
		t.Error(mistake)
	}
	nils := adaptertest.Nils{By: echolimit.By(nil), Cost: echolimit.Cost(nil), LimitBy: echolimit.LimitBy(nil), Headroom: echolimit.Headroom(nil), OnLimit: echolimit.OnLimit(nil)}
	for _, difference := range adaptertest.NilFunctions(build, newLimiter, nils) {
		t.Error(difference)
	}
}

// user is echo middleware that sets the user.
func user(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c *echo.Context) error {
		c.Set("user", c.Request().Header.Get("X-User"))
		return next(c)
	}
}

func userOf(c *echo.Context) (string, bool) {
	name, ok := c.Get("user").(string)
	return name, ok
}

func TestOptionsByContext(t *testing.T) {
	four := headgate.PerHour(4)
	h := router(user, echolimit.New(headgate.New(memory.New()), headgate.PerHour(3),
		httplimit.FirstOf(echolimit.By(userOf), httplimit.ByIP()),
		echolimit.LimitBy(func(c *echo.Context) (headgate.Limit, bool) {
			name, _ := userOf(c)
			return four, name != ""
		}),
		echolimit.Cost(func(c *echo.Context) int64 { return int64(len(c.QueryParam("cost"))) }),
		echolimit.OnLimit(func(c *echo.Context) error {
			d, ok := httplimit.Refused(c.Request().Context())
			name, _ := userOf(c)
			return c.JSON(http.StatusForbidden, map[string]any{"user": name, "known": ok, "limit": d.Limit})
		}),
	))
	var got []int
	for _, name := range []string{"ann", "ann", "bob", ""} {
		rec := ask(h, "/status/200?cost=xxx", http.Header{"X-User": {name}})
		got = append(got, rec.Code)
		if rec.Code == http.StatusForbidden && rec.Body.String() != `{"known":true,"limit":4,"user":"ann"}`+"\n" {
			t.Error(rec.Body)
		}
	}
	if want := []int{200, 403, 200, 200}; !slices.Equal(got, want) {
		t.Errorf("answered %v, want %v", got, want)
	}
}

// echo answers with the error of the OnLimit handler.
func TestErrorOfOnLimit(t *testing.T) {
	h := router(echolimit.New(headgate.New(memory.New()), headgate.PerHour(0),
		echolimit.OnLimit(func(*echo.Context) error { return echo.NewHTTPError(http.StatusTeapot, "no") })))
	if rec := ask(h, "/status/200", nil); rec.Code != http.StatusTeapot || rec.Header().Get("RateLimit-Policy") == "" {
		t.Error(rec.Code, rec.Header())
	}
}

// The status of an error counts, although echo writes it after the middleware.
func TestRefundOfErrors(t *testing.T) {
	h := router(echolimit.New(headgate.New(memory.New()), headgate.PerHour(2), httplimit.RefundIf(401)))
	var got []int
	for _, target := range []string{"401", "401", "401", "404", "404", "401"} {
		got = append(got, ask(h, adaptertest.Status+target+"?error=yes", nil).Code)
	}
	if want := []int{401, 401, 401, 404, 404, 429}; !slices.Equal(got, want) {
		t.Errorf("answered %v, want %v", got, want)
	}
}

// The status of a hijacked connection is unknown.
func TestHijackedIsNotRefunded(t *testing.T) {
	e := echo.New()
	limit := echolimit.New(headgate.New(memory.New()), headgate.PerHour(2), httplimit.RefundIf(http.StatusOK))
	e.GET("/", func(c *echo.Context) error {
		conn, rw, err := http.NewResponseController(c.Response()).Hijack()
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		_, _ = rw.WriteString("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		return rw.Flush()
	}, limit)
	server := httptest.NewServer(e)
	defer server.Close()
	var got []int
	for range 3 {
		res, err := http.Get(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		got = append(got, res.StatusCode)
	}
	if want := []int{200, 200, 429}; !slices.Equal(got, want) {
		t.Errorf("answered %v, want %v", got, want)
	}
}

func TestOptionsWithoutEcho(t *testing.T) {
	h := httplimit.New(headgate.New(memory.New()), headgate.PerHour(1),
		echolimit.By(func(*echo.Context) (string, bool) { t.Error("asked"); return "", true }),
		echolimit.Cost(func(*echo.Context) int64 { t.Error("asked"); return 0 }),
		echolimit.OnLimit(func(*echo.Context) error { t.Error("asked"); return nil }),
	)(http.NotFoundHandler())
	if a, b := ask(h, "/", nil), ask(h, "/", nil); a.Code != 404 || b.Code != 429 {
		t.Errorf("answered %d, %d", a.Code, b.Code)
	}
}

func BenchmarkEcho(b *testing.B) {
	h := router(echolimit.New(headgate.New(memory.New()), headgate.PerSecond(store.MaxLimit)))
	r := httptest.NewRequest(http.MethodGet, "/status/204", nil)
	rec := httptest.NewRecorder()
	b.ReportAllocs()
	for b.Loop() {
		h.ServeHTTP(rec, r)
	}
	if rec.Code != 204 {
		b.Fatal(rec.Code)
	}
}

// A client that hangs up before the answer gets no refund.
func TestHangingUpIsNotRefunded(t *testing.T) {
	e := echo.New()
	ctx, hangUp := context.WithCancel(t.Context())
	limit := echolimit.New(headgate.New(memory.New()), headgate.PerHour(1), httplimit.RefundIf(http.StatusOK))
	e.GET("/", func(*echo.Context) error { hangUp(); return nil }, limit)
	rec := httptest.NewRecorder()
	e.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/", nil).WithContext(ctx))
	if again := ask(e, "/", nil); rec.Code != http.StatusOK || again.Code != http.StatusTooManyRequests {
		t.Errorf("answered %d, then %d", rec.Code, again.Code)
	}
}

// If there are several values, echo reads the one that limits count by.
func TestHandlersReadWhatCounts(t *testing.T) {
	e := echo.New()
	e.GET("/", func(c *echo.Context) error {
		session, err := c.Cookie("session")
		if err != nil {
			return err
		}
		return c.String(http.StatusOK, c.Request().Header.Get("X-Api-Key")+"|"+c.QueryParam("key")+"|"+session.Value)
	})
	for _, wrong := range adaptertest.Misread(adaptertest.Serve(e)) {
		t.Error(wrong)
	}
}

func TestTwoMiddlewaresDoNotShareACountByAccident(t *testing.T) {
	limiter := headgate.New(memory.New())
	echolimit.New(limiter, headgate.PerMinute(4))
	echolimit.New(limiter, headgate.PerMinute(4), httplimit.Name("login"))
	defer func() {
		if recover() == nil {
			t.Error("a second middleware of an equal limit without a name")
		}
	}()
	echolimit.New(limiter, headgate.PerMinute(4))
}
