package main

import (
	"bytes"
	"cmp"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/internal/testkit/redistest"
)

// terminal is a pseudo-terminal that keeps its output.
type terminal struct {
	kind string // its TERM, or empty
	t    *testing.T
	ours *os.File
	tty  *os.File

	mu      sync.Mutex
	written bytes.Buffer
	more    chan struct{}
}

func newTerminal(t *testing.T, columns, rows uint16) *terminal {
	t.Helper()
	ours, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudo-terminals: %v", err)
	}
	fd := int(ours.Fd())
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Skipf("no pseudo-terminals: %v", err)
	}
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudo-terminals: %v", err)
	}
	term := &terminal{t: t, ours: ours, tty: tty, more: make(chan struct{}, 1)}
	term.resize(columns, rows)
	go func() {
		buffer := make([]byte, 4096)
		for {
			n, err := ours.Read(buffer)
			term.mu.Lock()
			term.written.Write(buffer[:n])
			term.mu.Unlock()
			select {
			case term.more <- struct{}{}:
			default:
			}
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		_ = tty.Close()
		_ = ours.Close()
	})
	return term
}

func (term *terminal) resize(columns, rows uint16) {
	term.t.Helper()
	if err := unix.IoctlSetWinsize(int(term.ours.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: columns, Row: rows}); err != nil {
		term.t.Fatal(err)
	}
}

func (term *terminal) text() string {
	term.mu.Lock()
	defer term.mu.Unlock()
	return term.written.String()
}

// clear discards the output so far.
func (term *terminal) clear() {
	term.mu.Lock()
	defer term.mu.Unlock()
	term.written.Reset()
}

// await waits until the output matches.
func (term *terminal) await(pattern string) string {
	term.t.Helper()
	re := regexp.MustCompile(pattern)
	deadline := time.After(time.Minute)
	for {
		if m := re.FindString(term.text()); m != "" {
			return m
		}
		select {
		case <-term.more:
		case <-deadline:
			term.t.Fatalf("no %s in\n%q", pattern, term.text())
		}
	}
}

// run starts a command on the terminal, as a shell would.
func (term *terminal) run(program string, args ...string) *exec.Cmd {
	term.t.Helper()
	cmd := exec.CommandContext(term.t.Context(), program, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = term.tty, term.tty, term.tty
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	cmd.Env = append(os.Environ(), "TERM="+cmp.Or(term.kind, "xterm"))
	if err := cmd.Start(); err != nil {
		term.t.Fatal(err)
	}
	return cmd
}

const (
	takesScreen  = "\x1b[?1049h\x1b[?25l\x1b[?7l"
	givesItBack  = "\x1b[?7h\x1b[?25h\x1b[?1049l"
	wholePicture = `\x1b\[H[^\x00]*?\x1b\[J`
)

// picture returns the lines drawn last, without colours.
func picture(text string) []string {
	i := strings.LastIndex(text, "\x1b[H")
	text, _, _ = strings.Cut(text[i+len("\x1b[H"):], "\x1b[J")
	text = regexp.MustCompile(`\x1b\[[0-9;?]*[A-Za-z]`).ReplaceAllString(text, "")
	return strings.Split(strings.ReplaceAll(text, "\r", ""), "\n")
}

// TestTopOnATerminal: top fits a terminal, even one that shrinks, and restores
// it.
func TestTopOnATerminal(t *testing.T) {
	t.Setenv("NO_COLOR", "") // it looks at colours
	p := newProcess(t, "http://127.0.0.1:1", truthRules)
	p.start()
	client := &http.Client{Timeout: time.Minute}
	for i := range 40 {
		for _, path := range []string{"/login", "/search", "/trap"} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+p.proxy+path, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			res, err := client.Do(r)
			if err != nil {
				t.Fatal(i, err)
			}
			_ = res.Body.Close()
		}
	}
	headgate := filepath.Join(p.dir, "headgate")
	// The first data is shown at once. With such a long interval, it is redrawn
	// only because the size changes.
	if out, err := exec.CommandContext(t.Context(), headgate, "top", "--once", "--address", p.admin).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	term := newTerminal(t, 120, 40)
	cmd := term.run(headgate, "top", "--address", p.admin, "--interval", "5m", "-n", "3")
	term.await(wholePicture)
	if text := term.text(); !strings.HasPrefix(text, takesScreen) || !strings.Contains(text, "\x1b[1mDOMAIN") {
		t.Errorf("it begins with %q", text)
	}
	for _, size := range []struct{ columns, rows uint16 }{{60, 8}, {24, 5}, {100, 30}} {
		term.clear()
		term.resize(size.columns, size.rows)
		term.await(wholePicture)
		lines := picture(term.text())
		if len(lines) > int(size.rows)+1 || len(lines) > int(size.rows) && lines[len(lines)-1] != "" {
			t.Errorf("%v: %d lines\n%q", size, len(lines), lines)
		}
		for _, line := range lines {
			if n := len([]rune(line)); n > int(size.columns) {
				t.Errorf("%v: %d columns: %q", size, n, line)
			}
		}
	}
	term.clear()
	if _, err := term.ours.WriteString("\x03"); err != nil { // Ctrl-C
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("after Ctrl-C: %v", err)
	}
	if term.await(regexp.QuoteMeta(givesItBack)); !strings.HasSuffix(term.text(), givesItBack) {
		t.Errorf("it ends with %q", term.text())
	}
}

