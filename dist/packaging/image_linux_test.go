package main

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// The image has all that the program needs, and nothing to write to.
func TestImage(t *testing.T) {
	root, config := unpackedImage(t)
	for _, name := range []string{"etc/ssl/certs/ca-certificates.crt", "usr/share/zoneinfo/Europe/Berlin", "licenses/NOTICES.txt"} {
		if read(t, filepath.Join(root, name)) == "" {
			t.Errorf("%s is empty", name)
		}
	}
	if config.User != "65532:65532" || strings.Join(append(config.Entrypoint, config.Cmd...), " ") != "/headgate serve" {
		t.Errorf("%+v", config)
	}
	s := start(t, root, freeAddress(t), append(config.Entrypoint, append(config.Cmd, "--config", "/etc/headgate/headgate.yaml")...)...)
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

// unpackedImage returns a folder with the content of the image, and settings and rules,
// and how the image is run.
func unpackedImage(t *testing.T) (root string, config v1.Config) {
	t.Helper()
	asRoot(t)
	root = t.TempDir()
	chmod(t, root)
	config = layers(t, filepath.Join(made(t), "image"), root)
	write(t, filepath.Join(root, "etc/headgate/headgate.yaml"), "rules: [rules.yaml]\n")
	rules, err := packaged.ReadFile("files/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(root, "etc/headgate/rules.yaml"), string(rules))
	return root, config
}

// The image runs where nothing can be written, as with docker run --read-only.
func TestImageOnReadOnlyRoot(t *testing.T) {
	root, config := unpackedImage(t)
	if out, err := exec.CommandContext(t.Context(), "unshare", "--mount", "true").CombinedOutput(); err != nil {
		t.Skipf("this machine does not let root mount: %v, %s", err, out)
	}
	const run = `mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && root=$1 && shift && exec chroot --userspec="$0" "$root" "$@"`
	args := append([]string{"--mount", "sh", "-c", run, config.User, root}, append(config.Entrypoint, append(config.Cmd, "--config", "/etc/headgate/headgate.yaml")...)...)
	cmd := exec.CommandContext(t.Context(), "unshare", args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	s := begin(t, cmd, freeAddress(t))
	mounts := strings.Fields(read(t, "/proc/"+strconv.Itoa(cmd.Process.Pid)+"/mountinfo"))
	if len(mounts) < 6 || mounts[4] != "/" || !strings.HasPrefix(mounts[5], "ro,") {
		t.Errorf("its root is not read-only: %q", mounts)
	}
	if status := read(t, "/proc/"+strconv.Itoa(cmd.Process.Pid)+"/status"); !strings.Contains(status, "\nUid:\t65532\t65532\t65532\t65532\n") {
		t.Errorf("it runs as another user:\n%s", status)
	}
	if allowed, left := s.login(t); !allowed || left != 4 {
		t.Errorf("%t, %d left, want 4", allowed, left)
	}
	s.stop(t)
}

// The command in docs/start/install.md pushes the image to a registry, for each platform.
func TestImageIsPushed(t *testing.T) {
	if _, err := exec.LookPath("skopeo"); err != nil {
		t.Skip("no skopeo: apt-get install skopeo")
	}
	const line = "skopeo copy oci-archive:headgate_0.1.0_image.tar:v0.1.0 docker://registry.example/headgate:0.1.0 --all"
	if !strings.Contains(read(t, "../../docs/start/install.md"), line) {
		t.Errorf("docs/start/install.md does not say %s", line)
	}
	server := httptest.NewServer(registry.New(registry.Logger(slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo))))
	t.Cleanup(server.Close)
	at := strings.TrimPrefix(server.URL, "http://")
	args := strings.Fields(strings.NewReplacer("headgate_0.1.0_image.tar", only(t, made(t), "*_image.tar"), "registry.example", at).Replace(line))
	output(t, args[0], append(args[1:], "--dest-tls-verify=false", "--insecure-policy")...)
	raw := output(t, "skopeo", "inspect", "--raw", "--tls-verify=false", "docker://"+at+"/headgate:0.1.0")
	var list v1.IndexManifest
	if err := json.Unmarshal([]byte(raw), &list); err != nil || len(list.Manifests) == 0 || list.Manifests[0].Platform.String() != host().String() {
		t.Errorf("%s, %v", raw, err)
	}
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
