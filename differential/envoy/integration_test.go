//go:build unix

package envoy

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

var (
	integration = flag.Bool("integration", false, "run the original's integration tests against Headgate: three minutes")
	firstPort   = flag.Int("ports", 25500, "first of 80 `ports` on loopback for -integration")
)

const (
	password  = "password123" // of all servers in the original's tests
	memcached = "memcached"   // in the list: tests that are not run
)

// TestIntegration runs the original's integration tests in a copy of its module, where
// integration/runner starts Headgate. Those in integration/listed.txt must fail, all others
// must pass.
func TestIntegration(t *testing.T) {
	if !*integration {
		t.Skip("make envoy-integration runs it")
	}
	dir := original(t)
	headgate := filepath.Join(t.TempDir(), "headgate")
	build(t, "../..", headgate, "./cmd/headgate")
	movePorts(t, dir)
	startServers(t, dir)
	listed := readList(t)
	wrong, passed, failed := judge(runOriginal(t, dir, headgate, listed), listed)
	for _, w := range wrong {
		t.Error(w)
	}
	t.Logf("of %d tests that ran %d passed and %d failed; %d are listed", passed+failed, passed, failed, len(listed))
}

// original copies the original's module and puts our files into it.
func original(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("go", "mod", "download", "-json", "github.com/envoyproxy/ratelimit").Output() //nolint:noctx // the test's own time is the bound
	var module struct{ Dir string }
	if err != nil || json.Unmarshal(out, &module) != nil {
		t.Fatalf("the original cannot be fetched: %v: %s", err, out)
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(module.Dir)); err != nil {
		t.Fatal(err)
	}
	add := func(from, to string) {
		text, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, to), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	add("integration/runner/runner.go", "src/service_cmd/runner/runner.go")
	add("integration/common/common.go", "test/common/headgate.go")
	rewrite(t, filepath.Join(dir, "test/common/common.go"), func(text string) string {
		const compare = "proto.Equal(expected, actual)"
		if !strings.Contains(text, compare) {
			t.Fatal("the original compares answers in another way than before")
		}
		text = strings.ReplaceAll(text, compare, "proto.Equal(expected, Comparable(actual))")
		return strings.ReplaceAll(text, "1*time.Second", "30*time.Second") // a server may start slowly
	})
	return dir
}

