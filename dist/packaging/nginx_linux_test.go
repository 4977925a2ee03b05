package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// logins is a site behind nginx, whose logins Headgate limits.
type logins struct {
	front  string // where nginx listens
	passed atomic.Int64
	log    bytes.Buffer
}

// behindNginx starts a site and, in front of it, nginx with the configuration in
// docs/connect/forward-auth.md. Only addresses and folders are replaced.
func behindNginx(t *testing.T, api string) *logins {
	t.Helper()
	l := &logins{front: freeAddress(t)}
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		l.passed.Add(1)
		w.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(site.Close)
	at, err := url.Parse(site.URL)
	if err != nil {
		t.Fatal(err)
	}
	_, page, _ := strings.Cut(read(t, "../../docs/connect/forward-auth.md"), "```nginx\nevents {}\n")
	text, _, found := strings.Cut(page, "```\n")
	if !found {
		t.Fatal("docs/connect/forward-auth.md has no configuration for nginx")
	}
	folder := t.TempDir()
	home := "http {\n    access_log off;\n"
	for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		home += "    " + kind + "_temp_path " + folder + "/" + kind + ";\n"
	}
	for old, now := range map[string]string{"127.0.0.1:8080": api, "127.0.0.1:8000": l.front, "127.0.0.1:9000": at.Host, "http {\n": home} {
		if strings.Count(text, old) != 1 {
			t.Fatalf("%d times %q in\n%s", strings.Count(text, old), old, text)
		}
		text = strings.Replace(text, old, now, 1)
	}
	write(t, filepath.Join(folder, "nginx.conf"), "events {}\n"+text)
	cmd := exec.CommandContext(t.Context(), "nginx", "-p", folder, "-c", "nginx.conf", "-e", "stderr", "-g", "daemon off; master_process off; pid nginx.pid; error_log stderr;")
	cmd.Stderr = &l.log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if !answers(l.front) {
		t.Fatalf("nginx does not answer:\n%s", &l.log)
	}
	return l
}

// try sends n attempts to log in and returns how often each status came.
func (l *logins) try(t *testing.T, n int) map[int]int {
	t.Helper()
	statuses := map[int]int{}
	for range n {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+l.front+"/login", strings.NewReader("user=ann"))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatalf("%v\n%s", err, &l.log)
		}
		_ = answer.Body.Close()
		if answer.StatusCode == http.StatusTooManyRequests && answer.Header.Get("Retry-After") == "" {
			t.Error("a refusal without Retry-After")
		}
		statuses[answer.StatusCode]++
	}
	return statuses
}

// What a Debian user does: install the package, let nginx ask it about logins with the
// configuration in the docs, and upgrade. No login is admitted above the limit.
func TestNginxLimitsLoginsAcrossAnUpgrade(t *testing.T) {
	d := install(t)
	tools(t, "nginx")
	next := newer(t)
	api := freeAddress(t)
	l := behindNginx(t, api)
	const attempts = 8
	began := time.Now()
	s := serveAt(t, d.root, api)
	first := l.try(t, attempts)
	if first[http.StatusNoContent] < 5 || first[http.StatusTooManyRequests] == 0 {
		t.Errorf("%v, want 5 logins and refusals", first)
	}
	s.stop(t)
	if down := l.try(t, 1); down[http.StatusInternalServerError] != 1 {
		t.Errorf("%v during the upgrade, want 500: it fails closed", down)
	}
	d.upgrade(t, next)
	s = serveAt(t, d.root, api)
	second := l.try(t, attempts)
	most := 5 + 5*int64(time.Since(began)/time.Minute) // five in any minute
	if got := l.passed.Load(); got > most || second[http.StatusTooManyRequests] == 0 {
		t.Errorf("%d logins passed, want at most %d; before the upgrade %v, after it %v", got, most, first, second)
	}
	s.stop(t)
}
