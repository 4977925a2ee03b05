// Package rulefile reads rule files, and folders of them, into a Ruleset. It leaves the
// parsing of rules to packages ownform and envoyform.
package rulefile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/base/diagnostic"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/yamltext"
)

// Source is the text of one rule file.
type Source struct {
	// Name is the name in diagnostics, usually the path.
	Name string
	Data []byte
}

// maxFolders is how deeply folders may be nested.
const maxFolders = 16

// Load reads rule files. In folders and their subfolders it reads all files that end in
// .yaml or .yml, sorted by path, except names that start with a dot, such as the ..data
// of a Kubernetes ConfigMap, and those that end in _test.yaml or _test.yml. A file that
// is named twice is read once. With rules.CompatEnvoy it reads files of any name in
// folders, also those that start with one dot, unless IgnoreDotFiles is set; a warning
// names files that the original reads and Load does not.
//
// The error is a diagnostic.Problems with all errors. Warnings are in
// [rules.Ruleset.Warnings].
func Load(paths ...string) (*rules.Ruleset, error) { return Options{}.Load(paths...) }

// Load is [Load] with these options.
func (o Options) Load(paths ...string) (*rules.Ruleset, error) {
	c := collector{seen: map[string]bool{}, anyName: o.Compat == rules.CompatEnvoy, dotFiles: o.Compat == rules.CompatEnvoy && !o.IgnoreDotFiles}
	for _, path := range o.Expand(paths...) {
		c.collect(path)
	}
	o.Tables.begin()
	open := func(path string) (io.ReadCloser, error) {
		c.used = append(c.used, filepath.Clean(path))
		return o.Tables.open(path)
	}
	set, diagnostics := o.parse(c.found, c.sources, open)
	o.Tables.end(set != nil)
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
	// anyName reads files of any name as rules, dotFiles also those that start with
	// one dot.
	anyName, dotFiles bool
	left              []string // files in a folder that are not named like rule files
	folders           []ignoring
	used              []string // the tables and lists that rules name
}

// ignoring is a folder with the files in it that are not named like rule files.
type ignoring struct {
	path string
	none bool // it has no others
	left []string
}

// found returns the problems with the files, once it is known which of them rules use.
func (c *collector) found() []diagnostic.Diagnostic {
	problems := c.problems
	for _, f := range c.folders {
		if d, ok := f.tell(c.used); ok {
			problems = append(problems, d)
		}
	}
	return problems
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
		c.folders = append(c.folders, ignoring{path, len(c.seen) == before, c.left})
	}
}

// tell reports the ignored files of a folder, besides those that rules use. It is an
// error if there are no others, since otherwise nothing would be limited.
func (f *ignoring) tell(used []string) (diagnostic.Diagnostic, bool) {
	const hint = "rule files end in .yaml or .yml; with compat: envoy in the settings any name works"
	var left []string
	for _, name := range f.left {
		if !slices.Contains(used, filepath.Clean(name)) {
			left = append(left, filepath.Base(name))
		}
	}
	d := diagnostic.Diagnostic{Severity: diagnostic.SeverityWarning, File: f.path, Message: "no rule files in this folder", Hint: "rule files end in .yaml or .yml"}
	switch n := len(left); {
	case n == 0 && !f.none:
		return d, false
	case n > 0:
		d.Message, d.Hint = "files in this folder are ignored: "+listed(left), hint
		if f.none {
			d.Severity, d.Message = diagnostic.SeverityError, "no rule files in this folder, only "+listed(left)
		}
	}
	return d, true
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

// tellOfTest warns about a file that has rules but is named like rule tests.
func (c *collector) tellOfTest(name string) {
	info, err := os.Stat(name)
	if err != nil || !info.Mode().IsRegular() || info.Size() > yamltext.MaxFileSize {
		return
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return // reading the tests reports it
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

// hasLine reports whether a line of data starts with one of some words.
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

// tellOfDotFolder warns about a folder that is ignored for its name, and which
// envoyproxy/ratelimit reads. Folders of a ConfigMap, with two dots, are read through
// links.
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

// leave notes a file that is ignored, except documentation.
func (c *collector) leave(name string) {
	if ext := filepath.Ext(name); ext == ".md" || ext == ".txt" {
		return
	}
	if info, err := os.Stat(name); err == nil && info.Mode().IsRegular() {
		c.left = append(c.left, name)
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

// read adds one file, up to the maximum size.
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

// FindTests reads rule tests: the named files, and in folders and their subfolders all
// files that end in _test.yaml or _test.yml, sorted by path.
func FindTests(paths ...string) ([]Source, []diagnostic.Diagnostic) {
	c := collector{seen: map[string]bool{}, tests: true}
	for _, path := range paths {
		c.collect(path)
	}
	return c.sources, c.problems
}
