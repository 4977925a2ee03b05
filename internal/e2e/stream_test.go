package e2e

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/config"
)

// upgrade answers an upgrade and then echoes line by line.
var upgrade = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		http.Error(w, "no upgrade", http.StatusBadRequest)
		return
	}
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	_ = rw.Flush()
	for {
		line, err := rw.ReadString('\n')
		if err != nil {
			return
		}
		_, _ = rw.WriteString("echo " + line)
		_ = rw.Flush()
	}
})

func dialUpgrade(t *testing.T, f *fixture) (net.Conn, *bufio.Reader, reply) {
	t.Helper()
	var d net.Dialer
	conn, err := d.DialContext(t.Context(), "tcp", f.Addr(doorProxy))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	_, _ = io.WriteString(conn, "GET /login HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	in := bufio.NewReader(conn)
	res, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close() // does not include the data after an upgrade
	return conn, in, reply{res.StatusCode, res.Header}
}

func TestWebSocketUpgradePasses(t *testing.T) {
	f := run(t, loginRules, upgrade)
	conn, in, res := dialUpgrade(t, f)
	if res.StatusCode != http.StatusSwitchingProtocols || res.Header.Get("X-RateLimit-Remaining") != "4" {
		t.Fatalf("%d %v", res.StatusCode, res.Header)
	}
	for i := range 3 {
		_, _ = fmt.Fprintf(conn, "message %d\n", i)
		line, err := in.ReadString('\n')
		if want := fmt.Sprintf("echo message %d\n", i); err != nil || line != want {
			t.Fatalf("%q, %v; want %q", line, err, want)
		}
	}
	for range 4 {
		c, _, _ := dialUpgrade(t, f)
		_ = c.Close()
	}
	if _, _, res := dialUpgrade(t, f); res.StatusCode != http.StatusTooManyRequests {
		t.Errorf("the sixth upgrade got %d", res.StatusCode)
	}
	// The server no longer tracks upgraded connections, but stopping ends them too.
	if err := f.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	if _, err := in.ReadString('\n'); err == nil {
		t.Error("the connection outlives the process")
	}
}

func TestServerSentEventsPassAtOnce(t *testing.T) {
	seen := make(chan struct{})
	f := run(t, loginRules, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range 3 {
			_, _ = fmt.Fprintf(w, "data: %d\n\n", i)
			_ = http.NewResponseController(w).Flush()
			<-seen // no more until the client has this one
		}
	}))
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, f.proxyURL("/login"), nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := f.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	in := bufio.NewReader(res.Body)
	for i := range 3 {
		line, err := in.ReadString('\n')
		if want := fmt.Sprintf("data: %d\n", i); err != nil || line != want {
			t.Fatalf("%q, %v; want %q", line, err, want)
		}
		_, _ = in.ReadString('\n')
		seen <- struct{}{}
	}
}

// slowBody is a body whose second half is sent once the upstream has the first.
type slowBody struct {
	left int
	half int
	wait <-chan struct{}
}

func (b *slowBody) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, io.EOF
	}
	if b.left == b.half {
		<-b.wait
	}
	n := min(len(p), b.left)
	if b.left > b.half {
		n = min(n, b.left-b.half)
	}
	for i := range n {
		p[i] = byte(b.left - i)
	}
	b.left -= n
	return n, nil
}

func TestLargeBodiesStream(t *testing.T) {
	const half = 16 << 20
	arrived := make(chan struct{})
	f := run(t, loginRules, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := sha256.New()
		if _, err := io.CopyN(h, r.Body, half); err != nil {
			t.Error(err)
		}
		close(arrived) // a proxy that buffers would never get here
		n, err := io.Copy(h, r.Body)
		_, _ = fmt.Fprintf(w, "%x %d %v", h.Sum(nil), n+half, err)
	}))
	body := &slowBody{left: 2 * half, half: half, wait: arrived}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, f.proxyURL("/login"), body)
	if err != nil {
		t.Fatal(err)
	}
	res, err := f.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	got := read(t, res)
	h := sha256.New()
	open := make(chan struct{})
	close(open)
	_, _ = io.Copy(h, &slowBody{left: 2 * half, half: half, wait: open})
	if want := fmt.Sprintf("%x %d <nil>", h.Sum(nil), 2*half); got != want {
		t.Errorf("upstream got %s, want %s", got, want)
	}
}

// The client receives an upstream's early answer (a conversion, a chat) before it has
// sent the whole request.
func TestAnswerStreamsBeforeTheRequestEnds(t *testing.T) {
	f := run(t, loginRules, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		_ = control.EnableFullDuplex()
		in := bufio.NewReader(r.Body)
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			_, _ = io.WriteString(w, "echo "+line)
			_ = control.Flush()
		}
	}))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	body, out := io.Pipe()
	// A client waits for the end of its body even after it has given up.
	context.AfterFunc(ctx, func() { _ = out.CloseWithError(ctx.Err()) })
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, f.proxyURL("/login"), body)
	if err != nil {
		t.Fatal(err)
	}
	first := make(chan error, 1)
	go func() {
		_, err := io.WriteString(out, "0\n")
		first <- err
	}()
	res, err := f.client.Do(r)
	if err != nil {
		t.Fatalf("no answer before the end of the request: %v", err)
	}
	defer func() { _ = res.Body.Close() }()
	if err := <-first; err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(res.Body)
	for i := range 3 {
		line, err := in.ReadString('\n')
		if want := fmt.Sprintf("echo %d\n", i); err != nil || line != want {
			t.Fatalf("%q, %v; want %q", line, err, want)
		}
		if _, err := fmt.Fprintf(out, "%d\n", i+1); err != nil {
			t.Fatal(err)
		}
	}
	_ = out.Close()
	if rest, err := io.ReadAll(in); err != nil || string(rest) != "echo 3\n" {
		t.Errorf("the end is %q, %v", rest, err)
	}
}

