// Command receiver receives the warnings of Headgate and verifies their signatures, as
// Standard Webhooks describes.
package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
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
	listen := flag.String("listen", "127.0.0.1:9900", "address")
	file := flag.String("secret", "examples/warnings/hook.secret", "file with the secret")
	flag.Parse()
	if err := serve(*listen, *file); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve(address, file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	secret, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(strings.TrimSpace(string(text)), "whsec_"))
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	fmt.Printf("listening on http://%s\n", listener.Addr())
	server := http.Server{Handler: &receiver{secret: secret}, ReadTimeout: 5 * time.Second}
	return server.Serve(listener)
}

// receiver keeps what it has received.
type receiver struct {
	secret []byte

	mu   sync.Mutex
	ids  map[string]bool // of messages: the same may come twice
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
	body, err := io.ReadAll(http.MaxBytesReader(w, q.Body, 64<<10))
	if err == nil {
		err = verify(r.secret, q.Header, body, time.Now())
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var message struct {
		Type string
		Data struct{ Text string }
	}
	if err := json.Unmarshal(body, &message); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if id := q.Header.Get("Webhook-Id"); !r.ids[id] {
		if r.ids == nil {
			r.ids = map[string]bool{}
		}
		r.ids[id] = true
		r.seen = append(r.seen, fmt.Sprintf("%s: %s\n", message.Type, message.Data.Text))
	}
	w.WriteHeader(http.StatusNoContent)
}

// tolerance is how far the clocks may be apart. It limits how long a message that was
// recorded can be sent again.
const tolerance = 5 * time.Minute

// verify reports whether a message was signed with the secret at about this time.
func verify(secret []byte, h http.Header, body []byte, now time.Time) error {
	id, at := h.Get("Webhook-Id"), h.Get("Webhook-Timestamp")
	seconds, err := strconv.ParseInt(at, 10, 64)
	if err != nil || now.Sub(time.Unix(seconds, 0)).Abs() > tolerance {
		return errors.New("the timestamp is missing, or not of now")
	}
	mac := hmac.New(sha256.New, secret)
	_, _ = fmt.Fprintf(mac, "%s.%s.%s", id, at, body) // never fails
	want := []byte("v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	for signature := range strings.FieldsSeq(h.Get("Webhook-Signature")) {
		if hmac.Equal([]byte(signature), want) {
			return nil
		}
	}
	return errors.New("no signature by the secret")
}
