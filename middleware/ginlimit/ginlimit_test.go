package ginlimit_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testkit/adaptertest"
	"github.com/headgate/headgate/middleware/ginlimit"
	"github.com/headgate/headgate/middleware/httplimit"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

func newLimiter(clock func() time.Time) *headgate.Limiter {
	return headgate.New(memory.New(), headgate.WithClock(clock))
}

// router returns a gin application that answers /status/N with N.
func router(before ...gin.HandlerFunc) *gin.Engine {
	gin.SetMode(gin.ReleaseMode)
	e := gin.New()
	e.Use(before...)
	e.Any(adaptertest.Status+":status", func(c *gin.Context) {
		c.Writer.Header().Set(adaptertest.Marks, adaptertest.MarksOf(c.Request.Context()))
		c.Status(adaptertest.StatusOf(c.Request.URL.Path))
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
		return adaptertest.Serve(router(ginlimit.New(l, limit, options...)))
	}
	for _, difference := range adaptertest.Differences(build, newLimiter) {
		t.Error(difference)
	}
	for _, mistake := range adaptertest.Mistakes(build) {
		t.Error(mistake)
	}
	nils := adaptertest.Nils{By: ginlimit.By(nil), Cost: ginlimit.Cost(nil), LimitBy: ginlimit.LimitBy(nil), Headroom: ginlimit.Headroom(nil), OnLimit: ginlimit.OnLimit(nil)}
	for _, difference := range adaptertest.NilFunctions(build, newLimiter, nils) {
		t.Error(difference)
	}
}

// user is gin middleware that sets the user.
func user(c *gin.Context) { c.Set("user", c.GetHeader("X-User")) }

func TestOptionsByContext(t *testing.T) {
	four := headgate.PerHour(4)
	h := router(user, ginlimit.New(headgate.New(memory.New()), headgate.PerHour(3),
		httplimit.FirstOf(ginlimit.By(func(c *gin.Context) (string, bool) { return c.GetString("user"), true }), httplimit.ByIP()),
		ginlimit.LimitBy(func(c *gin.Context) (headgate.Limit, bool) { return four, c.GetString("user") != "" }),
		ginlimit.Cost(func(c *gin.Context) int64 { return int64(len(c.Query("cost"))) }),
		ginlimit.OnLimit(func(c *gin.Context) {
			d, ok := httplimit.Refused(c.Request.Context())
			c.JSON(http.StatusForbidden, gin.H{"user": c.GetString("user"), "known": ok, "limit": d.Limit})
		}),
	))
	var got []int
	for _, name := range []string{"ann", "ann", "bob", ""} {
		rec := ask(h, "/status/200?cost=xxx", http.Header{"X-User": {name}})
		got = append(got, rec.Code)
		if rec.Code == http.StatusForbidden && rec.Body.String() != `{"known":true,"limit":4,"user":"ann"}` {
			t.Error(rec.Body)
		}
	}
	if want := []int{200, 403, 200, 200}; !slices.Equal(got, want) {
		t.Errorf("answered %v, want %v", got, want)
	}
}

// Later handlers do not run for a refused request, and earlier middleware sees the
// refusal.
func TestRefusedStopsHere(t *testing.T) {
	ran, seen := 0, 0
	h := router(func(c *gin.Context) { c.Next(); seen = c.Writer.Status() },
		ginlimit.New(headgate.New(memory.New()), headgate.PerHour(0)), func(*gin.Context) { ran++ })
	if rec := ask(h, "/status/200", nil); rec.Code != 429 || ran != 0 || seen != 429 {
		t.Errorf("%d, %d handlers ran, the one before saw %d", rec.Code, ran, seen)
	}
}

// The status of a hijacked connection is unknown.
func TestHijackedIsNotRefunded(t *testing.T) {
	limiter := headgate.New(memory.New())
	e := gin.New()
	e.GET("/", ginlimit.New(limiter, headgate.PerHour(2), httplimit.RefundIf(http.StatusOK)), func(c *gin.Context) {
		conn, rw, err := http.NewResponseController(c.Writer).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = conn.Close() }()
		_, _ = rw.WriteString("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		_ = rw.Flush()
	})
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

func TestOptionsWithoutGin(t *testing.T) {
	h := httplimit.New(headgate.New(memory.New()), headgate.PerHour(1),
		ginlimit.By(func(*gin.Context) (string, bool) { t.Error("asked"); return "", true }),
		ginlimit.Cost(func(*gin.Context) int64 { t.Error("asked"); return 0 }),
		ginlimit.OnLimit(func(*gin.Context) { t.Error("asked") }),
	)(http.NotFoundHandler())
	if a, b := ask(h, "/", nil), ask(h, "/", nil); a.Code != 404 || b.Code != 429 {
		t.Errorf("answered %d, %d", a.Code, b.Code)
	}
}

func BenchmarkGin(b *testing.B) {
	h := router(ginlimit.New(headgate.New(memory.New()), headgate.PerSecond(store.MaxLimit)))
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
	e := gin.New()
	ctx, hangUp := context.WithCancel(t.Context())
	e.GET("/", ginlimit.New(headgate.New(memory.New()), headgate.PerHour(1), httplimit.RefundIf(http.StatusOK)), func(*gin.Context) { hangUp() })
	rec := httptest.NewRecorder()
	e.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/", nil).WithContext(ctx))
	if again := ask(e, "/", nil); rec.Code != http.StatusOK || again.Code != http.StatusTooManyRequests {
		t.Errorf("answered %d, then %d", rec.Code, again.Code)
	}
}

// If there are several values, gin reads the one that limits count by.
func TestHandlersReadWhatCounts(t *testing.T) {
	e := gin.New()
	e.GET("/", func(c *gin.Context) {
		session, _ := c.Cookie("session")
		c.String(http.StatusOK, "%s|%s|%s", c.GetHeader("X-Api-Key"), c.Query("key"), session)
	})
	for _, wrong := range adaptertest.Misread(adaptertest.Serve(e)) {
		t.Error(wrong)
	}
}

func TestTwoMiddlewaresDoNotShareACountByAccident(t *testing.T) {
	limiter := headgate.New(memory.New())
	ginlimit.New(limiter, headgate.PerMinute(4))
	ginlimit.New(limiter, headgate.PerMinute(4), httplimit.Name("login"))
	defer func() {
		if recover() == nil {
			t.Error("a second middleware of an equal limit without a name")
		}
	}()
	ginlimit.New(limiter, headgate.PerMinute(4))
}
