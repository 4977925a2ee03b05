package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Each console block of the page about access logs is run in the folder of the
// example, and its output compared.
func TestDocsOfAccessLogs(t *testing.T) {
	docs, err := filepath.Abs("../../docs")
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	if err := os.CopyFS(folder, os.DirFS("../../examples/access-log")); err != nil {
		t.Fatal(err)
	}
	t.Chdir(folder)
	// Swept keys and the memory of tables differ from run to run.
	memory := regexp.MustCompile(`Peak store size: \d+ keys?, [\d.]+ KiB`)
	blocks := regexp.MustCompile("(?ms)^```console\n(.*?)^```$")
	const page = "try/simulate.md"
	text, err := os.ReadFile(filepath.Join(docs, page))
	if err != nil {
		t.Fatal(err)
	}
	found := blocks.FindAllStringSubmatch(string(text), -1)
	if len(found) == 0 {
		t.Errorf("%s has no console block", page)
	}
	for _, block := range found {
		var out bytes.Buffer
		for line := range strings.Lines(block[1]) {
			if command, ok := strings.CutPrefix(line, "$ headgate "); ok {
				out.WriteString(line)
				runLine(t, strings.TrimSpace(command), &out)
			}
		}
		got, want := memory.ReplaceAllString(out.String(), "some"), memory.ReplaceAllString(block[1], "some")
		if strings.TrimSpace(got) != strings.TrimSpace(want) {
			t.Errorf("%s says\n%s\nbut it is\n%s", page, want, got)
		}
	}
	if text, err := os.ReadFile("comparison.txt"); err != nil || !strings.HasPrefix(string(text), "886 requests") {
		t.Errorf("%.80s, %v", text, err)
	}
	same(t, docs, page, "next/rules.yaml")
}

// runLine runs a command line, which may end in >FILE.
func runLine(t *testing.T, line string, out *bytes.Buffer) {
	t.Helper()
	line, file, to := strings.Cut(line, " >")
	s := streams{in: strings.NewReader(""), out: out, err: out}
	if to {
		f, err := os.Create(file)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = f.Close() }()
		s.out = f
	}
	if code := run(t.Context(), strings.Fields(line), s); code == exitUsage {
		t.Errorf("%s: exit code %d", line, code)
	}
}

// same fails if the rules on a page differ from those of a file, except for comments.
func same(t *testing.T, docs, page, file string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(docs, page))
	if err != nil {
		t.Fatal(err)
	}
	rules, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	rules = regexp.MustCompile(`(?m)^#.*\n`).ReplaceAll(rules, nil)
	if !bytes.Contains(text, append([]byte("```yaml\n"), rules...)) {
		t.Errorf("%s does not show what %s has", page, file)
	}
}
