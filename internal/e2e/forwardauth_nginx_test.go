package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/testkit/redistest"
)

// nginxHome makes nginx write all its files to the folder.
func nginxHome(text, folder string) string {
	home := "http {\n    access_log off;\n"
	for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		home += "    " + kind + "_temp_path " + folder + "/" + kind + ";\n"
	}
	return strings.Replace(text, "http {\n", home, 1)
}

func (p *forwardProxy) startNginx(t *testing.T, backend *httptest.Server, edit func(text, folder string) string) {
	t.Helper()
	p.startProxy(t, backend, "nginx-forward-auth", "nginx.conf", edit, program(t, "nginx"),
		"-p", ".", "-c", "nginx.conf", "-e", "stderr", "-g", "daemon off; master_process off; pid nginx.pid; error_log stderr;")
}

func TestForwardAuthOfNginx(t *testing.T) {
	p, backend := runForwardAuth(t, "nginx-forward-auth")
	p.startNginx(t, backend, nginxHome)
	p.limits(t)
}

// A request that nginx itself forbids does not get a 429, and during an outage of
// Headgate none is allowed.
func TestForwardAuthOfNginxKeepsItsOwnStatuses(t *testing.T) {
	p, backend := runForwardAuth(t, "nginx-forward-auth")
	p.startNginx(t, backend, func(text, folder string) string {
		text = nginxHome(text, folder)
		return strings.Replace(text, "location @limited", "location /secret { deny all; error_page 403 = @limited; }\n        location @limited", 1)
	})
	c := clientAt(t, "127.0.0.2")
	if res, _ := p.ask(t, c, "GET", "/secret", ""); res.StatusCode != http.StatusForbidden {
		t.Errorf("forbidden by nginx: %v", res.StatusCode)
	}
	_ = p.Stop(t.Context())
	if res, _ := p.ask(t, c, "GET", "/", ""); res.StatusCode != http.StatusInternalServerError || p.passed.Load() != 0 {
		t.Errorf("without Headgate: %v, %d passed", res.StatusCode, p.passed.Load())
	}
}

// With the lines of the page, nginx allows requests while Headgate is down, and refuses
// them again when it is back.
func TestNginxFailsOpenIfTold(t *testing.T) {
	_, after, _ := strings.Cut(readFile(t, "../../docs/connect/forward-auth.md"), "### When Headgate is down")
	after, _, _ = strings.Cut(after, "\n### ")
	blocks := strings.Split(after, "```nginx\n")
	if len(blocks) != 3 {
		t.Fatal("the page has other blocks")
	}
	inside, _, _ := strings.Cut(blocks[1], "```")
	next, _, _ := strings.Cut(blocks[2], "```")
	p, backend := runForwardAuth(t, "nginx-forward-auth", func(c *config.Config) { c.Door("api").Address = redistest.FreeAddress(t) })
	p.startNginx(t, backend, func(text, folder string) string {
		const location = "        location = /_headgate {\n"
		return replaced(t, nginxHome(text, folder), location, next+location+inside)
	})
	ann := clientAt(t, "127.0.0.2")
	status := func(want int, when string) {
		t.Helper()
		if res, body := p.ask(t, ann, "POST", "/login", ""); res.StatusCode != want {
			t.Errorf("%s: %d, want %d: %s", when, res.StatusCode, want, body)
		}
	}
	for range 5 {
		status(http.StatusOK, "below the limit")
	}
	status(http.StatusTooManyRequests, "over the limit")
	if err := p.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 8 {
		status(http.StatusOK, "while Headgate is down")
	}
	p.renew(t)
	p.start(t)
	for range 5 {
		status(http.StatusOK, "below the limit again") // no state was kept
	}
	status(http.StatusTooManyRequests, "over the limit again")
}

