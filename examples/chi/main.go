// Command chi limits the requests of a chi router. chi's middleware is that of
// net/http, so httplimit needs no adapter:
//
//	go run . --listen 127.0.0.1:8090
//	curl -i http://127.0.0.1:8090/articles/1
//
// It is a separate module, so that other programs do not depend on chi.
package main

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/middleware/httplimit"
	"github.com/headgate/headgate/store/memory"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8090", "address to listen on")
	flag.Parse()
	server := &http.Server{
		Addr:              *listen,
		Handler:           routes(headgate.New(memory.New())),
		ReadHeaderTimeout: 5 * time.Second,
	}
	if err := server.ListenAndServe(); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// routes limits each client to 60 requests a minute, and each article, by chi's URL
// parameter, to two a second.
func routes(limiter *headgate.Limiter) http.Handler {
	router := chi.NewRouter()
	router.Use(httplimit.New(limiter, headgate.PerMinute(60)))
	perArticle := httplimit.By(func(r *http.Request) (string, bool) { return chi.URLParam(r, "id"), true })
	router.With(httplimit.New(limiter, headgate.PerSecond(2), httplimit.Name("per-article"), perArticle)).
		Get("/articles/{id}", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprintln(w, "an article")
		})
	return router
}
