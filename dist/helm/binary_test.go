package helm

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// headgate builds the binary of this tree, once.
var headgate = sync.OnceValues(func() (string, error) {
	folder, err := os.MkdirTemp("", "chart-*")
	if err != nil {
		return "", err
	}
	file := filepath.Join(folder, "headgate")
	build := exec.Command("go", "build", "-o", file, "./cmd/headgate")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return file, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if file, err := headgate(); err == nil {
		_ = os.RemoveAll(filepath.Dir(file)) // of this run
	}
	os.Exit(code)
}

// secret is what tests put into every key of a Secret.
const secret = "a-token-of-tests-that-is-long-enough"

// pod writes the files that a pod would see below /etc/headgate, and returns the
// folder and the environment.
func pod(t *testing.T, objects []object) (folder string, environment []string) {
	t.Helper()
	folder, certs := t.TempDir(), t.TempDir()
	certify(t, certs)
	d, c := deployment(t, objects)
	for _, m := range c.VolumeMounts {
		at := filepath.Join(folder, strings.TrimPrefix(m.MountPath, "/etc/headgate"))
		for _, v := range d.Spec.Template.Spec.Volumes {
			if v.Name == m.Name {
				mount(t, at, certs, v, objects)
			}
		}
	}
	for _, e := range c.Env {
		if e.ValueFrom != nil {
			e.Value = secret
		}
		environment = append(environment, e.Name+"="+e.Value)
	}
	return folder, environment
}

// mount writes the files of a volume. Those of certificates are in the folder certs.
func mount(t *testing.T, at, certs string, v corev1.Volume, objects []object) {
	t.Helper()
	switch {
	case v.ConfigMap != nil:
		files, made := configMap(t, objects, v.ConfigMap.Name)
		if !made { // one of the operator
			files = map[string]string{"limits.yaml": "domain: api\nlimits: [{name: all, rate: 100/second}]\n"}
		}
		for name, text := range files {
			write(t, filepath.Join(at, name), text, 0o644)
		}
	case v.Projected != nil:
		for _, source := range v.Projected.Sources {
			for _, item := range source.Secret.Items {
				text := secret + "\n"
				if pem, err := os.ReadFile(filepath.Join(certs, filepath.Base(item.Path))); err == nil {
					text = string(pem)
				}
				write(t, filepath.Join(at, item.Path), text, os.FileMode(*v.Projected.DefaultMode))
			}
		}
	}
}

func write(t *testing.T, file, text string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

// The real binary accepts settings and rules of every row, without a warning of a
// secret that everybody can read.
func TestHeadgateAcceptsIt(t *testing.T) {
	binary, err := headgate()
	if err != nil {
		t.Fatal(err)
	}
	each(t, func(t *testing.T, _ string, _ map[string]any, objects []object) {
		folder, environment := pod(t, objects)
		args := []string{"check", "--config", filepath.Join(folder, "config", "headgate.yaml")}
		rules := filepath.Join(folder, "rules")
		if _, err := os.Stat(rules); err != nil { // rules come by xDS
			rules = filepath.Join(t.TempDir(), "none.yaml")
			write(t, rules, "domain: none\nlimits: []\n", 0o600)
		}
		check := exec.CommandContext(t.Context(), binary, append(args, rules)...)
		check.Env = append(os.Environ(), environment...)
		if out, err := check.CombinedOutput(); err != nil || bytes.Contains(out, []byte("warning")) {
			t.Errorf("%v\n%s", err, out)
		}
		settings, _ := configMap(t, objects, "-config")
		for line := range strings.SplitSeq(settings["headgate.yaml"], "\n") {
			if strings.Contains(line, secret) || strings.Contains(line, "password: ") {
				t.Errorf("a secret in a ConfigMap: %s", line)
			}
		}
		for line := range strings.SplitSeq(settings["headgate.yaml"], "\n") {
			_, file, named := strings.Cut(line, ": ../secrets/")
			if _, err := os.Stat(filepath.Join(folder, "secrets", file)); named && err != nil {
				t.Error(line, err)
			}
		}
	})
}

// A pod starts with what the chart wrote, is ready where kubelet asks, refuses what the
// rules refuse, and stops in time.
func TestPodServes(t *testing.T) {
	binary, err := headgate()
	if err != nil {
		t.Fatal(err)
	}
	objects := parse(t, manifest(t, rows(t)["default"]))
	folder, environment := pod(t, objects)
	_, c := deployment(t, objects)
	address := free(t)
	args := append(c.Args[:len(c.Args)-1:len(c.Args)-1], strings.Replace(c.Args[len(c.Args)-1], "/etc/headgate", folder, 1))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	process := exec.CommandContext(ctx, binary, args...)
	process.Env = append(append(os.Environ(), environment...), "HEADGATE_LISTEN_API="+address, "HEADGATE_LISTEN_GRPC=127.0.0.1:0",
		"HEADGATE_LISTEN_ADMIN=127.0.0.1:0", "HEADGATE_SHUTDOWN_DELAY=1ms")
	var said bytes.Buffer
	process.Stdout, process.Stderr = &said, &said
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	ready := "http://" + address + c.ReadinessProbe.HTTPGet.Path
	for status := 0; status != http.StatusOK; status = get(ctx, ready) {
		if ctx.Err() != nil {
			t.Fatalf("not ready: %s", &said)
		}
	}
	if status := get(ctx, "http://"+address+c.LivenessProbe.HTTPGet.Path); status != http.StatusOK {
		t.Errorf("liveness: %d", status)
	}
	for i := range 6 {
		const question = `{"domain":"api","attributes":{"method":"POST","path":"/login","client_ip":"198.51.100.7"}}`
		req, _ := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+"/v1/check", strings.NewReader(question))
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if allowed := bytes.Contains(body, []byte(`"allowed":true`)); allowed != (i < 5) {
			t.Errorf("login %d: %d %s", i+1, res.StatusCode, body)
		}
	}
	if err := process.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := process.Wait(); err != nil {
		t.Errorf("%v: %s", err, &said)
	}
}

func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// get returns the status, or 0 if nobody answers.
func get(ctx context.Context, url string) int {
	req, _ := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0
	}
	_ = res.Body.Close()
	return res.StatusCode
}