// An upstream that answers without reading the body leaves nothing behind: the client
// gets the answer, and the next request works.
func TestUpstreamThatDoesNotRead(t *testing.T) {
	f := run(t, loginRules, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusRequestEntityTooLarge)
	}))
	for range 3 {
		open := make(chan struct{})
		close(open)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.proxyURL("/login"), &slowBody{left: 64 << 10, wait: open})
		if err != nil {
			t.Fatal(err)
		}
		res, err := f.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if _ = read(t, res); res.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("got %d", res.StatusCode)
		}
	}
}

func TestUpstreamDown(t *testing.T) {
	gone := httptest.NewServer(hello)
	gone.Close()
	f := run(t, loginRules, nil, func(c *config.Config) { proxyOf(c).Upstream = parseURL(t, gone.URL) })
	for range 3 {
		res, body := f.get(t, f.proxyURL("/login"))
		var problem struct {
			Status int
			Detail string
		}
		if err := json.Unmarshal([]byte(body), &problem); err != nil {
			t.Fatalf("%q: %v", body, err)
		}
		if res.StatusCode != http.StatusBadGateway || problem.Status != 502 || res.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%d %q", res.StatusCode, body)
		}
		if strings.Contains(body, "127.0.0.1") {
			t.Errorf("the client learns the upstream's address: %s", body)
		}
		if res.Header.Get("X-RateLimit-Limit") != "5" {
			t.Errorf("headers of the limit are missing: %v", res.Header)
		}
	}
	if n := strings.Count(f.journal.text.String(), "upstream request failed"); n != 1 {
		t.Errorf("logged %d times, want once per outage", n)
	}
}

func TestUpstreamBreaksOff(t *testing.T) {
	f := run(t, loginRules, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, "half")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}))
	for range 2 { // the second shows that nothing was left in a bad state
		res, err := f.client.Get(f.proxyURL("/login"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(res.Body); err == nil {
			t.Error("half an answer looks like a whole one")
		}
		_ = res.Body.Close()
	}
}

// echoForwarded answers with the information it received about the client.
var echoForwarded = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	for _, name := range []string{"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Port", "Forwarded", "X-Real-Ip"} {
		_, _ = fmt.Fprintf(w, "%s=%s|", name, strings.Join(r.Header.Values(name), "&"))
	}
	_, _ = fmt.Fprintf(w, "Host=%s", r.Host)
})

func TestForwardedHeaders(t *testing.T) {
	said := []string{
		"X-Forwarded-For", "203.0.113.9", "X-Forwarded-Host", "shop.example", "X-Forwarded-Proto", "https",
		"X-Forwarded-Port", "443", "Forwarded", "for=203.0.113.9", "X-Real-Ip", "203.0.113.9",
	}
	t.Run("a stranger's are dropped", func(t *testing.T) {
		f := run(t, loginRules, echoForwarded)
		_, body := f.get(t, f.proxyURL("/"), said...)
		addr := f.Addr(doorProxy)
		if want := "X-Forwarded-For=127.0.0.1|X-Forwarded-Host=" + addr + "|X-Forwarded-Proto=http|X-Forwarded-Port=|Forwarded=|X-Real-Ip=|Host=" + addr; body != want {
			t.Errorf("got  %s\nwant %s", body, want)
		}
	})
	t.Run("a trusted proxy's go on", func(t *testing.T) {
		f := run(t, loginRules, echoForwarded, trust("127.0.0.0/8"))
		_, body := f.get(t, f.proxyURL("/"), said...)
		addr := f.Addr(doorProxy)
		if want := "X-Forwarded-For=203.0.113.9, 127.0.0.1|X-Forwarded-Host=shop.example|X-Forwarded-Proto=https|X-Forwarded-Port=443|" +
			"Forwarded=for=203.0.113.9, for=127.0.0.1|X-Real-Ip=203.0.113.9|Host=" + addr; body != want {
			t.Errorf("got  %s\nwant %s", body, want)
		}
	})
}

func TestSpoofedAddressDoesNotEscapeTheLimit(t *testing.T) {
	f := run(t, loginRules, hello)
	var last reply
	for i := range 6 {
		last, _ = f.get(t, f.proxyURL("/login"), "X-Forwarded-For", fmt.Sprintf("198.51.100.%d", i))
	}
	if last.StatusCode != http.StatusTooManyRequests {
		t.Errorf("the sixth got %d: its invented address was believed", last.StatusCode)
	}
}

// Different spellings of a path that most upstreams treat as the same are the same.
func TestPathTricksDoNotEscapeTheLimit(t *testing.T) {
	f := run(t, loginRules, hello)
	for i, path := range []string{"/login", "//login", "/x/../login", "/./login", "/%6cogin", "/login/"} {
		res, _ := f.get(t, f.proxyURL(path))
		if want := map[bool]int{true: 200, false: 429}[i < 5]; res.StatusCode != want {
			t.Errorf("%s: %d, want %d", path, res.StatusCode, want)
		}
	}
}
