// Package rulefile reads rule files, and folders of them, into a Ruleset. Of each
// document it reads what all forms share, and leaves the rest to the parser of its
// form, package ownform or envoyform.
package rulefile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/headgate/headgate/internal/base/diagnostic"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/yamltext"
)

// Source is the text of one rule file.
type Source struct {
	// Name is what diagnostics call it, usually its path.
	Name string
	Data []byte
}

// maxFolders is how deep folders may lie in folders.
const maxFolders = 16

// Load reads rule files and, of folders and the folders in them, all files
// that end in .yaml or .yml, sorted by their path. Whatever begins with a dot,
// such as the ..data of a Kubernetes ConfigMap, and what ends in _test.yaml or
// _test.yml is left out. A file that is named twice is read once. Under
// [CompatEnvoy] of folders all files are read, whatever their names, which may
// begin with a dot too, unless it says IgnoreDotFiles, but not with two; of
// what the original reads and this leaves out, a warning tells.
//
// The error is a [Problems] with everything that is wrong. What is merely odd
// is in [Ruleset.Warnings].
func Load(paths ...string) (*rules.Ruleset, error) { return Options{}.Load(paths...) }

// Load is [Load] with these options.
func (o Options) Load(paths ...string) (*rules.Ruleset, error) {
	c := collector{seen: map[string]bool{}, anyName: o.Compat == rules.CompatEnvoy, dotFiles: o.Compat == rules.CompatEnvoy && !o.IgnoreDotFiles}
	for _, path := range o.Expand(paths...) {
		c.collect(path)
	}
	set, diagnostics := o.parse(c.problems, c.sources)
	if set == nil {
		return nil, diagnostic.Problems(diagnostics)
	}
	return set, nil
}

// collector gathers the files to read.
type collector struct {
	sources  []Source
	seen     map[string]bool
	problems []diagnostic.Diagnostic
	tests    bool // gather rule tests, not rules
	// anyName takes files of any name for rules, dotFiles also those that begin
	// with one dot.
	anyName, dotFiles bool
	left              []string // the files of a folder that have no name of a rule file
}

// collect adds a path that the caller named.
func (c *collector) collect(path string) {
	info, err := os.Stat(path)
	if err != nil {
		c.fail(path, err)
		return
	}
	if !info.IsDir() {
		if IsTest(path) == c.tests {
			c.read(path, info)
		} else if !c.tests {
			c.tellOfTest(path)
		} else {
			c.problems = append(c.problems, diagnostic.Diagnostic{File: path, Message: "not a rule test file", Hint: "rule tests end in _test.yaml"})
		}
		return
	}
	before, problems := len(c.seen), len(c.problems)
	c.left = nil
	c.folder(path, 0)
	if !c.tests && !diagnostic.HasErrors(c.problems[problems:]) {
		c.tellOfFolder(path, len(c.seen) == before)
	}
}

// tellOfFolder reports what was not read of a folder: where that is all there
// is, nothing would be limited without a word.
func (c *collector) tellOfFolder(path string, none bool) { //nolint:revive // what was found, not a choice
	const hint = "rule files end in .yaml or .yml; with compat: envoy in the settings any name works"
	d := diagnostic.Diagnostic{Severity: diagnostic.SeverityWarning, File: path, Message: "no rule files in this folder", Hint: "rule files end in .yaml or .yml"}
	switch n := len(c.left); {
	case n == 0 && !none:
		return
	case n > 0:
		d.Message, d.Hint = "files in this folder are ignored: "+listed(c.left), hint
		if none {
			d.Severity, d.Message = diagnostic.SeverityError, "no rule files in this folder, only "+listed(c.left)
		}
	}
	c.problems = append(c.problems, d)
}

