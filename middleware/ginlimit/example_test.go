package ginlimit_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/gin-gonic/gin"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/middleware/ginlimit"
	"github.com/headgate/headgate/middleware/httplimit"
	"github.com/headgate/headgate/store/memory"
)

// Two requests a minute for each API key or, without one, each address.
func Example() {
	gin.SetMode(gin.ReleaseMode)
	limiter := headgate.New(memory.New())

	router := gin.New()
	router.Use(ginlimit.New(limiter, headgate.PerMinute(2), httplimit.Name("per-key"),
		httplimit.FirstOf(httplimit.ByHeader("X-Api-Key"), httplimit.ByIP())))
	router.GET("/hello", func(c *gin.Context) { c.String(http.StatusOK, "hello") })

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
	gin.SetMode(gin.ReleaseMode)
	limiter := headgate.New(memory.New())
	login := func(c *gin.Context) { c.Set("user", c.Query("user")) }
	perUser := ginlimit.New(limiter, headgate.PerMinute(1),
		ginlimit.By(func(c *gin.Context) (string, bool) { return c.GetString("user"), true }))

	router := gin.New()
	router.GET("/", login, perUser, func(*gin.Context) {})
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
