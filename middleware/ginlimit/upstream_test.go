package ginlimit_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/middleware/ginlimit"
)

// A handler's own fields, such as those that a reverse proxy copies, are no second values.
func TestFieldsHaveOneValue(t *testing.T) {
	e := router(ginlimit.New(newLimiter(time.Now), headgate.PerHour(3)))
	e.GET("/up", func(c *gin.Context) {
		c.Writer.Header().Add("X-RateLimit-Limit", "999")
		c.Writer.Header().Add("RateLimit", `"up";r=0;t=90`)
		c.String(http.StatusOK, "x")
	})
	w := httptest.NewRecorder()
	e.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/up", nil))
	h := w.Result().Header
	if !slices.Equal(h["X-Ratelimit-Limit"], []string{"3"}) || !slices.Equal(h["Ratelimit"], []string{`"up";r=0;t=90, "default";r=2;t=2400`}) {
		t.Error(h)
	}
}
