package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Control characters in file names and contents do not reach the terminal.
func TestWhatOthersNameIsNotObeyed(t *testing.T) {
	const evil = "\x1b]0;owned\x07\x1b[2J\u009b31m\u202e\x7f"
	folder := t.TempDir()
	bad := filepath.Join(folder, "a"+evil+".yaml")
	forged := filepath.Join(folder, "b\nerror: all is well.yaml")
	for name, text := range map[string]string{bad: "domain: d\nlimits:\n  - {name: x, rate: 1/minuet}\n", forged: "domain: d\nlimts: []\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tests := filepath.Join(t.TempDir(), "a"+evil+"_test.yaml")
	if err := os.WriteFile(tests, []byte("kind: "+"Pod\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"check", folder},
		{"check", filepath.Join(folder, "none"+evil)},
		{"test", filepath.Dir(tests)},
		{"test", tests},
		{"test", "none" + evil},
		{evil},
		{"serve", "--" + evil},
		{"serve", "--listen-api", evil},
		{"serve", "--config", "none" + evil},
		{"keys", evil},
		{"explain", "--rules", filepath.Join(folder, "none"+evil), "--path", "/"},
		{"simulate", "--rules", bad, "none" + evil},
	} {
		var out, err bytes.Buffer
		run(t.Context(), args, streams{strings.NewReader(""), &out, &err})
		text := out.String() + err.String()
		if text == "" || strings.ContainsFunc(text, isObeyed) {
			t.Errorf("%q: %q", args, text)
		}
		if strings.Contains(text, "\nerror: all") {
			t.Errorf("%q: a line that is not ours: %s", args, text)
		}
	}
}

func TestInert(t *testing.T) {
	for text, want := range map[string]string{
		"":                      "",
		"rules/ä 漢.yaml:1:2\tx": "rules/ä 漢.yaml:1:2\tx",
		"a\x1b[31mb":            `a\x1b[31mb`,
		"a\rb\x00\x7f":          `a\rb\x00\x7f`,
		"\u009b2J\u202e":        `\u009b2J\u202e`,
		"one\ntwo\n":            "one\n  two",
	} {
		if got := inert(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
