package proxy_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/door/proxy"
	"github.com/headgate/headgate/internal/queue"
	"github.com/headgate/headgate/store/memory"
)

// The status of queued requests has the gate of the page of limits, and deny lists apply.
func TestAskingForAStatusIsLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rulesText = "domain: api\ndeny: {client_ip: [203.0.113.0/24]}\nlimits: [{name: all, rate: 1/day, on_limit: queue}]\n"
		p := newProxy(t, rulesText, memory.New(memory.WithClock(time.Now)), ok, func(o *proxy.Options) { o.StatusPath = "/later/" })
		p.SetQueue(queue.New(queue.Options{Store: fullDisk{}, Clock: time.Now}))
		from := func(address string) *httptest.ResponseRecorder {
			r := request(t.Context(), "GET", "/later/0123456789ABCDEFGHIJKLMN")
			r.RemoteAddr = address + ":1234"
			w := httptest.NewRecorder()
			p.ServeHTTP(w, r)
			return w
		}
		counts := map[int]int{}
		for range 100 {
			counts[from("192.0.2.9").Code]++
		}
		w := from("192.0.2.9")
		if counts[http.StatusNotFound] != 60 || w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "1" {
			t.Errorf("%v, then %d %v", counts, w.Code, w.Header())
		}
		time.Sleep(time.Second)
		for i, want := range []int{404, 429} {
			if got := from("192.0.2.9").Code; got != want {
				t.Errorf("%d: %d, want %d", i, got, want)
			}
		}
		if got := from("198.51.100.1").Code; got != 404 {
			t.Errorf("another client: %d", got)
		}
		if got := from("203.0.113.1").Code; got != http.StatusForbidden {
			t.Errorf("on the deny list: %d", got)
		}
	})
}

// TestSwitchingProtocolsUnasked: the body of a 101 is the connection, which lasts as long as the
// upstream likes. A queued request has asked for none: the attempt has failed.
func TestSwitchingProtocolsUnasked(t *testing.T) {
	hold, letGo := io.Pipe()
	defer func() { _ = letGo.Close() }()
	p := newProxy(t, "domain: api\nlimits: []\n", memory.New(), func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusSwitchingProtocols, Header: http.Header{}, Body: hold, Request: r}, nil
	})
	a, err := p.Deliver(t.Context(), &queue.Entry{ID: "1", Method: http.MethodPost, URI: "/x", Host: "api.example"}, 100)
	if err == nil || a.Status != 0 {
		t.Errorf("%+v, %v; want an error", a, err)
	}
	if _, err := hold.Read(nil); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("the connection is not closed: %v", err)
	}
}
