package e2e

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/testkit/certtest"
)

// proxyToken is the token in docs/connect/forward-auth.md.
const proxyToken = "token-of-your-own"

// shown returns the code block in docs/connect/forward-auth.md that starts with a line,
// indented to fit into an example.
func shown(t *testing.T, begin, indent string) string {
	t.Helper()
	_, rest, found := strings.Cut(readFile(t, "../../docs/connect/forward-auth.md"), "\n"+begin)
	if !found {
		t.Fatalf("the page has no block that begins with %q", begin)
	}
	block, _, _ := strings.Cut(begin+rest, "\n```")
	return indent + strings.ReplaceAll(block, "\n", "\n"+indent) + "\n"
}

// securely is a proxy set up to call from another machine, as on the page.
type securely struct {
	name, example string
	start         func(t *testing.T, p *forwardProxy, backend *httptest.Server, edit func(text, folder string) string)
	edit          func(t *testing.T, text string) string
	cert          string // the lines that send its certificate
	refused       [2]int // statuses without a certificate, and with a wrong token
}

func replaced(t *testing.T, text string, pairs ...string) string {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		if !strings.Contains(text, pairs[i]) {
			t.Fatalf("no %q in\n%s", pairs[i], text)
		}
		text = strings.ReplaceAll(text, pairs[i], pairs[i+1])
	}
	return text
}

func securedProxies() []securely {
	return []securely{
		{
			name: "nginx", example: "nginx-forward-auth",
			start: func(t *testing.T, p *forwardProxy, backend *httptest.Server, edit func(text, folder string) string) {
				t.Helper()
				p.startNginx(t, backend, func(text, folder string) string { return edit(nginxHome(text, folder), folder) })
			},
			edit: func(t *testing.T, text string) string {
				t.Helper()
				return replaced(t, text, "http://headgate/", "https://headgate/",
					"            internal;\n", "            internal;\n"+shown(t, "proxy_set_header X-Headgate-Token", "            "))
			},
			cert:    "            proxy_ssl_certificate             certs/proxy.pem;\n            proxy_ssl_certificate_key         certs/proxy.key;\n",
			refused: [2]int{500, 403},
		},
		{
			name: "Caddy", example: "caddy-forward-auth",
			start: func(t *testing.T, p *forwardProxy, backend *httptest.Server, edit func(text, folder string) string) {
				t.Helper()
				p.startProxy(t, backend, "caddy-forward-auth", "Caddyfile", edit, program(t, "caddy"), "run", "--config", "Caddyfile", "--adapter", "caddyfile")
			},
			edit: func(t *testing.T, text string) string {
				t.Helper()
				const uri = "			uri /v1/auth?domain=site\n"
				return replaced(t, text, "forward_auth ", "forward_auth https://", uri, uri+shown(t, "header_up X-Headgate-Token", "\t\t\t"))
			},
			cert:    "tls_client_auth certs/proxy.pem certs/proxy.key",
			refused: [2]int{502, 403},
		},
		{
			name: "Traefik", example: "traefik-forward-auth",
			start: func(t *testing.T, p *forwardProxy, backend *httptest.Server, edit func(text, folder string) string) {
				t.Helper()
				p.startTraefik(t, backend, edit)
			},
			edit: func(t *testing.T, text string) string {
				t.Helper()
				const size, service = "        maxResponseBodySize: 65536\n", "  services:\n"
				return replaced(t, text, "address: http:", "address: https:", "[headgate]", "[token, headgate, no-token]",
					size, size+shown(t, "tls: {ca: certs/ca.pem", "        "), service, shown(t, "token:\n", "    ")+service)
			},
			cert:    ", cert: certs/proxy.pem, key: certs/proxy.key",
			refused: [2]int{500, 403},
		},
	}
}

// certificates writes the certificates of the page to a folder.
func certificates(t *testing.T, a *certtest.Authority, folder string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(folder, "certs"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"ca.pem", "proxy.pem", "proxy.key"} {
		writeFile(t, filepath.Join(folder, "certs", name), readFile(t, a.Path(name)))
	}
}

// A proxy that has a certificate and the token may call. One that does not lets no
// request pass. The backend never sees the token.
func TestForwardAuthFromAnotherMachine(t *testing.T) {
	for _, s := range securedProxies() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			a := certtest.New(t)
			cert, key := a.Issue("server", 2, "server.internal")
			a.Issue("proxy", 3, "proxy.internal")
			open := func(t *testing.T, from, to string) *forwardProxy {
				t.Helper()
				p, backend := runForwardAuth(t, s.example, func(c *config.Config) {
					c.Door("api").TLS = config.TLS{Cert: cert, Key: key, ClientCA: a.CA()}
					c.Tokens = []config.Secret{proxyToken}
				})
				s.start(t, p, backend, func(text, folder string) string {
					certificates(t, a, folder)
					return replaced(t, s.edit(t, text), from, to)
				})
				return p
			}
			p := open(t, proxyToken, proxyToken)
			c := clientAt(t, "127.0.0.2")
			for i := range 6 {
				want := map[bool]int{true: http.StatusOK, false: http.StatusTooManyRequests}[i < 5]
				res, body := p.ask(t, c, "POST", "/login", "", "X-Headgate-Token: forged-forged-forged")
				if res.StatusCode != want || strings.Contains(res.Header.Get(toldBackend+"X-Headgate-Token"), proxyToken) {
					t.Errorf("request %d: %v %v %v", i, res.StatusCode, body, res.Header)
				}
			}
			for i, mistake := range [][2]string{{s.cert, ""}, {proxyToken, "not-the-right-token"}} {
				p := open(t, mistake[0], mistake[1])
				res, body := p.ask(t, c, "GET", "/", "")
				if res.StatusCode != s.refused[i] || p.passed.Load() != 0 {
					t.Errorf("with %q: %v %v, %d passed", mistake, res.StatusCode, body, p.passed.Load())
				}
			}
		})
	}
}
