package e2e

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// traefik finds Traefik, from HEADGATE_TRAEFIK or PATH, or skips the test. Nothing
// installs it: Debian does not have it and go install cannot build it.
func traefik(t *testing.T) string {
	t.Helper()
	if path := os.Getenv("HEADGATE_TRAEFIK"); path != "" {
		return path
	}
	path, err := exec.LookPath("traefik")
	if err != nil {
		t.Skip("HEADGATE_TRAEFIK is not set, and", err)
	}
	return path
}

// startTraefik starts Traefik with the example's two files, and waits until it has read
// the second one.
func (p *forwardProxy) startTraefik(t *testing.T, backend *httptest.Server, edit func(text, folder string) string) {
	t.Helper()
	const example = "traefik-forward-auth"
	p.told = toldBackend
	p.startProxy(t, backend, example, "dynamic.yml", func(text, folder string) string {
		static := strings.Replace(readFile(t, examples+example+"/traefik.yml"), "127.0.0.1:8000", p.address, 1)
		writeFile(t, filepath.Join(folder, "traefik.yml"), static+"global: {checkNewVersion: false, sendAnonymousUsage: false}\n")
		return edit(text, folder)
	}, traefik(t), "--configFile=traefik.yml")
	c := clientAt(t, "127.0.0.9")
	p.await(t, func() bool {
		res, _ := p.ask(t, c, "GET", "/", "")
		return res.StatusCode != http.StatusNotFound
	})
	p.passed.Store(0)
}

func asItIs(text, _ string) string { return text }

func TestForwardAuthOfARealTraefik(t *testing.T) {
	p, backend := runForwardAuth(t, "traefik-forward-auth")
	p.startTraefik(t, backend, asItIs)
	p.limits(t)
	passed := p.passed.Load()
	_ = p.Stop(t.Context())
	if res, _ := p.ask(t, clientAt(t, "127.0.0.2"), "GET", "/", ""); res.StatusCode != http.StatusInternalServerError || p.passed.Load() != passed {
		t.Errorf("without Headgate: %v, %d passed", res.StatusCode, p.passed.Load()-passed)
	}
}
