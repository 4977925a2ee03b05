package echolimit_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/labstack/echo/v5"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/middleware/echolimit"
	"github.com/headgate/headgate/middleware/httplimit"
	"github.com/headgate/headgate/store/memory"
)

// Two requests a minute for each API key or, without one, each address.
func Example() {
	limiter := headgate.New(memory.New())

	router := echo.New()
	router.Use(echolimit.New(limiter, headgate.PerMinute(2), httplimit.Name("per-key"),
		httplimit.FirstOf(httplimit.ByHeader("X-Api-Key"), httplimit.ByIP())))
	router.GET("/hello", func(c *echo.Context) error { return c.String(http.StatusOK, "hello") })

	server := httptest.NewServer(router)
	defer server.Close()
	for range 3 {
		res, err := http.Get(server.URL + "/hello")
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
	login := func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			c.Set("user", c.QueryParam("user"))
			return next(c)
		}
	}
	perUser := echolimit.New(limiter, headgate.PerMinute(1), echolimit.By(func(c *echo.Context) (string, bool) {
		user, ok := c.Get("user").(string)
		return user, ok
	}))

	router := echo.New()
	router.GET("/", func(c *echo.Context) error { return c.NoContent(http.StatusOK) }, login, perUser)
	for _, user := range []string{"ann", "ann", "bob"} {
		rec := httptest.NewRecorder()
		router.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/?user="+user, nil))
		fmt.Println(user, rec.Code)
	}
	// Output:
	// ann 200
	// ann 429
	// bob 200
}
