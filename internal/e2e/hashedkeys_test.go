package e2e

import (
	"bufio"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/app"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/door/admin"
)

// fromIdentityPage writes the files of a section of docs/rules/identity.md, and returns their
// folder.
func fromIdentityPage(t *testing.T, section string, names ...string) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/rules/identity.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(page), "\n## "+section+"\n")
	blocks := strings.Split(text, "```yaml\n")
	if len(blocks) <= len(names) {
		t.Fatalf("%d blocks below %s", len(blocks)-1, section)
	}
	folder := t.TempDir()
	for i, name := range names {
		block, _, _ := strings.Cut(blocks[i+1], "```")
		writeFile(t, filepath.Join(folder, name), block)
	}
	return folder
}

// hg sends lines to the Redis protocol door, and returns all answers until the
// connection closes.
func (f *fixture) hg(t *testing.T, lines ...string) string {
	t.Helper()
	c, err := net.Dial("tcp", f.Addr(doorRESP))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := fmt.Fprintf(c, "%s\r\nQUIT\r\n", strings.Join(lines, "\r\n")); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if _, err := bufio.NewReader(c).WriteTo(&out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// The API keys of docs/rules/identity.md are counted together at all doors. They appear
// nowhere in plain text: not in the store, in logs or in what operators see. Operators
// can still enter them.
func TestHashedKeysAreNowhereInPlain(t *testing.T) {
	folder := fromIdentityPage(t, "API keys", "headgate.yaml", "rules.yaml")
	writeFile(t, filepath.Join(folder, "keys.secret"), "0123456789abcdef0123456789abcdef\n")
	loaded, err := config.Load(config.Sources{
		Doors: app.Sections(), File: filepath.Join(folder, "headgate.yaml"), Environment: func(string) (string, bool) { return "", false },
	})
	if err != nil {
		t.Fatal(err)
	}
	const key, digest = "sk-live-7hT2", "hash:4175aac965448e444b4a3dfc1c71317d"
	snapshot := filepath.Join(folder, "state")
	f := run(t, "domain: api\nlimits: []\n", http.NotFoundHandler(), trust("127.0.0.0/8"), func(c *config.Config) {
		c.Rules, c.RuleOptions = loaded.Rules, loaded.RuleOptions
		c.Door("admin").Address, c.Door("resp").Address, adminOf(c).Keys = "127.0.0.1:0", "127.0.0.1:0", admin.PlainKeys
		c.Store.Memory.Snapshot = snapshot
		c.Log.Level = slog.LevelDebug
	})
	admin := "http://" + f.Addr(doorAdmin)
	send := func(url, body string, header ...string) (int, string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i+1 < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		res, err := f.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, read(t, res)
	}
	check := fmt.Sprintf(`{"domain":"api","attributes":{"header:X-Api-Key":%q}}`, key)
	if status, body := send(f.apiURL("/v1/check"), check); status != http.StatusOK || !strings.Contains(body, `"remaining":2`) {
		t.Errorf("the API says %d %s", status, body)
	}
	if res, body := f.get(t, f.proxyURL("/"), "X-Api-Key", key); res.StatusCode != http.StatusNotFound || res.Header.Get("X-Ratelimit-Remaining") != "1" {
		t.Errorf("the proxy says %d %v %s", res.StatusCode, res.Header, body)
	}
	if res, body := f.get(t, f.apiURL("/v1/auth"), "X-Api-Key", key, "X-Original-URI", "/", "X-Original-Method", "GET"); res.StatusCode != http.StatusOK {
		t.Errorf("forward-auth says %d %s", res.StatusCode, body)
	}
	if got := f.hg(t, "HG.CHECK api header:x-api-key "+key, "HG.CHECK api header:x-api-key other"); !strings.Contains(got, "limited") || !strings.Contains(got, "ok") {
		t.Errorf("the Redis protocol says %q", got)
	}
	for i, row := range []struct{ action, named, has string }{
		{"peek", fmt.Sprintf(`"key":[%q]`, key), `"remaining":0`},
		{"peek", fmt.Sprintf(`"key":[%q]`, digest), `"remaining":0`},
		{"peek", fmt.Sprintf(`"key":{"header:X-Api-Key":%q}`, key), digest},
		{"ban", fmt.Sprintf(`"key":{"hash:header:X-Api-Key":%q},"for":"10m"`, key), digest},
		{"unban", fmt.Sprintf(`"key":[%q]`, digest), `"changed":true`},
		{"reset", fmt.Sprintf(`"key":[%q]`, key), `"remaining":3`},
		{"peek", `"key":{"hash:query:X-Api-Key":"x"}`, `does not count by`},
	} {
		_, body := send(admin+"/v1/keys/"+row.action, `{"rule":"per-key",`+row.named+"}")
		if !strings.Contains(body, row.has) || strings.Contains(body, key) {
			t.Errorf("%d, %s: %s, want %s", i, row.action, body, row.has)
		}
	}
	if status, body := send(admin+"/v1/keys/ban", fmt.Sprintf(`{"key":{"header:X-Api-Key":%q},"for":"10m"}`, key)); status != http.StatusOK || !strings.Contains(body, digest) {
		t.Errorf("a ban from all rules says %d %s", status, body)
	}
	if status, _ := send(f.apiURL("/v1/check"), check); status != 429 {
		t.Errorf("the banned key gets %d", status)
	}
	for _, path := range []string{"/v1/top", "/v1/overrides", "/v1/audit", "/metrics", "/v1/rules", "/v1/status"} {
		_, body := f.get(t, admin+path)
		if strings.Contains(body, key) || (path == "/v1/top" || path == "/v1/overrides") && !strings.Contains(body, digest) {
			t.Errorf("%s shows %s", path, body)
		}
	}
	if err := f.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(snapshot + "*")
	if err != nil || len(files) == 0 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, file := range files {
		if data, err := os.ReadFile(file); err != nil || strings.Contains(string(data), key) {
			t.Errorf("%s has the key, or %v", file, err)
		}
	}
	if log := f.journal.text.String(); strings.Contains(log, key) || strings.Contains(log, "without a secret") {
		t.Errorf("the log:\n%s", log)
	}
}

func TestKeysHashedWithoutASecretAreWarnedOf(t *testing.T) {
	f := run(t, "domain: api\nlimits:\n  - {name: per-key, key: \"hash:user\", rate: 1/minute}\n", nil)
	f.journal.await(t, "keys are hashed without a secret")
	if text := f.journal.text.String(); strings.Count(text, "without a secret") != 1 || !strings.Contains(text, "set keys.secret_file") {
		t.Errorf("the log:\n%s", text)
	}
}
