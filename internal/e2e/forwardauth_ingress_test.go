package e2e

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/testkit/redistest"
)

// ingressNginx runs nginx with what ingress-nginx makes of a manifest in examples/.
func ingressNginx(t *testing.T, file string, without ...string) *forwardProxy {
	t.Helper()
	var ingress struct {
		Metadata struct{ Annotations map[string]string }
	}
	if err := yaml.Unmarshal([]byte(readFile(t, examples+"kubernetes/"+file)), &ingress); err != nil {
		t.Fatal(err)
	}
	annotation := func(name string) string { return ingress.Metadata.Annotations["nginx.ingress.kubernetes.io/"+name] }
	p, backend := runForwardAuth(t, "nginx-forward-auth", func(c *config.Config) { c.Door("api").Address = redistest.FreeAddress(t) })
	edit := func(text, folder string) string {
		text = nginxHome(text, folder)
		for _, name := range []string{"server-snippet", "auth-snippet", "configuration-snippet"} {
			text = replaced(t, text, "# "+name+"\n", "\n"+annotation(name))
		}
		for _, lines := range without {
			text = withoutLines(t, text, lines)
		}
		url := replaced(t, annotation("auth-url"), "headgate.limits.svc.cluster.local:8080", p.Addr(doorAPI))
		return replaced(t, text, "set $target auth-url;", "set $target "+url+";")
	}
	p.startProxy(t, backend, "../internal/e2e/testdata", "ingress-nginx.conf", edit, program(t, "nginx"),
		"-p", ".", "-c", "ingress-nginx.conf", "-e", "stderr", "-g", "daemon off; master_process off; pid nginx.pid; error_log stderr;")
	return p
}

// withoutLines removes the lines that end with these words.
func withoutLines(t *testing.T, text, end string) string {
	t.Helper()
	kept := ""
	for line := range strings.Lines(text) {
		if !strings.HasSuffix(line, end+"\n") {
			kept += line
		}
	}
	if kept == text {
		t.Fatalf("no line ends with %q", end)
	}
	return kept
}

// logins sends n logins of a client, and compares their statuses.
func (p *forwardProxy) logins(t *testing.T, from string, want ...int) (last reply) {
	t.Helper()

	client := clientAt(t, from)
	for i, status := range want {
		res, body := p.ask(t, client, "POST", "/login", "")
		if res.StatusCode != status {
			t.Errorf("login %d from %s: %d, want %d: %s", i+1, from, res.StatusCode, status, body)
		}
		last = res
	}
	return last
}

func TestIngressNginxFailsClosed(t *testing.T) {
	for name, p := range map[string]*forwardProxy{
		"closed":              ingressNginx(t, "ingress-nginx-closed.yml"),
		"open without a part": ingressNginx(t, "ingress-nginx-open.yml", "# open"),
	} {
		t.Run(name, func(t *testing.T) {
			refused := http.StatusForbidden
			if name != "closed" {
				refused = http.StatusTooManyRequests
			}
			p.logins(t, "127.0.0.2", 200, 200, 200, 200, 200, refused)
			p.logins(t, "127.0.0.3", 200)
			passed := p.passed.Load()
			if err := p.Stop(t.Context()); err != nil {
				t.Fatal(err)
			}
			p.logins(t, "127.0.0.4", 500, 500)
			if p.passed.Load() != passed || passed != 6 {
				t.Errorf("%d requests have passed, then %d", passed, p.passed.Load())
			}
		})
	}
}

func TestIngressNginxFailsOpen(t *testing.T) {
	p := ingressNginx(t, "ingress-nginx-open.yml")
	res := p.logins(t, "127.0.0.2", 200, 200, 200, 200, 200, 429)
	told(t, res, map[string]string{"Retry-After": "60", "RateLimit-Policy": `"login";q=5;w=60, "per-client";q=50;w=1`, "Cache-Control": "no-store"})
	if err := p.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.logins(t, "127.0.0.2", 200, 200)
	p.renew(t)
	p.start(t)
	p.logins(t, "127.0.0.2", 200, 200, 200, 200, 200, 429) // no state was kept
	p.forged(t, http.StatusTooManyRequests)
}

// forged sends logins over the limit with fields that would make them another request,
// or a question that nobody can answer. None passes.
func (p *forwardProxy) forged(t *testing.T, also ...int) {
	t.Helper()
	passed := p.passed.Load()
	client := clientAt(t, "127.0.0.2")
	for field, value := range map[string]string{
		"X-Original-URI": "/free", "X-Forwarded-Uri": "/free", "X-Original-URL": "http://site/free", "X-Forwarded-Host": "other",
		"X-Forwarded-Method": "GET", "X-Original-Method": "GET", "X-Forwarded-For": "198.51.100.7", "Forwarded": "for=198.51.100.7",
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+p.address+"/login", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(field, value)
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if !slices.Contains(also, res.StatusCode) {
			t.Errorf("%s: %d, want %v", field, res.StatusCode, also)
		}
	}
	if more := p.passed.Load() - passed; more > 0 {
		t.Errorf("%d forged requests have passed", more)
	}
}

// Without snippets the client's fields reach Headgate, which then answers 400, so that
// nginx answers 500.
func TestIngressNginxClosedIsNotFooled(t *testing.T) {
	p := ingressNginx(t, "ingress-nginx-closed.yml")
	p.logins(t, "127.0.0.2", 200, 200, 200, 200, 200, 403)
	p.forged(t, http.StatusForbidden, http.StatusInternalServerError)
}
