package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Every command has a man page with all its flags, and the pages are valid roff
// that is the same in every run.
func TestManPages(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "86400")
	folders := []string{filepath.Join(t.TempDir(), "man1"), t.TempDir()}
	for _, folder := range folders {
		if code := run(t.Context(), []string{"man", folder}, streams{out: io.Discard, err: io.Discard}); code != exitOK {
			t.Fatalf("exit code %d", code)
		}
	}
	pages := 0
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		if c.Hidden || c.Name() == "help" {
			return
		}
		pages++
		name := manName(c) + ".1"
		page := readPage(t, folders[0], name)
		if page != readPage(t, folders[1], name) {
			t.Errorf("%s differs between two runs", name)
		}
		if !strings.HasPrefix(page, `.TH "`) || !strings.Contains(page, `" 1 "1970-01-02" "headgate`) {
			t.Errorf("%s: %.80s", name, page)
		}
		for _, section := range []string{"NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS"} {
			if strings.Count(page, "\n.SH "+section+"\n") != 1 {
				t.Errorf("%s does not have the section %s once", name, section)
			}
		}
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if !strings.Contains(page, `\fB\-\-`+strings.ReplaceAll(f.Name, "-", `\-`)+`\fR`) {
				t.Errorf("%s does not have the flag --%s", name, f.Name)
			}
		})
		checkRoff(t, name, page)
		for _, sub := range c.Commands() {
			visit(sub)
		}
	}
	visit(newRoot(streams{}))
	if files, err := os.ReadDir(folders[0]); err != nil || len(files) != pages {
		t.Errorf("%d files for %d commands, %v", len(files), pages, err)
	}
	if groff, err := exec.LookPath("groff"); err == nil {
		files, _ := filepath.Glob(filepath.Join(folders[0], "*"))
		out, err := exec.CommandContext(t.Context(), groff, append([]string{"-man", "-ww", "-z"}, files...)...).CombinedOutput()
		if err != nil || len(out) > 0 {
			t.Errorf("groff: %v\n%s", err, out)
		}
	}
}

func readPage(t *testing.T, folder, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// checkRoff fails for macros and escapes that man pages do not use.
func checkRoff(t *testing.T, name, page string) {
	t.Helper()
	request := regexp.MustCompile(`^\.(TH|SH|PP|TP|B|BR|nf|fi)( |$)`)
	escape := regexp.MustCompile(`\\(-|e|&|f[BIR]|\(dq)`)
	for line := range strings.Lines(page) {
		line = strings.TrimSuffix(line, "\n")
		if (strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'")) && !request.MatchString(line) {
			t.Errorf("%s: unknown macro in %q", name, line)
		}
		if strings.Contains(escape.ReplaceAllString(line, ""), `\`) {
			t.Errorf("%s: unknown escape in %q", name, line)
		}
	}
}

func TestRoff(t *testing.T) {
	for text, want := range map[string]string{
		"a\\b --c \"d\"": "a\\eb \\-\\-c \\(dqd\\(dq",
		".x\n'y\nz.":     "\\&.x\n\\&'y\nz.",
	} {
		if got := roff(text); got != want {
			t.Errorf("roff(%q) is %q, want %q", text, got, want)
		}
	}
}

// A wrong date is wrong usage, and a folder that cannot be made an error.
func TestManErrors(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		epoch, folder string
		code          int
		want          string
	}{
		{"soon", t.TempDir(), exitUsage, `error: SOURCE_DATE_EPOCH: "soon" is not a number of seconds`},
		{"", file, exitFailed, "error: mkdir "},
	} {
		t.Setenv("SOURCE_DATE_EPOCH", c.epoch)
		var out bytes.Buffer
		if code := run(t.Context(), []string{"man", c.folder}, streams{out: io.Discard, err: &out}); code != c.code || !strings.HasPrefix(out.String(), c.want) {
			t.Errorf("%q: exit code %d, %s", c.epoch, code, &out)
		}
	}
}
