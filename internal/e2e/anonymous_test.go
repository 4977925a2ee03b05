package e2e

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	envoy "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/headgate/headgate/internal/config"
)

// Whatever a rule counts by, and at every door, requests without that value share one
// count, however else they differ. None goes uncounted.
func TestNobodyEscapesByBeingUnknown(t *testing.T) {
	sources := map[string]string{
		"header": "header:X-Api-Key", "cookie": "cookie:session", "query": "query:user", "jwt": "jwt:sub", "client": "client_ip",
		"entry": "tenant", "hash": "hash:header:X-Api-Key",
	}
	text := "domain: api\nlimits:\n"
	for name, attribute := range sources {
		text += fmt.Sprintf("  - {name: %s, match: {path: /%s/**}, key: [path, %q], rate: 2/minute}\n", name, name, attribute)
	}
	secret := filepath.Join(t.TempDir(), "secret")
	writeFile(t, secret, strings.Repeat("s", 32))
	f := run(t, text, http.NotFoundHandler(), trust("127.0.0.0/8"), func(c *config.Config) {
		c.Door("resp").Address, c.Door("grpc").Address = "127.0.0.1:0", "127.0.0.1:0"
		c.JWT = config.JWT{SecretFile: secret, Header: config.DefaultTokenHeader, Refresh: config.DefaultKeyRefresh}
	})
	mesh := envoy.NewRateLimitServiceClient(dialGRPC(t, f.Addr(doorGRPC)))
	// The parts of request i in HTTP that are not counted: other names, an invalid
	// token, an invalid address.
	noise := func(i int) []string {
		return []string{
			"X-Other", fmt.Sprint(i), "Cookie", fmt.Sprintf("other=%d", i), "Authorization", fmt.Sprintf("Bearer guess-%d", i),
			"X-Forwarded-For", []string{"unknown", "_hidden", "198.51.100.7, nobody"}[i],
		}
	}
	// Each sends request i of three, and reports whether it is allowed.
	doors := map[string]func(t *testing.T, path string, i int) bool{
		"proxy": func(t *testing.T, path string, i int) bool {
			res, _ := f.get(t, f.proxyURL(fmt.Sprintf("%s?other=%d", path, i)), noise(i)...)
			return res.StatusCode != http.StatusTooManyRequests
		},
		"auth": func(t *testing.T, path string, i int) bool {
			told := append(noise(i), "X-Original-URI", fmt.Sprintf("%s?other=%d", path, i), "X-Original-Method", "GET")
			res, _ := f.get(t, f.apiURL("/v1/auth"), told...)
			return res.StatusCode != http.StatusTooManyRequests
		},
		"api": func(t *testing.T, path string, i int) bool {
			body := fmt.Sprintf(`{"domain":"api","attributes":{"path":%q,"header:X-Other":"%d","cookie:other":"%d"}}`, path, i, i)
			res, err := f.client.Post(f.apiURL("/v1/check"), "application/json", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			read(t, res)
			return res.StatusCode != http.StatusTooManyRequests
		},
		"resp": func(t *testing.T, path string, i int) bool {
			return !strings.Contains(f.hg(t, fmt.Sprintf("HG.CHECK api path %s other %d", path, i)), "limited")
		},
		"rls": func(t *testing.T, path string, i int) bool {
			r, err := mesh.ShouldRateLimit(context.Background(), &envoy.RateLimitRequest{
				Domain: "api",
				Descriptors: []*common.RateLimitDescriptor{{Entries: []*common.RateLimitDescriptor_Entry{
					{Key: "path", Value: path}, {Key: "other", Value: fmt.Sprint(i)},
				}}},
			})
			if err != nil {
				t.Fatal(err)
			}
			return r.GetOverallCode() != envoy.RateLimitResponse_OVER_LIMIT
		},
	}
	for door, passes := range doors {
		for source := range sources {
			t.Run(door+"/"+source, func(t *testing.T) {
				for i, want := range []bool{true, true, false} {
					if got := passes(t, "/"+source+"/"+door, i); got != want {
						t.Errorf("request %d passes: %t, want %t", i, got, want)
					}
				}
			})
		}
	}
}
