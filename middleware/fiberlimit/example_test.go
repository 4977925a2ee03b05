package fiberlimit_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/gofiber/fiber/v3"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/middleware/fiberlimit"
	"github.com/headgate/headgate/middleware/httplimit"
	"github.com/headgate/headgate/store/memory"
)

// Two requests a minute for each API key or, without one, each address.
func Example() {
	limiter := headgate.New(memory.New())

	app := fiber.New()
	app.Use(fiberlimit.New(limiter, headgate.PerMinute(2), httplimit.Name("per-key"),
		httplimit.FirstOf(httplimit.ByHeader("X-Api-Key"), httplimit.ByIP())))
	app.Get("/hello", func(c fiber.Ctx) error { return c.SendString("hello") })

	for range 3 {
		res, err := app.Test(httptest.NewRequest(http.MethodGet, "/hello", nil))
		if err != nil {
			fmt.Println(err)
			return
		}
		_ = res.Body.Close()
		fmt.Println(res.StatusCode, res.Header.Get("RateLimit-Policy"), "left:", res.Header.Get("X-RateLimit-Remaining"))
	}
	// Output:
	// 200 "per-key";q=2;w=60 left: 1
	// 200 "per-key";q=2;w=60 left: 0
	// 429 "per-key";q=2;w=60 left: 0
}

// A limit for each user that earlier middleware found.
func ExampleBy() {
	limiter := headgate.New(memory.New())
	login := func(c fiber.Ctx) error {
		fiber.Locals(c, "user", strings.Clone(c.Query("user")))
		return c.Next()
	}
	perUser := fiberlimit.New(limiter, headgate.PerMinute(1),
		fiberlimit.By(func(c fiber.Ctx) (string, bool) { return fiber.Locals[string](c, "user"), true }))

	app := fiber.New()
	app.Get("/", login, perUser, func(c fiber.Ctx) error { return c.SendStatus(http.StatusOK) })
	for _, user := range []string{"ann", "ann", "bob"} {
		res, err := app.Test(httptest.NewRequest(http.MethodGet, "/?user="+user, nil))
		if err != nil {
			fmt.Println(err)
			return
		}
		_ = res.Body.Close()
		fmt.Println(user, res.StatusCode)
	}
	// Output:
	// ann 200
	// ann 429
	// bob 200
}
