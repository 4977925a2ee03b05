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
	"runtime"
	"strings"
	"syscall"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
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
// environment is nothing but two addresses.
func start(t *testing.T, root string, id uint32, args ...string) *service {
	t.Helper()
	s := &service{api: freeAddress(t)}
	s.cmd = exec.CommandContext(t.Context(), args[0], args[1:]...)
	s.cmd.Dir, s.cmd.Stdout, s.cmd.Stderr = "/", &s.log, &s.log
	s.cmd.Env = []string{"HEADGATE_LISTEN_API=" + s.api, "HEADGATE_LISTEN_ADMIN=off", "HEADGATE_LISTEN_GRPC=off", "HEADGATE_LISTEN_RESP=off"}
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: id, Gid: id}}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.cmd.Process.Kill() })
	for range 100_000 {
		if c, err := net.Dial("tcp", s.api); err == nil {
			_ = c.Close()
			return s
		}
		runtime.Gosched()
	}
	t.Fatalf("%q does not answer:\n%s", args, &s.log)
	return nil
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

// The package is installed, limits, is upgraded with its counts and settings, and
// leaves nothing when it is purged.
func TestDebianPackage(t *testing.T) {
	asRoot(t)
	tools(t, "dpkg")
	root := t.TempDir()
	chmod(t, root)
	for _, dir := range []string{"var/lib/dpkg/info", "var/lib/dpkg/updates"} {
		mkdir(t, filepath.Join(root, dir))
	}
	write(t, filepath.Join(root, "var/lib/dpkg/status"), "")
	dpkg := func(args ...string) {
		output(t, "dpkg", append([]string{"--root=" + root, "--force-script-chrootless", "--force-depends"}, args...)...)
	}
	dpkg("--install", only(t, made(t), "*.deb"))
	// What StateDirectory= does when the service starts.
	state := filepath.Join(root, "var/lib/headgate")
	mkdir(t, state)
	if err := os.Chown(state, user, user); err != nil {
		t.Fatal(err)
	}
	settings := filepath.Join(root, "etc/headgate/headgate.yaml")
	own := read(t, settings) + "\n# ours\nlog: {level: debug}\n"
	write(t, settings, own)

	serve := []string{"/usr/bin/headgate", "serve", "--config", "/etc/headgate/headgate.yaml"}
	s := start(t, root, user, serve...)
	for want := 4; want >= 2; want-- {
		if allowed, left := s.login(t); !allowed || left != want {
			t.Errorf("%t, %d left, want %d", allowed, left, want)
		}
	}
	s.stop(t)

	newer := t.TempDir()
	if err := fixed("v0.1.1").packages(compile(t), newer); err != nil {
		t.Fatal(err)
	}
	dpkg("--force-confdef", "--force-confold", "--install", only(t, newer, "*.deb"))
	if got := output(t, "dpkg-query", "--admindir="+root+"/var/lib/dpkg", "--show", "--showformat", "${Version}", "headgate"); got != "0.1.1-1" {
		t.Errorf("version %q is installed", got)
	}
	if read(t, settings) != own {
		t.Error("the upgrade changed the settings")
	}
	s = start(t, root, user, serve...)
	if _, left := s.login(t); left < 1 || left > 2 { // a token comes back every 12 s
		t.Errorf("%d left after the upgrade, want the counts from before", left)
	}
	s.stop(t)

	dpkg("--remove", "headgate")
	if _, err := os.Stat(settings); err != nil {
		t.Errorf("remove took the settings: %v", err)
	}
	dpkg("--purge", "headgate")
	nothingLeft(t, root)
}

// nothingLeft fails if a purged package has left files or folders of its own.
func nothingLeft(t *testing.T, root string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		switch {
		case name == "var/lib/dpkg":
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

// The image has all that the program needs, and nothing to write to.
func TestImage(t *testing.T) {
	asRoot(t)
	dir := filepath.Join(made(t), "image")
	root := t.TempDir()
	chmod(t, root)
	config := layers(t, dir, root)
	write(t, filepath.Join(root, "etc/headgate/headgate.yaml"), "rules: [rules.yaml]\n")
	rules, err := packaged.ReadFile("files/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(root, "etc/headgate/rules.yaml"), string(rules))
	for _, name := range []string{"etc/ssl/certs/ca-certificates.crt", "usr/share/zoneinfo/Europe/Berlin", "licenses/NOTICES.txt"} {
		if read(t, filepath.Join(root, name)) == "" {
			t.Errorf("%s is empty", name)
		}
	}
	if config.User != "65532:65532" || strings.Join(append(config.Entrypoint, config.Cmd...), " ") != "/headgate serve" {
		t.Errorf("%+v", config)
	}
	s := start(t, root, user, append(config.Entrypoint, append(config.Cmd, "--config", "/etc/headgate/headgate.yaml")...)...)
	if allowed, left := s.login(t); !allowed || left != 4 {
		t.Errorf("%t, %d left, want 4", allowed, left)
	}
	refused := false
	for range 20 { // on a slow machine some tokens come back
		allowed, _ := s.login(t)
		refused = refused || !allowed
	}
	if !refused {
		t.Error("21 attempts are allowed")
	}
	s.stop(t)
}

// layers unpacks the first image of a layout into root, checks that its list of
// parts is about it, and returns how it is run.
func layers(t *testing.T, dir, root string) v1.Config {
	t.Helper()
	top, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	list, err := top.IndexManifest()
	if err != nil || len(list.Manifests) != 2 {
		t.Fatal(list, err)
	}
	index, err := top.ImageIndex(list.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	images, err := index.IndexManifest()
	if err != nil || len(images.Manifests) != 1 {
		t.Fatal(images, err)
	}
	img, err := index.Image(images.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Image(img); err != nil {
		t.Error(err)
	}
	parts, err := top.Image(list.Manifests[1].Digest)
	if err != nil {
		t.Fatal(err)
	}
	if m, err := parts.Manifest(); err != nil || m.Subject == nil || m.Subject.Digest != images.Manifests[0].Digest || m.Config.MediaType != spdxType {
		t.Errorf("%+v, %v", m, err)
	}
	all, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	for _, layer := range all {
		in, err := layer.Compressed()
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		archive := filepath.Join(t.TempDir(), "layer")
		write(t, archive, string(data))
		unpack(t, archive, root)
	}
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	return config.Config
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
