package doctor_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/app"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/counts/storing"
	"github.com/headgate/headgate/internal/door/admin"
	"github.com/headgate/headgate/internal/operate/doctor"
	"github.com/headgate/headgate/internal/testkit/redistest"
)

const goodRules = "domain: site\nlimits:\n  - {name: all, key: [client_ip], rate: 5/minute}\n"

// closed are settings that close all doors.
const closed = "listen: {api: 'off', grpc: 'off', resp: 'off', admin: 'off'}\n"

// examine writes a configuration and rules, and returns a line for each finding.
func examine(t *testing.T, settings, rules string) string {
	t.Helper()
	folder := t.TempDir()
	for name, text := range map[string]string{"headgate.yaml": settings + "rules: [rules.yaml]\n", "rules.yaml": rules} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tick := time.Time{}
	i := doctor.Installation{
		Sources: config.Sources{File: filepath.Join(folder, "headgate.yaml"), Doors: app.Sections(), Environment: func(string) (string, bool) { return "", false }},
		Now:     func() time.Time { tick = tick.Add(time.Millisecond); return tick },
	}
	return lines(i.Examine(t.Context()))
}

func lines(all []doctor.Finding) string {
	var b strings.Builder
	for _, f := range all {
		fmt.Fprintf(&b, "%s %s: %s\n", f.Level, f.Check, f.What)
	}
	return b.String()
}

// A sound installation has no failure; each fault is found.
func TestExamine(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // a test
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	for _, c := range []struct{ settings, rules, want string }{
		{closed, goodRules, "ok configuration: "},
		{closed, goodRules, "ok rules: 1 rule in 1 file\n"},
		{closed, goodRules, "warn store: counts are in memory\n"},
		{closed + "store: {memory: {snapshot: s}}\n", goodRules, "ok store: counts are in memory\n"},
		{closed + "trusted_proxies: [0.0.0.0/0]\n", goodRules, "0.0.0.0/0 trusts every client"},
		{closed, goodRules + "    mach: x\n", "fail rules: "},
		{closed, "domain: site\nlimits:\n  - {name: a, match: {path: {in: [/a], not_in: [/a]}}, rate: 5/minute}\n", " rules: "},
		{"listn: {}\n", goodRules, "fail configuration: "},
		{fmt.Sprintf("listen: {api: %q, grpc: 'off', resp: 'off', admin: 'off'}\n", taken.Addr()), goodRules, "fail doors: api: cannot listen on " + taken.Addr().String()},
		{"listen: {api: '0.0.0.0:0', grpc: 'off', resp: 'off', admin: 'off'}\n", goodRules, "warn doors: api: every client that can reach 0.0.0.0:0 can use it\n"},
		{closed + "proxy: {listen: '0.0.0.0:0', upstream: 'http://127.0.0.1:9'}\n", goodRules, "warn trusted proxies: none"},
		{closed + "store: {redis: {url: 'redis://127.0.0.1:1'}}\n", goodRules, "fail store: "},
	} {
		if got := examine(t, c.settings, c.rules); !strings.Contains(got, c.want) {
			t.Errorf("%s%s:\n%s\nwant %s", c.settings, c.rules, got, c.want)
		}
	}
	if got := examine(t, closed, goodRules); strings.Contains(got, "fail ") {
		t.Errorf("a sound installation: %s", got)
	}
}

// Redis is measured, and one that evicts keys is a failure.
func TestRedis(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"maxmemory-policy noeviction":             nil,
		"fail store: ":                            {"--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"},
		"ok store: Redis answers in 1ms (median)": nil,
		"warn store: ":                            {"--maxmemory-policy", "allkeys-lru"},
	} {
		server := redistest.Standalone(t, args...)
		if got := examine(t, closed+"store: 'redis://"+server.Addr+"'\n", goodRules); !strings.Contains(got, want) {
			t.Errorf("%v: %s", args, got)
		}
	}
}

// A Redis that is full is a failure, and one that is no cluster is named.
func TestFull(t *testing.T) {
	t.Parallel()
	server := redistest.Standalone(t, "--maxmemory", "100kb")
	if got := examine(t, closed+"store: 'redis://"+server.Addr+"'\n", goodRules); !strings.Contains(got, "fail store: "+server.Addr+": maxmemory-policy noeviction") {
		t.Error(got)
	}
	server = redistest.Standalone(t)
	if got := examine(t, closed+"store: 'redis+cluster://"+server.Addr+"'\n", goodRules); !strings.Contains(got, "warn store: "+server.Addr+" is not a cluster\n") {
		t.Error(got)
	}
}

// Two doors cannot share an address, and a socket needs a folder.
func TestAddresses(t *testing.T) {
	t.Parallel()
	free := redistest.FreeAddress(t)
	for settings, want := range map[string]string{
		"listen: {grpc: 'off', resp: 'off', api: '" + free + "', admin: '" + free + "'}\n":       "fail doors: admin: cannot listen on " + free,
		"listen: {api: 'off', resp: 'off', admin: 'off', grpc: 'unix:/no/such/folder/socket'}\n": "fail doors: grpc: cannot write in /no/such/folder: no such file or directory\n",
	} {
		if got := examine(t, settings, goodRules); !strings.Contains(got, want) {
			t.Errorf("%s:\n%s\nwant %s", settings, got, want)
		}
	}
}

