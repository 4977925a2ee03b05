package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The proxy command, and check with a configuration that opens only the proxy,
// refuse attributes that HTTP requests do not have, and claims that are never
// verified. Without a configuration check cannot know.
func TestTheProxyRefusesUnknownAttributes(t *testing.T) {
	for attribute, want := range map[string]string{
		"tenant":  "unknown attribute \"tenant\"",
		"jwt:sub": "no request has \"jwt:sub\": token verification is not configured",
	} {
		t.Run(attribute, func(t *testing.T) { proxyRefuses(t, attribute, want) })
	}
}

func proxyRefuses(t *testing.T, attribute, want string) {
	t.Helper()
	folder := t.TempDir()
	file, config := filepath.Join(folder, "r.yaml"), filepath.Join(folder, "headgate.yaml")
	for name, text := range map[string]string{
		file:   "domain: d\nlimits:\n  - {name: a, key: [\"" + attribute + "\"], rate: 1/minute}\n",
		config: "proxy: {upstream: http://127.0.0.1:9}\nlisten: {api: off, grpc: off, resp: off}\n",
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, row := range []struct {
		refused bool
		args    []string
	}{
		{true, []string{"proxy", "--upstream", "http://127.0.0.1:9", "--listen", "127.0.0.1:0", "--listen-admin", "off", "--rules", file}},
		{true, []string{"check", "--config", config, file}},
		{false, []string{"check", file}},
	} {
		var out, err bytes.Buffer
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // in case the proxy starts
		code := run(ctx, row.args, streams{strings.NewReader(""), &out, &err})
		cancel()
		if refused := strings.Contains(err.String(), want); refused != row.refused || (code != 0) != row.refused {
			t.Errorf("%q: %d, %s", row.args, code, err.String())
		}
	}
}
