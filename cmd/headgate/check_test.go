package main

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/app"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/replay/offline"
)

// TestCheckKnowsWhatServeRefuses: what keeps a server from starting, before it opens a door, check
// --config says in the same words and at the same place.
func TestCheckKnowsWhatServeRefuses(t *testing.T) {
	const proxy = "proxy: {upstream: 'http://127.0.0.1:9', listen: 127.0.0.1:24900, "
	for text, wrong := range map[string]bool{ // a wrong value is an error also for check
		proxy + "domain: nope}":                                                          false,
		proxy + "adaptive: {mode: on, headroom: {gold: 10%}}}":                           false,
		proxy + "upstream_tls: {ca: none.pem}}":                                          true, // and the URL is not https
		"proxy: {upstream: 'https://127.0.0.1:9', upstream_tls: {ca: none.pem}}":         false,
		"listen: {api: 127.0.0.1:24900, grpc: 127.0.0.1:24900}":                          false,
		"listen: {api: ':24900', admin: 127.0.0.1:24900}":                                false,
		"listen: {api: 127.0.0.1:6380}":                                                  false, // the default of resp
		"listen: {grpc: 'unix:/run/x', api: 'off', resp: 'off', shared: 127.0.0.1:6070}": false,
		"listen: {api: 'off', grpc: 'off', resp: 'off'}":                                 false,
		"jwt: {keys: none.json}":                                                         false,
		"jwt: {keys: ''}":                                                                true,
		"jwt: {secret_file: none}":                                                       false,
		"jwt: {secret_file: short}":                                                      false,
		"tls: {cert: none.pem, key: none.key}":                                           false,
		"api: {tls: {cert: none.pem, key: none.key}}":                                    false,
		"api: {tls: {cert: none.pem}}":                                                   false,
		"api: {token_file: none}":                                                        true,
		"listen: {api: '*:24900'}":                                                       true,
		"listen: {grpc: '256.1.1.1:24900'}":                                              true,
		"proxy: {listen: '10.1:24900', upstream: 'http://127.0.0.1:9'}":                  true,
	} {
		folder := t.TempDir()
		file := filepath.Join(folder, "headgate.yaml")
		for name, text := range map[string]string{
			"headgate.yaml": "rules: [rules.yaml]\n" + text + "\n",
			"rules.yaml":    "domain: shop\npriorities: {classes: [platinum, default]}\nlimits: [{name: a, key: client_ip, rate: 5/minute}]\n",
			"short":         "too short",
		} {
			if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		c, err := config.Load(config.Sources{File: file, Doors: app.Sections()})
		if err == nil {
			_, err = app.New(app.Options{Config: c, Logger: slog.New(slog.DiscardHandler)})
		}
		if err == nil {
			t.Errorf("%s: serve starts", text)
			continue
		}
		for args, code := range map[string]int{"check": exitOK, "check --strict": exitFailed} {
			if wrong {
				code = exitFailed
			}
			var out, told bytes.Buffer
			got := run(t.Context(), append(strings.Fields(args), "--config", file), streams{strings.NewReader(""), &out, &told})
			for _, d := range offline.Diagnose(err) {
				want := strings.TrimPrefix(d.Position+": ", ": ") + d.Message
				if !strings.Contains(told.String(), want) || got != code {
					t.Errorf("%s: %s: exit code %d, want %d:\n%s\nserve: %s", args, text, got, code, told.String(), want)
				}
			}
		}
	}
}
