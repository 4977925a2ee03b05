package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/headgate/headgate/internal/testkit/redistest"
)

// promisedCodes are the exit codes on docs/reference/cli.md.
func promisedCodes(t *testing.T) []string {
	t.Helper()
	page, err := os.ReadFile("../../docs/reference/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^Exit codes: .*$`).FindString(string(page))
	return regexp.MustCompile(`\b\d+\b`).FindAllString(line, -1)
}

// codeOf runs headgate as a process of its own in a folder.
func codeOf(t *testing.T, folder string, args ...string) (code int, printed string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, "headgate", args...)
	c.Dir = folder
	out, err := c.CombinedOutput()
	if failed, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		t.Fatalf("headgate %q: %v", args, err)
	} else if ok {
		return failed.ExitCode(), string(out)
	}
	return 0, string(out)
}

// TestExitCodes: each code that docs/reference/cli.md promises, and what it says about commands.
// (130 is in testdata/forced.txtar.)
func TestExitCodes(t *testing.T) {
	if got := strings.Join(promisedCodes(t), " "); got != "0 1 2 130" {
		t.Errorf("docs/reference/cli.md promises %s", got)
	}
	folder := t.TempDir()
	for name, text := range map[string]string{
		"good.yaml":   "domain: a\nlimits:\n  - {name: x, key: client_ip, rate: 5/hour}\n",
		"tight.yaml":  "domain: a\nlimits:\n  - {name: x, key: client_ip, rate: 1/hour}\n",
		"warned.yaml": "domain: a\nlimits:\n  - {name: x, key: client-ip, rate: 5/hour}\n",
		"bad.yaml":    "domain: a\nlimits:\n  - {name: x, key: client_ip, rate: 5/never}\n",
		"conf.yaml":   "stoer: {}\n",
		"a.log":       strings.Repeat("192.0.2.1 - - [09/Jun/2025:12:00:00 +0000] \"GET / HTTP/1.1\" 200 5 \"-\" \"-\"\n", 3),
		"none/x":      "",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(folder, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	nobody := redistest.FreeAddress(t)
	for line, want := range map[string]int{
		"":                                  exitOK,
		"version":                           exitOK,
		"help serve":                        exitOK,
		"serve --help":                      exitOK,
		"check good.yaml":                   exitOK,
		"check warned.yaml":                 exitOK,
		"check --strict good.yaml":          exitOK,
		"check --strict warned.yaml":        exitFailed,
		"check bad.yaml":                    exitFailed,
		"check none":                        exitFailed,
		"check missing.yaml":                exitFailed,
		"check --config conf.yaml":          exitFailed,
		"serve --rules bad.yaml":            exitFailed,
		"serve --rules missing.yaml":        exitFailed,
		"serve --config conf.yaml":          exitFailed,
		"test bad.yaml":                     exitFailed,
		"doctor --config conf.yaml":         exitFailed,
		"keys ls --address " + nobody:       exitFailed,
		"top --once --address " + nobody:    exitFailed,
		"diff --address " + nobody:          exitFailed,
		"simulate --rules good.yaml a.log":  exitOK,
		"simulate --rules bad.yaml a.log":   exitFailed,
		"simulate --rules good.yaml no.log": exitFailed,
		"simulate --rules good.yaml --compare tight.yaml --max-new-refusals 1 a.log": exitFailed,
		"simulate --rules good.yaml --compare tight.yaml --max-new-refusals 2 a.log": exitOK,
		"simulate --rules good.yaml --format odd a.log":                              exitUsage,
		"nope":                                exitUsage,
		"keys nope":                           exitUsage,
		"serve more":                          exitUsage,
		"serve --store postgres://x":          exitUsage,
		"serve --store redis://h:port":        exitUsage,
		"serve --listen-api 8080":             exitUsage,
		"serve --log-level loud":              exitUsage,
		"proxy --rules good.yaml":             exitUsage,
		"proxy --upstream x --rules x":        exitUsage,
		"keys --key a=b":                      exitUsage, // without what to do
		"keys bna --key a=b":                  exitUsage,
		"diff --max-new-refusals many":        exitUsage,
		"keys ban --entity a=b --for eternal": exitUsage,
	} {
		if got, printed := codeOf(t, folder, strings.Fields(line)...); got != want {
			t.Errorf("headgate %s: exit code %d, want %d:\n%s", line, got, want, printed)
		}
	}
}

// TestWrongFlagsAreUsage: 2 for an unknown flag of each command, and for a value that is
// none of the type of each flag.
func TestWrongFlagsAreUsage(t *testing.T) {
	folder := t.TempDir()
	var lines [][]string
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		path := strings.Fields(c.CommandPath())[1:]
		if c.Runnable() && c.Name() != "help" {
			lines = append(lines, append(path, "--no-such-flag"))
			c.LocalFlags().VisitAll(func(f *pflag.Flag) {
				if f.Value.Type() != "string" && !strings.HasPrefix(f.Value.Type(), "string") {
					lines = append(lines, append(slices.Clip(path), fmt.Sprintf("--%s=#?", f.Name)))
				}
			})
		}
		for _, below := range c.Commands() {
			walk(below)
		}
	}
	walk(newRoot(streams{}))
	if len(lines) < 50 {
		t.Errorf("only %d command lines", len(lines))
	}
	for _, args := range lines {
		if code, printed := codeOf(t, folder, args...); code != exitUsage || !strings.HasPrefix(printed, "error: ") {
			t.Errorf("headgate %q: exit code %d:\n%s", args, code, printed)
		}
	}
	t.Logf("%d command lines", len(lines))
}
