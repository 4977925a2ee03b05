package fiberlimit_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/gofiber/fiber/v3"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/middleware/fiberlimit"
)

// A handler's own fields, such as those that a reverse proxy copies, are no second values.
func TestFieldsHaveOneValue(t *testing.T) {
	for name, add := range map[string]func(c fiber.Ctx, name, value string){
		"added": func(c fiber.Ctx, name, value string) { c.Response().Header.Add(name, value) },
		"set":   func(c fiber.Ctx, name, value string) { c.Set(name, value) },
	} {
		app := router(fiberlimit.New(newLimiter(time.Now), headgate.PerHour(3)))
		app.Get("/up", func(c fiber.Ctx) error {
			add(c, "X-RateLimit-Limit", "999")
			add(c, "RateLimit", `"up";r=0;t=90`)
			return c.SendString("x")
		})
		res, err := app.Test(httptest.NewRequest(http.MethodGet, "/up", nil))
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		h := res.Header
		if !slices.Equal(h["X-Ratelimit-Limit"], []string{"3"}) || !slices.Equal(h["Ratelimit"], []string{`"up";r=0;t=90, "default";r=2;t=2400`}) {
			t.Error(name, h)
		}
	}
}
