// Command backend is a service to try the examples with:
//
//	go run ./examples/backend
//
// It answers every request, lists the requests at /seen, and counts tokens at
// /v1/chat like a language model. At /login only the body "open sesame" gets a 200; others
// get a 401. A body of "bad" gets a 500.
package main

import (
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

func main() {
	address := flag.String("listen", "127.0.0.1:9000", "address to listen on")
	flag.Parse()
	if err := serve(*address); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func serve(address string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	fmt.Printf("listening on http://%s\n", listener.Addr())
	server := &http.Server{Handler: &backend{}, ReadHeaderTimeout: 10 * time.Second}
	return server.Serve(listener)
}

// backend remembers its requests.
type backend struct {
	mu   sync.Mutex
	seen []string
}

// ServeHTTP implements http.Handler.
func (b *backend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err != nil {
		return // the client is gone
	}
	if r.URL.Path == "/seen" {
		b.tell(w)
		return
	}
	b.mu.Lock()
	b.seen = append(b.seen, strings.TrimSpace(r.Method+" "+r.URL.Path+" "+string(body)))
	b.mu.Unlock()
	switch {
	case r.URL.Path == "/v1/chat":
		// One token per byte of the question.
		w.Header().Set("X-Tokens-Used", strconv.Itoa(len(body)))
		_, _ = fmt.Fprintln(w, `{"answer":"42"}`)
	case r.URL.Path == "/login" && string(body) != "open sesame":
		http.Error(w, "wrong password", http.StatusUnauthorized)
	case string(body) == "bad":
		http.Error(w, "the backend is broken", http.StatusInternalServerError)
	default:
		w.Header().Set("Content-Type", "text/plain")
		_, _ = fmt.Fprintf(w, "the backend was asked %s %s\n", r.Method, r.URL.Path) //nolint:gosec // as plain text
	}
}

// tell lists the requests, one per line.
func (b *backend) tell(w io.Writer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, line := range b.seen {
		_, _ = fmt.Fprintln(w, line)
	}
}
