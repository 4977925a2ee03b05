package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/testkit/redistest"
)

// Each tutorial is followed as it is on the page: files are written, commands
// are run and their output is compared. headgate is what the page has built, from this
// source as the reader's clone. Only ports differ from the page, so that tests can run
// in parallel.
func TestTutorials(t *testing.T) {
	t.Parallel()
	home := &reader{home: t.TempDir()} // follows all pages, and builds once
	for _, row := range []struct {
		page     string
		programs []string
		ports    []string            // all ports that the page uses, and 6070 where rules change
		servers  map[string][]string // commands that keep running, and the ports they open
	}{
		{
			page: "protect-a-go-api.md", ports: []string{"9000"},
			servers: map[string][]string{"go run .": {"9000"}},
		},
		{
			page: "nginx.md", programs: []string{"nginx"}, ports: []string{"6070", "8000", "8080", "9000"},
			servers: map[string][]string{"headgate serve": {"6070", "8080"}, `nginx -p "$PWD" -c nginx.conf`: {"8000", "9000"}},
		},
		{
			page: "from-envoy-ratelimit.md", ports: []string{"6070", "8080"},
			servers: map[string][]string{"RUNTIME_ROOT=$PWD RUNTIME_SUBDIRECTORY=ratelimit HEADGATE_COMPAT=envoy headgate serve --envoy-env": {"6070", "8080"}},
		},
		{
			page: "share-limits-through-redis.md", programs: []string{"redis-server", "redis-cli"}, ports: []string{"6070", "6071", "6379", "8080", "8090"},
			servers: map[string][]string{
				"redis-server --port 6379 --save ''":                               {"6379"},
				"headgate serve --rules rules.yaml --store redis://127.0.0.1:6379": {"6070", "8080"},
				"headgate serve --rules rules.yaml --store redis://127.0.0.1:6379 --listen-api 127.0.0.1:8090 --listen-admin 127.0.0.1:6071 --listen-grpc off --listen-resp off": {"6071", "8090"},
			},
		},
		{
			page: "from-a-log-to-a-rule.md", ports: []string{"6070", "8080"},
			servers: map[string][]string{"headgate serve --rules rules.yaml": {"6070", "8080"}},
		},
	} {
		t.Run(row.page, func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile("../../docs/start/" + row.page)
			if err != nil {
				t.Fatal(err)
			}
			for _, program := range append(row.programs, "go", "curl", "bash") {
				needs(t, program)
			}
			newTutorial(t, home, row.ports, row.servers).follow(string(text))
		})
	}
}

// needs skips the test without a program, or fails it where all must be there.
func needs(t *testing.T, program string) {
	t.Helper()
	_, err := exec.LookPath(program)
	variable := "HEADGATE_REQUIRE_PROXIES"
	if strings.HasPrefix(program, "redis") {
		variable = "HEADGATE_REQUIRE_REDIS"
	}
	switch {
	case err == nil:
	case os.Getenv(variable) == "1":
		t.Fatal(err)
	default:
		t.Skip(err)
	}
}

// reader has a home, with what was built there.
type reader struct {
	home     string
	building sync.Mutex
}

// tutorial is a reader at work: a folder, and servers in other terminals.
type tutorial struct {
	t           *testing.T
	folder      string            // where the reader is
	here, there *strings.Replacer // the page's ports to those of the test, and back
	ports       map[string]string // of the page: of the test
	servers     map[string][]string
	pending     map[string]bool // servers that no command has started yet
	environment []string
	building    *sync.Mutex // of the reader, for all pages
}

