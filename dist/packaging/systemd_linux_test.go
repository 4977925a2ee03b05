package main

import (
	_ "embed"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// boot makes a copy of this machine's files that is thrown away, and becomes systemd
// there.
//
//go:embed testdata/boot.sh
var boot string

// machine is a systemd that is process 1 of its own namespaces.
type machine struct{ pid string }

// booted returns a machine with this one's programs and none of its services. It shares
// the network.
func booted(t *testing.T) machine {
	t.Helper()
	asRoot(t)
	tools(t, "dpkg", "nsenter", "deb-systemd-invoke")
	if out, err := exec.CommandContext(t.Context(), "unshare", "--mount", "--pid", "--cgroup", "--fork", "true").CombinedOutput(); err != nil {
		t.Skipf("this machine does not let root make namespaces: %v, %s", err, out)
	}
	folder := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "unshare", "--pid", "--mount", "--cgroup", "--uts", "--ipc", "--fork", "--kill-child", "sh", "-c", boot, "boot", folder)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	output, err := os.Create(filepath.Join(t.TempDir(), "boot.log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = output, output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill(); <-ended })
	children := filepath.Join("/proc", strconv.Itoa(cmd.Process.Pid), "task", strconv.Itoa(cmd.Process.Pid), "children")
	for range 6000 {
		select {
		case <-ended:
			t.Skipf("systemd cannot be process 1 here: %s", read(t, output.Name()))
		case <-time.After(10 * time.Millisecond):
		}
		text, _ := os.ReadFile(children)
		m := machine{strings.TrimSpace(string(text))}
		if comm, err := os.ReadFile(filepath.Join("/proc", m.pid, "comm")); m.pid != "" && err == nil && string(comm) == "systemd\n" {
			if state, _ := m.command(t, "systemctl", "is-system-running", "--wait").Output(); string(state) == "running\n" {
				return m
			}
		}
	}
	t.Fatalf("systemd has not started: %s", read(t, output.Name()))
	return machine{}
}

// command is one that runs in the machine.
func (m machine) command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "nsenter", append([]string{"--target", m.pid, "--pid", "--mount", "--cgroup", "--uts", "--ipc", "--root", "--wd", "--"}, args...)...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "DEBIAN_FRONTEND=noninteractive"}
	return cmd
}

// run returns what a command that must succeed has written.
func (m machine) run(t *testing.T, args ...string) string {
	t.Helper()
	out, err := m.command(t, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%q: %v\n%s\n%s", args, err, out, m.logged(t))
	}
	return string(out)
}

func (m machine) logged(t *testing.T) string {
	t.Helper()
	out, _ := m.command(t, "cat", logFile).CombinedOutput()
	return string(out)
}

// install installs the package of a folder, and returns what dpkg has written.
func (m machine) install(t *testing.T, dist string) string {
	t.Helper()
	m.write(t, "/tmp/headgate.deb", read(t, only(t, dist, "*.deb")))
	return m.run(t, "dpkg", "--force-confold", "--force-depends", "--install", "/tmp/headgate.deb")
}

func (m machine) write(t *testing.T, path, text string) {
	t.Helper()
	cmd := m.command(t, "sh", "-c", `mkdir -p "$(dirname "$0")" && cat >"$0"`, path)
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatal(err, string(out))
	}
}

// serving returns the service once it answers.
func (m machine) serving(t *testing.T, api string) *service {
	t.Helper()
	if !answers(api) {
		t.Fatalf("the service does not answer:\n%s", m.logged(t))
	}
	return &service{api: api}
}

// process returns the process of the service, which is 0 if there is none.
func (m machine) process(t *testing.T) string {
	t.Helper()
	return m.run(t, "systemctl", "show", "--property", "MainPID", "--value", "headgate")
}

// files returns all that are called headgate.
func (m machine) files(t *testing.T) string {
	t.Helper()
	return m.run(t, "find", "/etc", "/usr", "/var", "/run", "-xdev", "-iname", "*headgate*", "-not", "-path", "/etc/systemd/system/*")
}

const (
	settingsFile = "/etc/headgate/headgate.yaml"
	rulesFile    = "/etc/headgate/rules/rules.yaml"
	logFile      = "/var/log/service.log"
)

// The service as systemd runs it, in its cage and as its own user: it starts when the
// package is installed, reloads, is upgraded with its counts, goes on when the upgrade
// meets a mistake in the settings, and leaves nothing.
func TestServiceUnderSystemd(t *testing.T) {
	first, next := made(t), newer(t)
	m := booted(t)
	api := freeAddress(t)
	m.write(t, "/etc/systemd/system/headgate.service.d/test.conf", "[Service]\nEnvironment=HEADGATE_LISTEN_API="+api+" HEADGATE_LISTEN_ADMIN=off\nStandardOutput=append:"+logFile+"\n")
	others := m.files(t)
	rules, err := packaged.ReadFile("files/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	m.write(t, rulesFile, strings.Replace(string(rules), "5/minute", "5/hour", 1)) // for machines that are slow
	m.install(t, first)
	s := m.serving(t, api)
	for want := 4; want >= 2; want-- {
		if allowed, left := s.login(t); !allowed || left != want {
			t.Errorf("%t, %d left, want %d", allowed, left, want)
		}
	}

	settings, before := m.run(t, "cat", settingsFile), m.process(t)
	m.write(t, settingsFile, settings+"listen: [\n")
	if out := m.install(t, next); !strings.Contains(out, "headgate: the old version keeps running") {
		t.Errorf("an upgrade with a mistake in the settings says:\n%s", out)
	}
	if _, left := s.login(t); left != 1 || m.process(t) != before {
		t.Errorf("%d left, want 1; process %s, want that of before, %s", left, m.process(t), before)
	}
	m.write(t, settingsFile, settings)
	m.install(t, next)
	s = m.serving(t, api)
	if _, left := s.login(t); left != 0 || m.process(t) == before {
		t.Errorf("%d left after the upgrade, process %s; want the counts from before in a new process\n%s", left, m.process(t), m.logged(t))
	}
	m.reloads(t, s)

	m.run(t, "dpkg", "--purge", "headgate")
	if left := m.files(t); left != others {
		t.Errorf("left:\n%s\nwant\n%s", left, others)
	}
}

// reloads tries a reload with new rules, and one with a mistake.
func (m machine) reloads(t *testing.T, s *service) {
	t.Helper()
	rules := m.run(t, "cat", rulesFile)
	m.write(t, rulesFile, strings.Replace(rules, "5/hour", "500/hour", 1))
	m.run(t, "systemctl", "reload", "headgate")
	if !s.within(t, func() bool { _, left := s.login(t); return left > 5 }) {
		t.Errorf("the reload changed nothing:\n%s", m.logged(t))
	}
	m.write(t, rulesFile, strings.Replace(rules, "5/hour", "5 per hour", 1))
	if out, err := m.command(t, "systemctl", "reload", "headgate").CombinedOutput(); err == nil {
		t.Errorf("a reload with a mistake in the rules succeeds: %s", out)
	}
	if log := m.logged(t); !strings.Contains(log, `invalid rate "5 per hour"`) {
		t.Errorf("the log does not name the mistake:\n%s", log)
	}
	if _, left := s.login(t); left <= 5 {
		t.Errorf("%d left, want the rules from before the mistake", left)
	}
}

// within waits for something that a service does.
func (s *service) within(t *testing.T, done func() bool) bool {
	t.Helper()
	for range 600 {
		if done() {
			return true
		}
		time.Sleep(10 * time.Millisecond)
	}
	return false
}