// TestTopWaitsForTheServer: on a terminal, a server that restarts is no reason to end.
func TestTopWaitsForTheServer(t *testing.T) {
	p := newProcess(t, "http://127.0.0.1:1", truthRules)
	p.start()
	term := newTerminal(t, 120, 40)
	cmd := term.run(filepath.Join(p.dir, "headgate"), "top", "--address", p.admin, "--interval", "1s")
	term.await(wholePicture)
	p.kill()
	term.await(`the server closed the connection; trying again every second[^\x00]*last 1s`)
	term.await(`no admin door at [^\x00]*; trying again every second[^\x00]*last 1s`)
	p.start()
	term.clear()
	term.await(`\x1b\[H[^;]*last 1s`)                        // without a note
	if _, err := term.ours.WriteString("\x03"); err != nil { // Ctrl-C
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("after Ctrl-C: %v", err)
	}
}

// TestTopNeedsNoColourAndNoServer: NO_COLOR is respected, and without a server or
// access to it the terminal is not touched.
func TestTopNeedsNoColourAndNoServer(t *testing.T) {
	p := newProcess(t, "http://127.0.0.1:1", truthRules)
	config := fmt.Sprintf("rules: [rules.yaml]\nlisten: {api: \"off\", grpc: \"off\", resp: \"off\", admin: %q}\n"+
		"proxy: {listen: %q, upstream: \"http://127.0.0.1:1\"}\nadmin: {token: open-sesame-open-sesame}\n", p.admin, p.proxy)
	if err := os.WriteFile(filepath.Join(p.dir, "headgate.yaml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	p.start()
	headgate := filepath.Join(p.dir, "headgate")

	t.Setenv("HEADGATE_TOKEN", "another-token-another")
	for name, args := range map[string][]string{
		"no admin door at":                {"top", "--address", redistest.FreeAddress(t)},
		"admin token is missing or wrong": {"top", "--address", p.admin},
	} {
		term := newTerminal(t, 100, 30)
		err := term.run(headgate, args...).Wait()
		if exit, ok := err.(*exec.ExitError); !ok || exit.ExitCode() != exitFailed { //nolint:errorlint // as Wait returns it
			t.Errorf("%q: %v", args, err)
		}
		term.await(`error.*: .*\n`)
		if text := term.text(); !strings.Contains(text, name) || strings.Contains(text, "\x1b[?") {
			t.Errorf("%q: no %q in %q", args, name, text)
		}
	}

	t.Setenv("NO_COLOR", "1")
	t.Setenv("HEADGATE_TOKEN", "open-sesame-open-sesame")
	term := newTerminal(t, 100, 30)
	cmd := term.run(headgate, "top", "--address", p.admin, "--interval", "1s")
	term.await(wholePicture)
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v", err)
	}
	term.await(regexp.QuoteMeta(givesItBack))
	if colours := regexp.MustCompile(`\x1b\[[0-9;]*m`).FindString(term.text()); colours != "" {
		t.Errorf("colour %q in spite of NO_COLOR", colours)
	}
}

// A dumb terminal, such as that of an editor, gets text alone.
func TestTopOnADumbTerminal(t *testing.T) {
	t.Setenv("NO_COLOR", "")
	p := newProcess(t, "http://127.0.0.1:1", truthRules)
	p.start()
	term := newTerminal(t, 100, 30)
	term.kind = "dumb"
	if err := term.run(filepath.Join(p.dir, "headgate"), "top", "--address", p.admin, "--once").Wait(); err != nil {
		t.Error(err)
	}
	term.await("store: ")
	cmd := term.run(filepath.Join(p.dir, "headgate"), "top", "--address", p.admin, "--interval", "1s")
	term.await("store: (?s:.*)store: ")
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if text := term.text(); strings.Contains(text, "\x1b") {
		t.Errorf("%q", text)
	}
}