func newTutorial(t *testing.T, who *reader, ports []string, servers map[string][]string) *tutorial {
	t.Helper()
	r := &tutorial{t: t, folder: t.TempDir(), ports: map[string]string{}, servers: servers, pending: map[string]bool{}, building: &who.building}
	var here, there []string
	for _, page := range ports {
		_, r.ports[page], _ = net.SplitHostPort(redistest.FreeAddress(t))
		here, there = append(here, page, r.ports[page]), append(there, r.ports[page], page)
	}
	for command := range servers {
		r.pending[command] = true
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	// The reader's clone is not next to the folder of the page, but this one.
	here, there = append(here, "-C headgate ", "-C "+root+" ", "=../headgate\n", "="+root+"\n"), append(there, root, "headgate")
	r.here, r.there = strings.NewReplacer(here...), strings.NewReplacer(there...)
	r.environment = append(os.Environ(), "PATH="+pathWithout(t, "headgate"), "GOPATH="+who.home, "GOBIN=",
		"no_proxy=*", "NO_PROXY=*", "GOWORK=off", "GOFLAGS=-mod=mod", "GOSUMDB=off")
	for _, name := range []string{"GOMODCACHE", "GOCACHE"} { // modules that this one needs are there
		out, err := exec.CommandContext(t.Context(), "go", "env", name).Output()
		if err != nil {
			t.Fatal(err)
		}
		r.environment = append(r.environment, name+"="+strings.TrimSpace(string(out)))
		if name == "GOMODCACHE" {
			r.environment = append(r.environment, "GOPROXY=file://"+strings.TrimSpace(string(out))+"/cache/download")
		}
	}
	for door, page := range map[string]string{"API": "8080", "GRPC": "", "RESP": "", "ADMIN": "6070"} {
		address := "127.0.0.1:" + r.ports[page]
		if r.ports[page] == "" {
			address = redistest.FreeAddress(t)
		}
		r.environment = append(r.environment, "HEADGATE_LISTEN_"+door+"="+address)
	}
	return r
}

// pathWithout returns the PATH without the folders that have a program: a reader starts
// without it.
func pathWithout(t *testing.T, program string) string {
	t.Helper()
	return strings.Join(slices.DeleteFunc(filepath.SplitList(os.Getenv("PATH")), func(folder string) bool {
		_, err := os.Stat(filepath.Join(folder, program))
		return err == nil
	}), string(filepath.ListSeparator))
}

// follow does what a page says, block by block. The line before a file names it.
func (r *tutorial) follow(page string) {
	r.t.Helper()
	blocks := regexp.MustCompile("(?ms)([^\n]*)\n\n```(\\w+)\n(.*?)^```$").FindAllStringSubmatch(page, -1)
	if len(blocks) != strings.Count(page, "\n```")/2 {
		r.t.Fatal("a block without a line before it")
	}
	names := regexp.MustCompile("`([^`]+\\.\\w+|go\\.mod)`[^`]*:$")
	for _, block := range blocks {
		if block[2] == "console" {
			r.play(block[3])
			continue
		}
		name := names.FindStringSubmatch(block[1])
		if name == nil {
			r.t.Fatalf("no file is named by %q", block[1])
		}
		r.save(name[1], block[3])
	}
	for command := range r.pending {
		r.t.Errorf("the page does not start %q", command)
	}
}

// save writes a file. Rules that a server has read are read again first.
func (r *tutorial) save(name, text string) {
	r.t.Helper()
	path, before := filepath.Join(r.folder, name), r.reloads()
	_, err := os.Stat(path)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		r.t.Fatal(err)
	}
	if name == "nginx.conf" && os.Geteuid() != 0 { // whose folders belong to root
		home := "http {\n"
		for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
			home += kind + "_temp_path " + r.folder + "/" + kind + ";\n"
		}
		text = strings.Replace(text, "http {\n", home, 1)
	}
	if err := os.WriteFile(path, []byte(r.here.Replace(text)), 0o600); err != nil {
		r.t.Fatal(err)
	}
	if err == nil {
		r.await("the new rules", func() bool {
			for page, now := range r.reloads() {
				if now == before[page] {
					return false
				}
			}
			return true
		})
	}
}

// reloads returns how often each running server has loaded its rules, by the port of
// its admin door on the page. A file that is still being written does not count.
func (r *tutorial) reloads() map[string]string {
	loaded := map[string]string{}
	for _, page := range []string{"6070", "6071"} {
		request, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, "http://127.0.0.1:"+r.ports[page]+"/metrics", http.NoBody)
		if err != nil {
			continue
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			continue
		}
		all, _ := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		loaded[page] = regexp.MustCompile(`(?m)^headgate_reloads_total\{result="success"\}.*$`).FindString(string(all))
	}
	return loaded
}

