package echolimit_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/labstack/echo/v5"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/middleware/echolimit"
)

// A handler's own fields, such as those that a reverse proxy copies, are no second values.
func TestFieldsHaveOneValue(t *testing.T) {
	e := router(echolimit.New(newLimiter(time.Now), headgate.PerHour(3)))
	e.GET("/up", func(c *echo.Context) error {
		c.Response().Header().Add("X-RateLimit-Limit", "999")
		c.Response().Header().Add("RateLimit", `"up";r=0;t=90`)
		return c.String(http.StatusOK, "x")
	})
	w := httptest.NewRecorder()
	e.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/up", nil))
	h := w.Result().Header
	if !slices.Equal(h["X-Ratelimit-Limit"], []string{"3"}) || !slices.Equal(h["Ratelimit"], []string{`"up";r=0;t=90, "default";r=2;t=2400`}) {
		t.Error(h)
	}
}
