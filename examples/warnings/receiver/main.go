// Command receiver receives the warnings of Headgate and shows them.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:9900", "address")
	flag.Parse()
	if err := serve(*listen); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve(address string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	fmt.Printf("listening on http://%s\n", listener.Addr())
	server := http.Server{Handler: &receiver{}, ReadTimeout: 5 * time.Second}
	return server.Serve(listener)
}

// receiver keeps what it has received.
type receiver struct {
	mu   sync.Mutex
	seen []string
}

// ServeHTTP receives messages by POST and lists them by GET.
func (r *receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if q.Method == http.MethodGet {
		_, _ = io.WriteString(w, strings.Join(r.seen, ""))
		return
	}
	var message struct {
		Type string
		Data struct{ Text string }
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, q.Body, 64<<10)).Decode(&message); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.seen = append(r.seen, fmt.Sprintf("%s: %s\n", message.Type, message.Data.Text))
	w.WriteHeader(http.StatusNoContent)
}