// play runs the commands of a console block and compares what they print. Where
// the page shows nothing, they have to succeed.
func (r *tutorial) play(block string) {
	r.t.Helper()
	for _, part := range strings.Split("\n"+block, "\n$ ")[1:] {
		command, want, _ := strings.Cut(part, "\n")
		for strings.HasSuffix(command, `\`) {
			more, rest, _ := strings.Cut(want, "\n")
			command, want = command+"\n"+more, rest
		}
		if ports, ok := r.servers[command]; ok {
			delete(r.pending, command)
			r.serve(command, ports)
			continue
		}
		got, err := r.run(command)
		if got = r.there.Replace(got); want == "" && err != nil || want != "" && steady(got) != steady(want) {
			r.t.Fatalf("$ %s\n%s\nbut the page says\n%s", command, got, want)
		}
	}
}

// run runs a command to its end and returns what it printed.
func (r *tutorial) run(line string) (string, error) {
	r.t.Helper()
	if strings.HasPrefix(line, "go install") {
		r.building.Lock() // one page builds, the others find it up to date
		defer r.building.Unlock()
	}
	where := filepath.Join(r.t.TempDir(), "where")
	command := exec.CommandContext(r.t.Context(), "bash", "-c", r.here.Replace(line+"\n")+`printf '%s\n' "$PWD" "$PATH" >`+where)
	command.Dir, command.Env = r.folder, r.environment
	out, err := command.CombinedOutput()
	if now, err := os.ReadFile(where); err == nil {
		folder, path, _ := strings.Cut(strings.TrimSpace(string(now)), "\n")
		r.folder, r.environment = folder, append(r.environment, "PATH="+path)
	}
	return string(out), err
}

// serve starts a server in another terminal and waits until it listens.
func (r *tutorial) serve(line string, ports []string) {
	r.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	command := exec.CommandContext(ctx, "bash", "-c", r.here.Replace(line))
	command.Dir, command.Env = r.folder, r.environment
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // go run and nginx have children
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGTERM) }
	command.WaitDelay = 10 * time.Second
	said := new(lockedText)
	command.Stdout, command.Stderr = said, said
	if err := command.Start(); err != nil {
		r.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = command.Wait()
		close(ended)
	}()
	r.t.Cleanup(func() {
		stop()
		<-ended
		if r.t.Failed() {
			r.t.Logf("%s said:\n%s", line, said)
		}
	})
	for _, port := range ports {
		r.await(line, func() bool {
			c, err := (&net.Dialer{}).DialContext(r.t.Context(), "tcp", "127.0.0.1:"+r.ports[port])
			if err != nil {
				return false
			}
			return c.Close() == nil
		})
	}
}

func (r *tutorial) await(what string, done func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(60 * time.Second); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			r.t.Fatalf("waited in vain for %s", what)
		}
	}
}

// steady removes what differs from run to run: times, and how long tests took.
func steady(text string) string {
	for _, change := range [][2]string{
		{`(?m)^(ok\s+\S+\s+)([\d.]+s|\(cached\))`, "${1}TIME"},
		{`(?m)^Date: .*$`, "Date: NOW"},
		{`(?m)^(Content-Length|(?:X-Ratelimit-)?(?:Retry-After|Reset)): [1-9]\d*`, "$1: SOME"},
		{`;t=[1-9]\d*`, ";t=SOON"},
		{`"reset_after_ms":[1-9]\d*`, `"reset_after_ms":SOON`},
		{`"retry_after_ms":[1-9]\d*`, `"retry_after_ms":SOON`},
		{`"durationUntilReset":"\d+s"`, `"durationUntilReset":"SOON"`},
		{`keys, [\d.]+ KiB`, "keys, SOME"},
		{`[ \t\r]+\n`, "\n"},
	} {
		text = regexp.MustCompile(change[0]).ReplaceAllString(text, change[1])
	}
	return strings.TrimSpace(text)
}

// lockedText is a buffer for the output of a process.
type lockedText struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
