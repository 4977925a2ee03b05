package e2e

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/config"
)

// TestNothingFollowsADoubtfulBodyAnywhere: at every door over HTTP, and whatever is asked, a
// connection ends after a request whose body servers may delimit differently: what
// follows is not read as a request (RFC 9112, 6.3). Others keep their connection.
func TestNothingFollowsADoubtfulBodyAnywhere(t *testing.T) {
	const rules = "domain: api\nlimits:\n  - {name: none, rate: 0/hour, match: {path: /refused}}\n"
	f := run(t, rules, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }), func(c *config.Config) { c.Door("admin").Address = "127.0.0.1:0" })
	const body = `{"path":"/refused"}`
	chunked := "Transfer-Encoding: chunked\r\n%\r\n" + "13\r\n" + body + "\r\n0\r\n\r\n"
	for door, paths := range map[string][]string{
		doorAPI:   {"/v1/check", "/v1/forward-auth", "/v1/limits", "/json", "/healthz", "/nothing"},
		doorAdmin: {"/v1/keys/ban", "/v1/rules", "/healthz", "/nothing"},
		doorProxy: {"/", "/refused", "/.headgate/limits"},
	} {
		for _, path := range paths {
			for request, want := range map[string]int{
				"POST %/1.1\r\n" + strings.Replace(chunked, "%", "Content-Length: 4\r\n", 1):                           1,
				"POST %/1.1\r\ncontent-length: 4\r\n" + strings.Replace(chunked, "%", "", 1):                           1,
				"POST %/1.0\r\nConnection: keep-alive\r\n" + strings.Replace(chunked, "%", "", 1):                      1,
				"POST %/1.0\r\nConnection: keep-alive\r\n" + strings.Replace(chunked, "%", "Content-Length: 4\r\n", 1): 1,
				"POST %/1.1\r\nContent-Length: 19\r\n\r\n" + body:                                                      2,
				"GET %/1.1\r\n\r\n": 2,
			} {
				request = strings.Replace(request, "%", path+" HTTP", 1)
				request = strings.Replace(request, "\r\n", "\r\nHost: localhost\r\nContent-Type: application/json\r\n", 1)
				conn, err := net.Dial("tcp", f.Addr(door))
				if err != nil {
					t.Fatal(err)
				}
				_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
				go func() {
					_, _ = io.WriteString(conn, request+"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
				}()
				all, _ := io.ReadAll(conn)
				_ = conn.Close()
				if got := strings.Count(string(all), "HTTP/1."); got != want {
					t.Errorf("%s: %d answers, want %d:\n%s\n\n%s", door, got, want, request, all)
				}
			}
		}
	}
}