// A shadow ban behind nginx, with the lines of the page: the client sees the same as
// others, and the backend gets nothing.
func TestForwardAuthOfNginxWithShadowBans(t *testing.T) {
	page := readFile(t, "../../docs/connect/forward-auth.md")
	_, after, _ := strings.Cut(page, "### Shadow bans")
	blocks := strings.Split(after, "```nginx\n")
	if len(blocks) < 3 {
		t.Fatal("the page does not say how")
	}
	line, _, _ := strings.Cut(blocks[1], "```")
	decoy, _, _ := strings.Cut(blocks[2], "```")
	p, backend := runForwardAuth(t, "nginx-forward-auth", func(c *config.Config) {
		writeFile(t, c.Rules[0], "domain: site\nlimits:\n"+
			"  - {name: secret, rate: 1/hour, algorithm: fixed_window, on_limit: shadow_ban}\n"+
			"  - {name: shown, rate: 9/hour, algorithm: fixed_window}\n")
	})
	p.startNginx(t, backend, func(text, folder string) string {
		const before, end = "            # Keep a 403 of nginx itself.\n", "        location @limited {"
		text = replaced(t, nginxHome(text, folder), before, before+line)
		return replaced(t, text, end, decoy+end)
	})
	c := clientAt(t, "127.0.0.2")
	for i := range 4 {
		res, body := p.ask(t, c, "GET", "/", "")
		if res.StatusCode != http.StatusOK || i > 0 && (body != `{"items":[]}` || res.Header.Get("Content-Type") != "application/json") {
			t.Errorf("request %d: %d %s %v", i, res.StatusCode, body, res.Header)
		}
		told(t, res, map[string]string{
			"X-RateLimit-Limit": "9", "X-RateLimit-Remaining": strconv.Itoa(8 - i), "RateLimit-Policy": `"shown";q=9;w=3600`,
		})
		if strings.Contains(fmt.Sprint(res.Header), "secret") || res.Header.Get("Retry-After") != "" || res.Header.Get("X-Headgate-Status") != "" {
			t.Errorf("request %d tells of the hidden rule: %v", i, res.Header)
		}
	}
	if n := p.passed.Load(); n != 1 {
		t.Errorf("the backend has seen %d requests, want 1", n)
	}
}

// One line, shown on the page, passes on the status of the rule. Without it the status
// is 429.
func TestForwardAuthOfNginxWithOtherStatuses(t *testing.T) {
	const line = "if ($limited = 410) { return 410; }"
	if !strings.Contains(readFile(t, "../../docs/connect/forward-auth.md"), "`"+line+"`") {
		t.Error("the page does not say so")
	}
	p, backend := runForwardAuth(t, "nginx-forward-auth", func(c *config.Config) {
		writeFile(t, c.Rules[0], "domain: site\nlimits:\n"+
			"  - {name: gone, match: {path: /gone}, rate: 0/minute, on_limit: {status: 410}}\n"+
			"  - {name: busy, match: {path: /busy}, rate: 0/minute, on_limit: {status: 503}}\n")
	})
	p.startNginx(t, backend, func(text, folder string) string {
		const known = "if ($limited = 503) { return 503; }"
		return replaced(t, nginxHome(text, folder), known, known+"\n            "+line)
	})
	c := clientAt(t, "127.0.0.2")
	for path, want := range map[string]int{"/gone": 410, "/busy": 503, "/other": 200} {
		res, _ := p.ask(t, c, "GET", path, "")
		if res.StatusCode != want || want != 200 && res.Header.Get("X-RateLimit-Limit") != "0" {
			t.Errorf("%s: %v %v, want %d", path, res.StatusCode, res.Header, want)
		}
	}
}

// The size of the body does not matter to forward-auth: nginx always sends the request.
func TestForwardAuthOfNginxWithUploads(t *testing.T) {
	p, backend := runForwardAuth(t, "nginx-forward-auth")
	p.startNginx(t, backend, func(text, folder string) string {
		return replaced(t, nginxHome(text, folder), "location / {", "location / {\n            client_max_body_size 10m;")
	})
	if res, body := p.ask(t, clientAt(t, "127.0.0.2"), "POST", "/up", strings.Repeat("x", 2<<20)); res.StatusCode != http.StatusOK || !strings.Contains(body, " 2097152 ") {
		t.Errorf("%d %q", res.StatusCode, body)
	}
}
