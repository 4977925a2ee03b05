package e2e

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

// A service may send limits of its own. Clients then get one value of each X-RateLimit
// field, Headgate's, and in RateLimit and RateLimit-Policy, which are lists, both.
func TestForwardAuthLeavesOneValueOfEachField(t *testing.T) {
	for proxy, start := range map[string]func(t *testing.T, p *forwardProxy, backend *httptest.Server){
		"nginx": func(t *testing.T, p *forwardProxy, backend *httptest.Server) {
			t.Helper()
			p.startNginx(t, backend, nginxHome)
		},
		"caddy": func(t *testing.T, p *forwardProxy, backend *httptest.Server) {
			t.Helper()
			p.startProxy(t, backend, "caddy-forward-auth", "Caddyfile", func(text, _ string) string { return text },
				program(t, "caddy"), "run", "--config", "Caddyfile", "--adapter", "caddyfile")
		},
	} {
		t.Run(proxy, func(t *testing.T) {
			p, _ := runForwardAuth(t, proxy+"-forward-auth")
			own := map[string]string{
				"X-RateLimit-Limit": "999", "X-RateLimit-Remaining": "998", "X-RateLimit-Reset": "997",
				"RateLimit-Policy": `"own";q=999;w=60`, "RateLimit": `"own";r=998;t=60`, "Retry-After": "7",
			}
			service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				for name, value := range own {
					w.Header().Set(name, value)
				}
				if strings.HasPrefix(r.URL.Path, "/refused") {
					w.WriteHeader(http.StatusTooManyRequests)
				}
			}))
			t.Cleanup(service.Close)
			start(t, p, service)
			c := clientAt(t, "127.0.0.2")
			for path, status := range map[string]int{"/": http.StatusOK, "/refused": http.StatusTooManyRequests} {
				res, _ := p.ask(t, c, "GET", path, "")
				if res.StatusCode != status {
					t.Errorf("%s: %d", path, res.StatusCode)
				}
				for name, theirs := range own {
					values := res.Header.Values(name)
					switch {
					case name == "Retry-After":
						if !slices.Equal(values, []string{theirs}) {
							t.Errorf("%s: %s %q, want the service's", path, name, values)
						}
					case strings.HasPrefix(name, "X-"):
						if len(values) != 1 || values[0] == theirs {
							t.Errorf("%s: %s %q, want one value, Headgate's", path, name, values)
						}
					default:
						list := strings.Join(values, ", ")
						if strings.Count(list, theirs) != 1 || strings.Count(list, `"per-client"`) != 1 {
							t.Errorf("%s: %s %q, want the service's and Headgate's", path, name, values)
						}
					}
				}
			}
		})
	}
}
