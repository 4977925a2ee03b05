//go:build unix

package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/testkit/redistest"
)

// mob keeps connections to a door open, sends the same text on each, and replaces
// those that are closed.
func mob(t *testing.T, address, text string, connections int) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	for range connections {
		go func() {
			defer func() { done <- struct{}{} }()
			var d net.Dialer
			for ctx.Err() == nil {
				nc, err := d.DialContext(ctx, "tcp", address)
				if err != nil {
					continue
				}
				stop := context.AfterFunc(ctx, func() { _ = nc.Close() })
				_, _ = io.WriteString(nc, text)
				_, _ = io.Copy(io.Discard, nc)
				stop()
				_ = nc.Close()
			}
		}()
	}
	t.Cleanup(func() {
		cancel()
		for range connections {
			<-done
		}
	})
}

// All doors for requests are flooded with more connections than there are file
// descriptors. Health, metrics and reload still answer, and the soft limit has been
// raised to the hard one.
func TestFloodedBeyondTheDescriptors(t *testing.T) {
	block := make(chan struct{})
	upstream := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-block }))
	defer upstream.Close()
	defer close(block)
	p := newProcess(t, upstream.URL, "domain: d\nlimits:\n  - {name: one, match: {path: /x}, rate: 5/minute}\n")
	api := redistest.FreeAddress(t)
	text, err := os.ReadFile(filepath.Join(p.dir, "headgate.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(p.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("headgate.yaml", strings.Replace(string(text), `api: "off"`, fmt.Sprintf("api: %q", api), 1))
	p.cmd = exec.Command("sh", "-c", "ulimit -S -n 100 && ulimit -H -n 450 && exec ./headgate serve")
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = p.dir, p.log, p.log
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	admin := func(path string) string {
		res, err := client.Get("http://" + p.admin + path)
		if err != nil {
			return err.Error()
		}
		defer func() { _ = res.Body.Close() }()
		body, _ := io.ReadAll(res.Body)
		return string(body)
	}
	until := func(path, pattern string) {
		t.Helper()
		tick, deadline := time.NewTicker(20*time.Millisecond), time.After(30*time.Second)
		defer tick.Stop()
		want := regexp.MustCompile(pattern)
		for got := ""; !want.MatchString(got); got = admin(path) {
			select {
			case <-tick.C:
			case <-deadline:
				log, _ := os.ReadFile(p.log.Name())
				t.Fatalf("no %s in %s:\n%s\n%s", pattern, path, got, log)
			}
		}
	}
	until("/healthz", "ok")
	log, err := os.ReadFile(p.log.Name())
	if err != nil || !strings.Contains(string(log), "file descriptor limit is too low") || !strings.Contains(string(log), `450`) {
		t.Errorf("%v:\n%s", err, log)
	}
	mob(t, p.proxy, "POST /y HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nx", 600)
	mob(t, api, "POST /v1/check HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{", 600)
	until("/metrics", `connections_total.door="api",result="evicted". [1-9]`)
	until("/metrics", `connections_total.door="proxy",result="evicted". [1-9]`)
	for range 6 {
		if got := admin("/healthz"); got != "ok\n" {
			t.Errorf("health: %s", got)
		}
	}
	write("rules.yaml", "domain: d\nlimits:\n  - {name: two, match: {path: /x}, rate: 5/minute}\n")
	if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	until("/v1/rules", `"two"`)
}