func rewrite(t *testing.T, file string, by func(string) string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(file, []byte(by(string(text))), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// The fixed ports of the original's tests: of Headgate, the xDS server, and Redis servers, of
// which the tests start four. Those for counts of a second are not used.
const fixedPorts = "8082 8083 8084 18000 6380 6383 6384 6385 16381 16361 6386 6387 6388 6392 26394 26395 26396"

// moved returns the port that is used in place of a fixed one.
func moved(fixed string) string {
	return strconv.Itoa(*firstPort + slices.Index(strings.Fields(fixedPorts), fixed))
}

// movePorts replaces the fixed ports, which others may use, by those of -ports.
func movePorts(t *testing.T, dir string) {
	t.Helper()
	for _, fixed := range strings.Fields(fixedPorts) {
		var lc net.ListenConfig
		l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:"+moved(fixed))
		if err != nil {
			t.Fatalf("-ports: %v", err)
		}
		_ = l.Close()
	}
	number := regexp.MustCompile(`\b(` + strings.ReplaceAll(fixedPorts, " ", "|") + `)\b`)
	for _, pattern := range []string{"*.go", "conf/*"} {
		files, _ := filepath.Glob(filepath.Join(dir, "test/integration", pattern))
		for _, file := range files {
			rewrite(t, file, func(text string) string { return number.ReplaceAllStringFunc(text, moved) })
		}
	}
}

// startServers starts what the original's Makefile starts: Redis with TLS, which it has by
// itself now, a cluster, and sentinels.
func startServers(t *testing.T, dir string) {
	t.Helper()
	out, err := exec.Command("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost", //nolint:noctx,gosec // ours
		"-addext", "subjectAltName=DNS:localhost", "-keyout", filepath.Join(dir, "key.pem"), "-out", filepath.Join(dir, "cert.pem")).CombinedOutput()
	if err != nil {
		t.Fatalf("openssl: %v: %s", err, out)
	}
	tls := []string{
		"--port", "0", "--tls-cert-file", filepath.Join(dir, "cert.pem"), "--tls-key-file", filepath.Join(dir, "key.pem"),
		"--tls-ca-cert-file", filepath.Join(dir, "cert.pem"),
	}
	startServer(t, "16381", append(tls, "--tls-port", moved("16381"), "--tls-auth-clients", "no")...)
	startServer(t, "16361", append(tls, "--tls-port", moved("16361"), "--tls-auth-clients", "yes")...)
	startCluster(t, "6386", "6387", "6388")
	startServer(t, "6392", "--port", moved("6392"))
	for _, fixed := range []string{"26394", "26395", "26396"} {
		home := t.TempDir() // it writes to its file
		if err := os.CopyFS(home, os.DirFS(filepath.Join(dir, "test/integration/conf"))); err != nil {
			t.Fatal(err)
		}
		start(t, os.Environ(), "redis-server", filepath.Join(home, "sentinel.conf"), "--sentinel", "--port", moved(fixed), "--dir", home)
		until(t, "sentinel", func() bool {
			return strings.Contains(redisCLI(fixed, "sentinel", "get-master-addr-by-name", "mymaster"), moved("6392"))
		})
	}
}

func startServer(t *testing.T, fixed string, args ...string) {
	t.Helper()
	start(t, os.Environ(), "redis-server", append([]string{"--requirepass", password, "--bind", "127.0.0.1", "--save", "", "--dir", t.TempDir()}, args...)...)
	until(t, "redis", func() bool {
		c, err := net.DialTimeout("tcp", "127.0.0.1:"+moved(fixed), time.Second) //nolint:noctx // it has its time
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
}

// startCluster joins three servers, with their second ports 50 above the first.
func startCluster(t *testing.T, nodes ...string) {
	t.Helper()
	bus := func(fixed string) string {
		n, _ := strconv.Atoi(moved(fixed))
		return strconv.Itoa(n + 50)
	}
	slots := [][2]string{{"0", "5460"}, {"5461", "10922"}, {"10923", "16383"}}
	for i, fixed := range nodes {
		startServer(t, fixed, "--port", moved(fixed), "--cluster-enabled", "yes", "--cluster-port", bus(fixed))
		redisCLI(fixed, "cluster", "addslotsrange", slots[i][0], slots[i][1])
		if i > 0 {
			redisCLI(fixed, "cluster", "meet", "127.0.0.1", moved(nodes[0]), bus(nodes[0]))
		}
	}
	for _, fixed := range nodes {
		until(t, "cluster", func() bool {
			said := redisCLI(fixed, "cluster", "info")
			return strings.Contains(said, "cluster_state:ok") && strings.Contains(said, fmt.Sprintf("cluster_known_nodes:%d", len(nodes)))
		})
	}
}

func redisCLI(fixed string, args ...string) string {
	c := exec.Command("redis-cli", append([]string{"-p", moved(fixed)}, args...)...) //nolint:noctx,gosec // ours
	c.Env = append(os.Environ(), "REDISCLI_AUTH="+password)
	out, _ := c.CombinedOutput() // until repeats what may fail
	return string(out)
}

// readList returns why each listed test does not hold.
func readList(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("integration/listed.txt")
	if err != nil {
		t.Fatal(err)
	}
	listed := make(map[string]string)
	for line := range strings.Lines(string(text)) {
		why, test, found := strings.Cut(strings.TrimSpace(line), " ")
		if found && why != "#" {
			listed[test] = why
		}
	}
	return listed
}

// outcome is that of one test.
type outcome struct {
	action string
	output strings.Builder
}

// runOriginal runs the original's tests, without those of memcached.
func runOriginal(t *testing.T, dir, headgate string, listed map[string]string) map[string]*outcome {
	t.Helper()
	var skip []string
	for test, why := range listed {
		if why == memcached {
			skip = append(skip, test)
		}
	}
	ctx, stop := signal.NotifyContext(t.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	c := exec.CommandContext(ctx, "go", "test", "-json", "-count=1", "-tags", "integration", "-timeout", "30m", //nolint:gosec // ours
		"-skip", "^("+strings.Join(skip, "|")+")$", "./test/integration")
	c.Dir = dir
	c.Env = append(os.Environ(), "HEADGATE="+headgate, "PROJECT_DIR="+dir, "TMPDIR="+t.TempDir())
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a test that panics leaves its servers behind
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr, c.WaitDelay = &out, &errs, 10*time.Second
	err := c.Run() // it fails, for the listed tests do
	if c.Process != nil {
		_ = c.Cancel()
	}
	outcomes := make(map[string]*outcome)
	for lines := json.NewDecoder(&out); lines.More(); {
		var event struct{ Action, Test, Output string }
		if err := lines.Decode(&event); err != nil {
			t.Fatalf("go test -json: %v", err)
		}
		o := outcomes[event.Test]
		if o == nil {
			o = new(outcome)
			outcomes[event.Test] = o
		}
		o.output.WriteString(event.Output)
		if event.Action == "pass" || event.Action == "fail" || event.Action == "skip" {
			o.action = event.Action
		}
	}
	if len(outcomes) < 2 {
		t.Fatalf("go test: %v\n%s", err, errs.String())
	}
	delete(outcomes, "") // the package
	return outcomes
}

// judge returns what is not as the list says, and counts the tests that ran.
func judge(outcomes map[string]*outcome, listed map[string]string) (wrong []string, passed, failed int) {
	parents := make(map[string]bool)
	explained := make(map[string]bool) // parents fail with a test below them
	for test, o := range outcomes {
		if parent, _, below := strings.Cut(test, "/"); below {
			parents[parent] = true
			explained[parent] = explained[parent] || o.action == "fail"
		}
	}
	for _, test := range slices.Sorted(maps.Keys(outcomes)) {
		o, why := outcomes[test], listed[test]
		differ := func(what string) { wrong = append(wrong, test+": "+what+"\n"+o.output.String()) }
		switch {
		case strings.Contains(o.output.String(), "panic: "):
			differ("panics, so that others did not run")
		case parents[test] && o.action != "pass" && !explained[test], !parents[test] && why == "" && o.action != "pass":
			differ(o.action)
		case why != "" && o.action != "fail":
			differ(o.action + ", so take it off integration/listed.txt")
		case why == "local-cache" && strings.Contains(o.output.String(), "messages are not equal"):
			differ("its answers must be right")
		}
		if !parents[test] && o.action == "pass" {
			passed++
		} else if !parents[test] {
			failed++
		}
	}
	for _, test := range slices.Sorted(maps.Keys(listed)) {
		if outcomes[test] == nil && listed[test] != memcached {
			wrong = append(wrong, test+": is in integration/listed.txt and did not run")
		}
	}
	return wrong, passed, failed
}

// TestJudge: a test that fails must be in the list, one that passes must not.
func TestJudge(t *testing.T) {
	listed := map[string]string{"A/cache": "local-cache", "A/stop": "stop-increment", "B": memcached}
	for name, c := range map[string]struct{ ran, wrong string }{
		"as listed":              {"A fail, A/one pass, A/cache fail, A/stop fail, C pass", ""},
		"another fails":          {"A fail, A/one fail, A/cache fail, A/stop fail, C fail", "A/one C"},
		"a parent fails":         {"A fail, A/cache fail, A/stop fail, C fail, C/one pass", "C"},
		"a listed test passes":   {"A fail, A/cache pass, A/stop fail", "A/cache"},
		"one did not run":        {"A fail, A/stop fail", "A/cache"},
		"an answer is not right": {"A fail, A/cache fail messages are not equal, A/stop fail messages are not equal", "A/cache"},
		"one panics":             {"A fail, A/cache fail, A/stop fail panic: out of range", "A/stop"},
		"one does not end":       {"A fail, A/cache fail, A/stop fail, C ", "C"},
	} {
		outcomes := make(map[string]*outcome)
		for ran := range strings.SplitSeq(c.ran, ", ") {
			words := strings.SplitN(ran+" ", " ", 3)
			o := &outcome{action: words[1]}
			o.output.WriteString(words[2])
			outcomes[words[0]] = o
		}
		wrong, _, _ := judge(outcomes, listed)
		for i := range wrong {
			wrong[i], _, _ = strings.Cut(wrong[i], ":")
		}
		if got := strings.Join(wrong, " "); got != c.wrong {
			t.Errorf("%s: %q, want %q", name, got, c.wrong)
		}
	}
}
