package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func asRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can install a package and change the root folder")
	}
}

// freeAddress returns an address that nobody listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // it served its purpose
	return l.Addr().String()
}

// service is a Headgate that runs in a folder as its root, as nobody.
type service struct {
	cmd *exec.Cmd
	log bytes.Buffer
	api string
}

// start runs a program of the folder root and waits until it is ready. Its
// environment is nothing but addresses.
func start(t *testing.T, root, api string, args ...string) *service {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: user, Gid: user}}
	return begin(t, cmd, api)
}

// begin is start of any command that becomes the service, with an address for its API.
func begin(t *testing.T, cmd *exec.Cmd, api string) *service {
	t.Helper()
	s := &service{cmd: cmd, api: api}
	s.cmd.Dir, s.cmd.Stdout, s.cmd.Stderr = "/", &s.log, &s.log
	s.cmd.Env = append(s.cmd.Env, "HEADGATE_LISTEN_API="+s.api, "HEADGATE_LISTEN_ADMIN=off", "HEADGATE_LISTEN_GRPC=off", "HEADGATE_LISTEN_RESP=off")
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.cmd.Process.Kill() })
	if !answers(s.api) {
		t.Fatalf("%q does not answer:\n%s", cmd.Args, &s.log)
	}
	return s
}

// answers waits, on a busy machine for long, until a program listens on an address.
func answers(address string) bool {
	for range 6000 {
		if c, err := net.Dial("tcp", address); err == nil {
			_ = c.Close()
			return true
		}
		time.Sleep(10 * time.Millisecond)
	}
	return false
}

// stop ends the process as systemd does, and waits for it.
func (s *service) stop(t *testing.T) {
	t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Wait(); err != nil {
		t.Errorf("%v\n%s", err, &s.log)
	}
}

// login asks for one attempt, and returns whether it is allowed and what is left.
func (s *service) login(t *testing.T) (allowed bool, remaining int) {
	t.Helper()
	body := `{"domain":"site","attributes":{"method":"POST","path":"/login","client_ip":"198.51.100.7"}}`
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+s.api+"/v1/check", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatalf("%v\n%s", err, &s.log)
	}
	defer answer.Body.Close() //nolint:errcheck // only read
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	var verdict struct {
		Rule      string
		Allowed   bool
		Remaining int
	}
	if err := json.Unmarshal(text, &verdict); err != nil || verdict.Rule != "login" {
		t.Fatalf("%s, %v", text, err)
	}
	return verdict.Allowed, verdict.Remaining
}

// newer returns a folder with the packages of the next version.
func newer(t *testing.T) string {
	t.Helper()
	b := compile(t)
	shared.Lock()
	defer shared.Unlock()
	if shared.newer == "" {
		dist := filepath.Join(shared.dir, "newer")
		mkdir(t, dist)
		if err := fixed("v0.1.1").packages(b, dist); err != nil {
			t.Fatal(err)
		}
		shared.newer = dist
	}
	return shared.newer
}

// serve is how the unit starts the service.
func serve(t *testing.T, root string) *service {
	t.Helper()
	return serveAt(t, root, freeAddress(t))
}

func serveAt(t *testing.T, root, api string) *service {
	t.Helper()
	return start(t, root, api, "/usr/bin/headgate", "serve", "--config", "/etc/headgate/headgate.yaml")
}

// stateFolder makes the folder that StateDirectory= makes when the service starts.
func stateFolder(t *testing.T, root string) {
	t.Helper()
	state := filepath.Join(root, "var/lib/headgate")
	mkdir(t, state)
	if err := os.Chown(state, user, user); err != nil {
		t.Fatal(err)
	}
}

// debian is a folder where Debian packages are installed.
type debian struct{ root string }

// install returns a folder in which the package is the only one.
func install(t *testing.T) debian {
	t.Helper()
	asRoot(t)
	tools(t, "dpkg")
	d := debian{t.TempDir()}
	chmod(t, d.root)
	for _, dir := range []string{"var/lib/dpkg/info", "var/lib/dpkg/updates"} {
		mkdir(t, filepath.Join(d.root, dir))
	}
	write(t, filepath.Join(d.root, "var/lib/dpkg/status"), "")
	d.dpkg(t, "--install", only(t, made(t), "*.deb"))
	stateFolder(t, d.root)
	return d
}

func (d debian) dpkg(t *testing.T, args ...string) {
	t.Helper()
	output(t, "dpkg", append([]string{"--root=" + d.root, "--force-script-chrootless", "--force-depends"}, args...)...)
}

// upgrade installs a newer package, as apt does when files were changed.
func (d debian) upgrade(t *testing.T, dist string) {
	t.Helper()
	d.dpkg(t, "--force-confdef", "--force-confold", "--install", only(t, dist, "*.deb"))
	if got := output(t, "dpkg-query", "--admindir="+d.root+"/var/lib/dpkg", "--show", "--showformat", "${Version}", "headgate"); got != "0.1.1-1" {
		t.Errorf("version %q is installed", got)
	}
}

// The package is installed, limits, is upgraded with its counts and settings, and
// leaves nothing when it is purged.
func TestDebianPackage(t *testing.T) {
	d := install(t)
	root := d.root
	settings := filepath.Join(root, "etc/headgate/headgate.yaml")
	own := read(t, settings) + "\n# ours\nlog: {level: debug}\n"
	write(t, settings, own)

	next := newer(t)
	s := serve(t, root)
	for want := 4; want >= 2; want-- {
		if allowed, left := s.login(t); !allowed || left != want {
			t.Errorf("%t, %d left, want %d", allowed, left, want)
		}
	}
	s.stop(t)

	d.upgrade(t, next)
	if read(t, settings) != own {
		t.Error("the upgrade changed the settings")
	}
	s = serve(t, root)
	if _, left := s.login(t); left < 1 || left > 2 { // a token comes back every 12 s
		t.Errorf("%d left after the upgrade, want the counts from before", left)
	}
	s.stop(t)

	d.dpkg(t, "--remove", "headgate")
	if _, err := os.Stat(settings); err != nil {
		t.Errorf("remove took the settings: %v", err)
	}
	d.dpkg(t, "--purge", "headgate")
	nothingLeft(t, root, "var/lib/dpkg")
}

// nothingLeft fails if a removed package has left files or folders of its own, besides
// the folder of the package manager.
func nothingLeft(t *testing.T, root, manager string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		switch {
		case name == manager:
			return fs.SkipDir
		case !d.IsDir() || strings.Contains(name, "headgate"):
			t.Errorf("%s is left", name)
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

func mkdir(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
}

// chmod lets the user of the service into a folder.
func chmod(t *testing.T, dir string) {
	t.Helper()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