// listed names some of the files, and how many more there are.
func listed(names []string) string {
	const most = 5
	text := strings.Join(names[:min(len(names), most)], ", ")
	if more := len(names) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// folder adds the rule files of a folder, sorted, as os.ReadDir does. It
// follows links to files, as a ConfigMap consists of those, but not to
// folders, which could go round in circles.
func (c *collector) folder(path string, depth int) {
	if depth > maxFolders {
		c.fail(path, errors.New("folders are nested too deeply"))
		return
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		c.fail(path, err)
		return
	}
	for _, e := range entries {
		name := filepath.Join(path, e.Name())
		switch {
		case strings.HasPrefix(e.Name(), "..") || strings.HasPrefix(e.Name(), ".") && (!c.dotFiles || e.IsDir()):
			c.tellOfDotFolder(name, e)
		case e.IsDir():
			c.folder(name, depth+1)
		case IsTest(name) && !c.tests:
			c.tellOfTest(name)
		case c.tests && !IsTest(name):
		case c.tests || c.anyName || isRuleFile(name):
			c.entry(name)
		default:
			c.leave(name)
		}
	}
}

// entry adds a file of a folder, or what a link leads to if that is a file.
func (c *collector) entry(name string) {
	info, err := os.Stat(name)
	if err != nil {
		c.fail(name, err)
	} else if !info.IsDir() {
		c.read(name, info)
	}
}

// tellOfTest warns of a file that is not read for its name, and yet has rules.
func (c *collector) tellOfTest(name string) {
	info, err := os.Stat(name)
	if err != nil || !info.Mode().IsRegular() || info.Size() > yamltext.MaxFileSize {
		return
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return // who reads tests will tell
	}
	if d := (diagnostic.Diagnostic{
		Severity: diagnostic.SeverityWarning, File: name,
		Message: "the file has rules but is ignored: its name marks it as rule tests",
		Hint:    "rename it so that it does not end in _test.yaml",
	}); hasLine(data, "limits:", "descriptors:") {
		c.problems = append(c.problems, d)
	} else if c.anyName && !hasLine(data, "tests:") {
		d.Message = "the file is ignored: its name marks it as rule tests, but envoyproxy/ratelimit reads it as rules"
		c.problems = append(c.problems, d)
	}
}

// hasLine reports whether a line of data begins with one of some words.
func hasLine(data []byte, words ...string) bool {
	for line := range bytes.Lines(data) {
		for _, word := range words {
			if bytes.HasPrefix(line, []byte(word)) {
				return true
			}
		}
	}
	return false
}

// tellOfDotFolder warns of a folder that is left out for its name, and which
// envoyproxy/ratelimit reads. Those of a ConfigMap, with two dots, are there a
// second time by links.
func (c *collector) tellOfDotFolder(name string, e fs.DirEntry) {
	if !e.IsDir() || !c.dotFiles || strings.HasPrefix(e.Name(), "..") {
		return
	}
	var found []string
	_ = filepath.WalkDir(name, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() && isRuleFile(path) {
			found = append(found, e.Name())
		}
		return nil // what cannot be read is no rule file
	})
	if len(found) > 0 {
		c.problems = append(c.problems, diagnostic.Diagnostic{
			Severity: diagnostic.SeverityWarning, File: name,
			Message: "files are ignored because the folder name starts with a dot, but envoyproxy/ratelimit reads them: " + listed(found),
			Hint:    "move them, or set ignore_dot_files (RUNTIME_IGNOREDOTFILES) so that neither reads them",
		})
	}
}

// leave takes note of a file that is not read. Of those that explain others
// nobody thinks that they are rules.
func (c *collector) leave(name string) {
	if ext := filepath.Ext(name); ext == ".md" || ext == ".txt" {
		return
	}
	if info, err := os.Stat(name); err == nil && info.Mode().IsRegular() {
		c.left = append(c.left, filepath.Base(name))
	}
}

func isRuleFile(name string) bool {
	ext := filepath.Ext(name)
	return ext == ".yaml" || ext == ".yml"
}

// IsTest reports whether path, by its name, holds rule tests rather than rules.
func IsTest(path string) bool {
	return strings.HasSuffix(path, "_test.yaml") || strings.HasSuffix(path, "_test.yml")
}

// read adds one file, of which it reads no more than may be used.
func (c *collector) read(path string, info fs.FileInfo) {
	clean := filepath.Clean(path)
	if c.seen[clean] {
		return
	}
	c.seen[clean] = true
	if !info.Mode().IsRegular() {
		c.fail(path, errors.New("not a regular file"))
		return
	}
	f, err := os.Open(path)
	if err != nil {
		c.fail(path, err)
		return
	}
	data, err := io.ReadAll(io.LimitReader(f, yamltext.MaxFileSize+1))
	if err := errors.Join(err, f.Close()); err != nil {
		c.fail(path, err)
		return
	}
	c.sources = append(c.sources, Source{Name: path, Data: data})
}

func (c *collector) fail(path string, err error) {
	// The path is in the diagnostic already; os repeats it.
	if inner, ok := errors.AsType[*fs.PathError](err); ok {
		err = inner.Err
	}
	c.problems = append(c.problems, diagnostic.Diagnostic{File: path, Message: fmt.Sprintf("cannot be read: %v", err)})
}

// FindTests reads rule tests: the files that are named, and of folders and the
// folders in them all files that end in _test.yaml or _test.yml, sorted by
// their path.
func FindTests(paths ...string) ([]Source, []diagnostic.Diagnostic) {
	c := collector{seen: map[string]bool{}, tests: true}
	for _, path := range paths {
		c.collect(path)
	}
	return c.sources, c.problems
}
