package webhook_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/observe/webhook"
)

// The example of the specification of Standard Webhooks.
func TestTheSignatureOfTheStandard(t *testing.T) {
	secrets, err := webhook.ParseSecrets("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n")
	if err != nil {
		t.Fatal(err)
	}
	got := webhook.Sign(secrets, "msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 999), []byte(`{"test": 2432232314}`))
	if want := "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestSecrets(t *testing.T) {
	const good = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	for _, row := range []struct{ text, want string }{
		{good, "1"},
		{"\n" + good + "\r\n" + strings.Repeat("x", 24) + "\n", "2"},
		{"", "no secret"},
		{"short", "secret 1 is 5 bytes long, want 24 to 64"},
		{good + "\nwhsec_!", "secret 2: what follows whsec_ is not base64"},
		{good + "\nwhsec_AAAA", "secret 2 is 3 bytes long, want 24 to 64"},
		{strings.Repeat(good+"\n", 5), "more than 4 secrets"},
	} {
		list, err := webhook.ParseSecrets(row.text)
		got := fmt.Sprint(len(list))
		if err != nil {
			got = err.Error()
		}
		if got != row.want {
			t.Errorf("%q: %s, want %s", row.text, got, row.want)
		}
		if text := fmt.Sprintf("%v %+v %#v %s", list, list, list, list); strings.Contains(text, "xxx") || strings.Contains(text, "49") {
			t.Errorf("a secret prints as %s", text)
		}
	}
}

// receiver answers with a status and keeps the last request.
type receiver struct {
	*httptest.Server
	status int
	retry  string // of Retry-After
	date   string // empty for now
	last   *http.Request
	body   string
}

func newReceiver(t *testing.T, status int) *receiver {
	t.Helper()
	r := &receiver{status: status, retry: "7"}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		text, _ := io.ReadAll(q.Body)
		r.last, r.body = q, string(text)
		w.Header().Set("Location", "/elsewhere")
		w.Header().Set("Retry-After", r.retry)
		if r.date != "" {
			w.Header().Set("Date", r.date)
		}
		w.WriteHeader(r.status)
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) client(t *testing.T, secrets string) *webhook.Client {
	t.Helper()
	u, err := url.Parse(r.URL + "/hook?key=hush")
	if err != nil {
		t.Fatal(err)
	}
	h := webhook.Hook{URL: u, Headers: map[string]string{"Authorization": "Bearer t"}}
	if secrets != "" {
		if h.Secrets, err = webhook.ParseSecrets(secrets); err != nil {
			t.Fatal(err)
		}
	}
	c := webhook.NewClient(h)
	t.Cleanup(c.Close)
	return c
}

func TestAMessage(t *testing.T) {
	r := newReceiver(t, http.StatusNoContent)
	at := time.Unix(1_800_000_000, 0)
	status, wait, err := r.client(t, strings.Repeat("a", 24)+"\n"+strings.Repeat("b", 24)).Send(t.Context(), "m1", at, []byte(`{"a":1}`))
	if status != 204 || wait != 0 || err != nil {
		t.Errorf("%d, %s, %v", status, wait, err)
	}
	h := r.last.Header
	if r.last.Method != http.MethodPost || r.last.RequestURI != "/hook?key=hush" || r.body != `{"a":1}` || h.Get("Content-Type") != "application/json" ||
		h.Get("Webhook-Id") != "m1" || h.Get("Webhook-Timestamp") != "1800000000" || h.Get("Authorization") != "Bearer t" {
		t.Errorf("%s %s %v %s", r.last.Method, r.last.RequestURI, h, r.body)
	}
	if got := strings.Fields(h.Get("Webhook-Signature")); len(got) != 2 || got[0] == got[1] || !strings.HasPrefix(got[1], "v1,") {
		t.Errorf("signatures %q", got)
	}
}

func TestFailures(t *testing.T) {
	for status, want := range map[int]string{
		404: "404 7s status 404", 503: "503 7s status 503",
		302: "302 7s status 302: redirects are not followed",
	} {
		r := newReceiver(t, status)
		got, wait, err := r.client(t, "").Send(t.Context(), "m1", time.Unix(0, 0), nil)
		if text := fmt.Sprintf("%d %s %v", got, wait, err); text != want {
			t.Errorf("%d: %s, want %s", status, text, want)
		}
		if r.last.URL.Path != "/hook" || r.last.Header.Get("Webhook-Signature") != "" {
			t.Errorf("%s, %v", r.last.URL, r.last.Header)
		}
	}
	r := newReceiver(t, 503)
	r.retry, r.date = "Thu, 01 Jan 1970 00:10:00 GMT", "Thu, 01 Jan 1970 00:09:00 GMT" // a minute from now, by the receiver's clock
	if _, wait, _ := r.client(t, "").Send(t.Context(), "m1", time.Unix(0, 0), nil); wait != time.Minute {
		t.Errorf("a date is a wait of %s, want 1m", wait)
	}
	r = newReceiver(t, 200)
	c := r.client(t, "")
	r.Close()
	if _, _, err := c.Send(t.Context(), "m1", time.Unix(0, 0), nil); err == nil || strings.Contains(err.Error(), "hush") {
		t.Errorf("%v; want an error without the URL", err)
	}
}

// A receiver whose answer does not end, or never comes, costs no more than what is read of
// it, and the time that the caller gives it.
func TestReceiversThatDoNotEnd(t *testing.T) {
	sent := make(chan int, 1)
	endless := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		piece, n := make([]byte, 64<<10), 0
		for {
			m, err := w.Write(piece)
			if n += m; err != nil || n > 1<<30 {
				sent <- n
				return
			}
		}
	}))
	defer endless.Close()
	to, err := url.Parse(endless.URL)
	if err != nil {
		t.Fatal(err)
	}
	c := webhook.NewClient(webhook.Hook{URL: to})
	if status, _, err := c.Send(t.Context(), "m1", time.Unix(0, 0), nil); status != 200 || err != nil {
		t.Errorf("%d, %v", status, err)
	}
	if n := <-sent; n > 64<<20 { // the buffers of the connection
		t.Errorf("%d bytes were sent", n)
	}
	hangs := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer hangs.Close()
	if to, err = url.Parse(hangs.URL + "/hush"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, _, err := webhook.NewClient(webhook.Hook{URL: to}).Send(ctx, "m1", time.Unix(0, 0), nil); err == nil || strings.Contains(err.Error(), "hush") {
		t.Errorf("%v", err)
	}
}

// A certificate that nobody vouches for is refused, with no word about the URL.
func TestASelfSignedReceiver(t *testing.T) {
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.StartTLS()
	defer server.Close()
	to, err := url.Parse(server.URL + "/hush")
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = webhook.NewClient(webhook.Hook{URL: to}).Send(t.Context(), "m1", time.Unix(0, 0), nil)
	if err == nil || !strings.Contains(err.Error(), "certificate") || strings.Contains(err.Error(), "hush") {
		t.Errorf("%v", err)
	}
}

func FuzzParseSecrets(f *testing.F) {
	f.Add("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	f.Add("whsec_\n\nx")
	f.Fuzz(func(t *testing.T, text string) {
		list, err := webhook.ParseSecrets(text)
		if (err == nil) != (len(list) > 0) {
			t.Errorf("%d secrets, %v", len(list), err)
		}
		for _, s := range list {
			if len(s) < 24 || len(s) > 64 {
				t.Errorf("a secret of %d bytes", len(s))
			}
		}
	})
}
