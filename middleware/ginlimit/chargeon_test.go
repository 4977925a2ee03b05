package ginlimit_test

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/middleware/ginlimit"
	"github.com/headgate/headgate/middleware/httplimit"
	"github.com/headgate/headgate/store/memory"
)

// failed counts failed logins.
func failed() httplimit.Option {
	return httplimit.ChargeOn(func(status int, header http.Header) bool {
		return status == http.StatusUnauthorized || header.Get("X-Login") == "failed"
	})
}

// Requests count by the answer, however the handler gives it.
func TestRequestsCountByTheirAnswer(t *testing.T) {
	for name, row := range map[string]struct {
		answer gin.HandlerFunc
		want   string // what is left
	}{
		"nothing":          {func(*gin.Context) {}, "5"},
		"a string":         {func(c *gin.Context) { c.String(200, "right") }, "5"},
		"JSON":             {func(c *gin.Context) { c.JSON(401, "wrong") }, "4"},
		"a status":         {func(c *gin.Context) { c.Status(401) }, "4"},
		"an aborted one":   {func(c *gin.Context) { c.AbortWithStatus(401) }, "4"},
		"a field":          {func(c *gin.Context) { c.Header("X-Login", "failed") }, "4"},
		"a field too late": {func(c *gin.Context) { c.String(200, "right"); c.Header("X-Login", "failed") }, "5"},
		"a string written": {func(c *gin.Context) { c.Status(401); _, _ = c.Writer.WriteString("x"); c.Status(200) }, "4"},
		"flushed":          {func(c *gin.Context) { c.Status(401); c.Writer.Flush(); c.Status(200) }, "4"},
		"a panic":          {func(*gin.Context) { panic("broken") }, "4"},
	} {
		limiter := headgate.New(memory.New())
		limit := headgate.PerDay(5).WithAlgorithm(headgate.FixedWindow).WithName("logins")
		e := gin.New()
		e.Use(gin.CustomRecoveryWithWriter(nil, func(c *gin.Context, _ any) { c.AbortWithStatus(500) }))
		e.GET("/", ginlimit.New(limiter, limit, failed()), row.answer)
		e.GET("/left", ginlimit.New(limiter, limit, httplimit.Cost(func(*http.Request) int64 { return 0 })))
		told := ask(e, "/", nil).Header().Get("X-Ratelimit-Remaining")
		if left := ask(e, "/left", nil).Header().Get("X-Ratelimit-Remaining"); left != row.want || told != row.want {
			t.Errorf("%s: %s left, %s by the header, want %s", name, left, told, row.want)
		}
	}
}

// Of 100 parallel guesses exactly five reach the handler.
func TestParallelGuesses(t *testing.T) {
	var reached, wrong atomic.Int64
	e := gin.New()
	e.GET("/", ginlimit.New(headgate.New(memory.New()), headgate.PerHour(5).WithAlgorithm(headgate.SlidingLog), failed()), func(c *gin.Context) {
		reached.Add(1)
		c.AbortWithStatus(http.StatusUnauthorized)
	})
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
