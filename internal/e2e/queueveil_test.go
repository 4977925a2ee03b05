package e2e

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/door/admin"
)

const veiledRules = `
domain: api
limits:
  - {name: by-token, match: {path: "/a/*"}, key: ["hash:query:token", "hash:header:X-Tok"], rate: 1/minute, on_limit: queue}
  - {name: by-place, match: {path: "/b/*"}, key: [path, "query:user", "header:Idempotency-Key", client_ip], rate: 1/minute, on_limit: queue}
`

const veiledPaths = veiledRules + `  - {name: by-path, match: {path: "/c/*"}, key: ["hash:path", "hash:host"], rate: 1/minute, on_limit: queue}
`

// In queued requests, operators see neither queries nor header fields that may be secret,
// nor the address if a rule hashes its key or operators see no keys.
func TestQueuedRequestsAreVeiled(t *testing.T) {
	t.Parallel()
	const secret = "SECRET"
	for _, row := range []struct {
		name        string
		keys        admin.Keys
		path        string
		fields      []string
		shown, gone []string
	}{
		{
			name: "hashed by a rule", keys: admin.PlainKeys, path: "/a/hq?token=SECRET&Token=SECRET&t%6Fken=SECRET&tok%5Ben=SECRET&page=7",
			fields: []string{"X-Tok", secret, "Authorization", secret, "X-Other", "seen"},
			gone:   []string{secret, "/a/hq", "page=7", "seen"},
		},
		{
			name: "plain", keys: admin.PlainKeys, path: "/b/hq?user=ann",
			fields: []string{"Idempotency-Key", "order-1", "X-Other", secret, "Accept", "text/plain"}, shown: []string{"ann", "/b/hq?(hidden)", "order-1", "text/plain", "X-Other"}, gone: []string{secret, "user="},
		},
		{
			name: "hashed for operators", keys: admin.HashedKeys, path: "/b/SECRET?user=SECRET&page=7",
			fields: []string{"Idempotency-Key", secret, "X-Other", "seen"},
			shown:  []string{"key_hash"}, gone: []string{secret, `"X-Forwarded-For":["1`},
		},
		{
			name: "a path that is hashed", keys: admin.PlainKeys, path: "/c/SECRET?page=7", gone: []string{secret, "127.0.0.1:"},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			text := veiledRules
			if strings.HasPrefix(row.path, "/c/") {
				text = veiledPaths
			}
			f := run(t, text, http.NotFoundHandler(), inFile(t), func(c *config.Config) { adminOf(c).Keys = row.keys })
			at := ""
			for range 2 {
				res, body := f.get(t, f.proxyURL(row.path), row.fields...)
				if at = res.Header.Get("Location"); at == "" && res.StatusCode == http.StatusAccepted {
					t.Fatal(body)
				}
			}
			id := at[strings.LastIndexByte(at, '/')+1:]
			_, list := f.get(t, f.adminURL("/v1/queue/items"))
			_, one := f.get(t, f.adminURL("/v1/queue/items/"+id))
			if !strings.Contains(list, id) {
				t.Fatalf("%s is not in %s", id, list)
			}
			for _, text := range row.shown {
				if !strings.Contains(one, text) {
					t.Errorf("%q is not in %s", text, one)
				}
			}
			for _, text := range row.gone {
				if strings.Contains(one, text) || strings.Contains(list, text) {
					t.Errorf("%q is shown by %s or %s", text, list, one)
				}
			}
		})
	}

	var reloaded atomic.Bool
	end := make(chan struct{})
	upstream := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		if reloaded.Load() {
			<-end // rules that have gone limit nothing, so what waits is sent
		}
	})
	f := run(t, veiledRules, upstream, inFile(t), func(c *config.Config) { adminOf(c).Keys = admin.PlainKeys })
	t.Cleanup(func() { close(end) })
	for range 2 {
		f.get(t, f.proxyURL("/a/hq?token=SECRET"), "X-Tok", secret)
		f.get(t, f.proxyURL("/b/hq?user=ann"), "X-Other", "seen")
	}
	reloaded.Store(true)
	writeFile(t, f.config.Rules[0], "domain: api\nlimits: [{name: other, key: [client_ip], rate: 1/minute}]\n")
	if err := f.Reload(); err != nil {
		t.Fatal(err)
	}
	if _, list := f.get(t, f.adminURL("/v1/queue/items")); strings.Contains(list, secret) || !strings.Contains(list, "/b/hq?(hidden)") {
		t.Errorf("without the rules: %s", list)
	}
}
