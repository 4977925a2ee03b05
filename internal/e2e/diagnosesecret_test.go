package e2e

import (
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/app"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/replay/offline"
)

// TestDiagnosesTellNoSecret: errors show the line they are about, unless it may contain
// a secret.
func TestDiagnosesTellNoSecret(t *testing.T) {
	for text, shown := range map[string]bool{
		"listne: {api: off}":                                      true,
		"api: {token: hush}":                                      false,
		"admin: {tokenn: hush}":                                   false,
		"admin: {tokn : hush, pprof: maybe}":                      false,
		"admin: {\"Tokem\": hush}":                                false,
		"resp: {pasword: hush}":                                   false,
		"api: {token_file: [a]}":                                  true,
		"store: {redis: {password: hush, adresses: [x]}}":         false,
		"telemetry: {otlp: {headers: {x: hush, a b: c}}}":         false,
		"telemetry: {otlp: {endpoint: 'http://u:hush@h'}}":        false,
		"telemetry: {otlp: {endpoint: 'http://h', protocol: x}}":  false,
		"telemetry: {otlp: {sample: 7, headers: {x: hush}}}":      false,
		"store: redis://127.0.0.1:hush":                           false,
		"store: 'rediss://:hush'":                                 false,
		"store: {redis: {url: 'redis://127.0.0.1:hush'}}":         false,
		"store: {redis: {url: 'valkey://127.0.0.1:hush'}}":        false,
		"store: http://h":                                         false,
		"resp_password: hush":                                     false,
		"apitoken: hush":                                          false,
		"pw: hush":                                                false,
		"api: hush":                                               false,
		"keys: hush":                                              false,
		"api: [hush]":                                             false,
		"resp: [a, hush]":                                         false,
		"api: {token: *hush}":                                     false,
		"store: {redis: {mode: 'redis://:hush@h'}}":               false,
		"listen: {api: 'u:hush@h:1'}":                             false,
		"store: redis:/:hush@127.0.0.1":                           false,
		"store: {redis: {adresses: [':hush@h:1']}}":               false,
		"proxy: {upstream: 'htp://u:hush@h'}":                     false,
		"proxy: {upstream: 'http://u:hu sh@h/hush'}":              false,
		"jwt: {keys: 'https://u:hush@h'}":                         false,
		"jwt: {keys: 'https://h/jwks?key=hush', algorithms: [x]}": false,
		"warnings: {webhook: 'htps://h/services/hush'}":           false,
		"warnings: {webhooks: ['https://h/services/hush']}":       false,
		"xds: {address: 'u:hush@h'}":                              false,
	} {
		file := filepath.Join(t.TempDir(), "headgate.yaml")
		writeFile(t, file, text+"\n")
		c, err := config.Load(config.Sources{Doors: app.Sections(), File: file, Environment: func(string) (string, bool) { return "", false }})
		if err == nil { // only found when the store is opened
			err = startAlone(t, c)
		}
		if err == nil {
			t.Errorf("%s: no error", text)
			continue
		}
		for _, d := range offline.Diagnose(err) {
			if strings.Contains(d.Message+d.Hint+d.Excerpt, "hush") || (d.Excerpt != "") != shown {
				t.Errorf("%s: %+v", text, d)
			}
		}
	}
}

// startAlone returns the error of starting an App that only has the API.
func startAlone(t *testing.T, c *config.Config) error {
	t.Helper()
	listenAt(c, addresses{"api": "127.0.0.1:0"})
	a, err := app.New(app.Options{Config: c, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	if err = a.Start(context.Background()); err == nil {
		t.Error("it has started")
		_ = a.Stop(context.Background())
	}
	return err
}