// Files that cannot be written, and certificates that cannot be used, are found before the
// server finds them.
func TestFiles(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	key := filepath.Join(folder, "key.pem")
	rules := filepath.Join(folder, "rules")
	if err := errors.Join(os.WriteFile(key, []byte("x"), 0o600), os.Mkdir(rules, 0o700), os.WriteFile(filepath.Join(rules, "a.yaml"), []byte(goodRules), 0o600),
		os.Chmod(key, 0o644), os.Chmod(filepath.Join(rules, "a.yaml"), 0o646)); err != nil {
		t.Fatal(err)
	}
	const open = "listen: {api: '127.0.0.1:0', grpc: 'off', resp: 'off', admin: 'off'}\n"
	for settings, want := range map[string]string{
		closed + "store: {memory: {snapshot: /no/such/folder/counts}}\n":                                                        "fail files: store.memory.snapshot: cannot write in /no/such/folder: no such file or directory\n",
		closed + "queue: {path: " + key + "/q.db}\n":                                                                            "fail files: queue.path: cannot write in " + key + ": it is not a folder\n",
		open + "api: {tls: {cert: " + folder + "/none.pem, key: " + key + "}}\n":                                                "fail files: api.tls.cert: " + folder + "/none.pem: no such file or directory\n",
		open + "api: {tls: {cert: " + key + ", key: " + key + "}}\n":                                                            "warn files: api.tls.key: every user on this machine can use " + key,
		open + "proxy: {listen: '127.0.0.1:0', upstream: 'https://127.0.0.1:9', upstream_tls: {ca: " + folder + "/none.pem}}\n": "fail files: proxy.upstream_tls.ca: ",
	} {
		if got := examine(t, settings, goodRules); !strings.Contains(got, want) {
			t.Errorf("%s:\n%s\nwant %s", settings, got, want)
		}
	}
	i := doctor.Installation{
		Sources: config.Sources{NoFile: true, Doors: app.Sections(), Environment: func(string) (string, bool) { return "", false }, Flags: map[string]string{"rules": rules}},
		Now:     time.Now,
	}
	if got := lines(i.Examine(t.Context())); !strings.Contains(got, "warn files: every user on this machine can write "+filepath.Join(rules, "a.yaml")) {
		t.Error(got)
	}
}

// A folder in which this user cannot make files is found.
func TestFolderWithoutPermission(t *testing.T) {
	t.Parallel()
	if os.Getuid() == 0 {
		t.Skip("root may write everywhere")
	}
	folder := t.TempDir()
	if err := os.Chmod(folder, 0o500); err != nil {
		t.Fatal(err)
	}
	if got := examine(t, closed+"store: {memory: {snapshot: "+folder+"/counts}}\n", goodRules); !strings.Contains(got, "cannot write in "+folder+": permission denied") {
		t.Error(got)
	}
}

// Files that everyone can use are found.
func TestPermissions(t *testing.T) {
	t.Parallel()
	snapshot := filepath.Join(t.TempDir(), "counts")
	if err := os.WriteFile(snapshot, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	settings := closed + fmt.Sprintf("store: {memory: {snapshot: %q}}\n", snapshot)
	if got := examine(t, settings, goodRules); strings.Contains(got, " files: ") {
		t.Error(got)
	}
	if err := os.Chmod(snapshot, 0o644); err != nil {
		t.Fatal(err)
	}
	if got := examine(t, settings, goodRules); !strings.Contains(got, "warn files: store.memory.snapshot: every user") {
		t.Error(got)
	}
}

func TestRunning(t *testing.T) {
	t.Parallel()
	well := admin.Status{Ready: true, Rules: admin.RulesStatus{Rules: 2, Domains: 1}, Store: storing.Status{Kind: "memory", Healthy: true}}
	if got := lines(doctor.Running(&well)); strings.Count(got, "ok ") != 3 || strings.Count(got, "\n") != 3 {
		t.Errorf("a healthy server: %s", got)
	}
	for want, change := range map[string]func(*admin.Status){
		"fail server: it is not ready":            func(s *admin.Status) { s.Ready = false },
		"fail rules: the last reload failed: bad": func(s *admin.Status) { s.Rules.LastError = "bad" },
		"warn rules: there are no rules":          func(s *admin.Status) { s.Rules.Rules = 0 },
		"fail store: redis does not answer: gone": func(s *admin.Status) { s.Store = storing.Status{Kind: "redis", Error: "gone"} },
		"warn store: 7 keys were evicted":         func(s *admin.Status) { s.Store.Evicted = 7 },
	} {
		s := well
		change(&s)
		if got := lines(doctor.Running(&s)); !strings.Contains(got, want) {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// A Redis that takes a second for each answer is measured too, not called unstable.
func TestVerySlow(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "headgate.yaml")
	if err := os.WriteFile(file, []byte(closed+"store: 'redis://"+redistest.Standalone(t).Addr+"'\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	asked, now := 0, time.Time{}
	i := doctor.Installation{
		Sources: config.Sources{File: file, Doors: app.Sections(), Environment: func(string) (string, bool) { return "", false }},
		Now:     func() time.Time { asked++; now = now.Add(time.Second); return now },
	}
	if got := lines(i.Examine(t.Context())); !strings.Contains(got, "fail store: Redis answers in 1s (median)") {
		t.Error(got)
	}
	if asked > 20 {
		t.Errorf("the clock was read %d times", asked)
	}
}
