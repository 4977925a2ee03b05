package e2e

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/app"
	"github.com/headgate/headgate/internal/config"
)

// example is a running example from examples/: its configuration, the backend of the
// examples, and the code blocks of its README.
type example struct {
	*fixture
	shell, backend string
	blocks         []string
}

// runExample runs an example as its README says, on other ports and with a clock that
// the test moves.
func runExample(t *testing.T, name, backend string) *example {
	t.Helper()
	program(t, "curl")
	e := &example{shell: program(t, "sh"), backend: startBackend(t, backend)}
	page := readFile(t, examples+name+"/README.md")
	for _, block := range regexp.MustCompile("(?ms)^```console\n(.*?)^```$").FindAllStringSubmatch(page, -1) {
		e.blocks = append(e.blocks, block[1])
	}
	none := func(string) (string, bool) { return "", false }
	c, err := config.Load(config.Sources{Doors: app.Sections(), File: examples + name + "/headgate.yaml", Environment: none, Flags: map[string]string{
		"listen.api": "127.0.0.1:0", "listen.admin": "127.0.0.1:0", "proxy.listen": "127.0.0.1:0", "proxy.upstream": "http://" + e.backend,
	}})
	if err != nil {
		t.Fatal(err)
	}
	if c.Queue.Path != "" {
		c.Queue.Path = filepath.Join(t.TempDir(), "queue.db")
	}
	e.fixture = newFixture(t, "domain: api\nlimits: []\n", nil)
	e.config = c
	e.renew(t)
	e.start(t)
	return e
}

// startBackend starts the backend of the examples.
func startBackend(t *testing.T, file string) (address string) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	command := exec.CommandContext(ctx, file, "-listen", "127.0.0.1:0")
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		_ = command.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimPrefix(strings.TrimSpace(line), "listening on http://")
}

// endOfOutput separates the output of the commands of a block.
const endOfOutput = "=== the end of a command ==="

// play runs the commands of blocks in one shell and compares their output. An ellipsis
// stands for any text, and the header of an answer may have more lines than shown.
func (e *example) play(t *testing.T, blocks ...string) {
	t.Helper()
	var script strings.Builder
	var commands, want []string
	for line := range strings.Lines(strings.Join(blocks, "")) {
		if command, ok := strings.CutPrefix(line, "$ "); ok {
			commands, want = append(commands, strings.TrimSpace(command)), append(want, "")
			fmt.Fprintf(&script, "%s\nwait\nprintf '\\n%s\\n'\n", strings.TrimSpace(command), endOfOutput)
			continue
		}
		want[len(want)-1] += line
	}
	addresses := []string{"127.0.0.1:8000", e.Addr(doorProxy), "127.0.0.1:8080", e.Addr(doorAPI), "127.0.0.1:9000", e.backend, "127.0.0.1:6070", e.Addr(doorAdmin)}
	command := exec.CommandContext(t.Context(), e.shell, "-c", strings.NewReplacer(addresses...).Replace(script.String()))
	command.Env = append(os.Environ(), "no_proxy=*", "NO_PROXY=*")
	text, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	got := strings.Split(string(text), endOfOutput+"\n")
	for i, command := range commands {
		if !shows(want[i], got[i], strings.Contains(command, "curl -s -i")) {
			t.Errorf("$ %s\n%s\nthe page says\n%s", command, strings.TrimSpace(got[i]), want[i])
		}
	}
}

// shows reports whether got is what a page shows, or contains its lines in order.
func shows(want, got string, mayHaveMore bool) bool {
	between, parts := "\n", []string{}
	if mayHaveMore {
		between = "\n(?:.*\n)*?"
	}
	for line := range strings.Lines(want) {
		parts = append(parts, `[ ]*`+strings.ReplaceAll(regexp.QuoteMeta(strings.TrimSpace(line)), "…", ".*"))
	}
	got = strings.TrimSpace(strings.ReplaceAll(got, "\r\n", "\n"))
	return regexp.MustCompile(`^(?:` + strings.Join(parts, between) + `)$`).MatchString(got)
}

// TestExamples: the examples produce the output that their READMEs show.
func TestExamples(t *testing.T) {
	backend := filepath.Join(t.TempDir(), "backend")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", backend, examples+"backend").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for name, blocks := range map[string]int{
		"queue": 2, "outcomes": 5, "concurrency": 3, "reserve": 3, "tiers": 3, "failed-logins": 3, "offenders": 2, "customers": 3, "self-service": 3, "lists": 3, "distinct": 1,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := runExample(t, name, backend)
			if len(e.blocks) != blocks {
				t.Fatalf("%d blocks, want %d", len(e.blocks), blocks)
			}
			if e.config.Queue.Path == "" {
				e.play(t, e.blocks...)
				return
			}
			// The queue only sends when the clock moves, as the last block shows.
			last := len(e.blocks) - 1
			e.play(t, e.blocks[:last]...)
			e.await(t, func() bool {
				e.clock.advance(time.Second)
				_, seen := e.get(t, "http://"+e.backend+"/seen")
				return strings.Contains(seen, "kettle")
			})
			e.play(t, e.blocks[last])
		})
	}
}

// TestShownTextIsCompared: comparing the output of examples can fail.
func TestShownTextIsCompared(t *testing.T) {
	answer := "HTTP/1.1 200 OK\r\nA: 1\r\nB: 2\r\n\r\nbody\r\n\n"
	for _, row := range []struct {
		want, got         string
		mayHaveMore, same bool
	}{
		{"200\n429\n", "200\n429\n\n", false, true},
		{"200\n", "200\n429\n", false, false},
		{"", "", false, true},
		{"", "something", false, false},
		{"{\"id\":\"…\"}\n", `{"id":"x"}`, false, true},
		{"HTTP/1.1 200 OK\nB: 2\nbody\n", answer, true, true},
		{"HTTP/1.1 200 OK\nB: 2\nA: 1\nbody\n", answer, true, false},
		{"HTTP/1.1 200 OK\nB: 3\nbody\n", answer, true, false},
	} {
		if got := shows(row.want, row.got, row.mayHaveMore); got != row.same {
			t.Errorf("%q of %q: %v", row.want, row.got, got)
		}
	}
}
