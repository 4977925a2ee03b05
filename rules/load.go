package rules

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Source is the text of one rule file.
type Source struct {
	// Name is what diagnostics call it, usually its path.
	Name string
	Data []byte
}

// MaxFileSize is the size of the largest rule file that is read, in bytes.
const MaxFileSize = 8 << 20

// maxFolders is how deep folders may lie in folders.
const maxFolders = 16

// Load reads rule files and, of folders and the folders in them, all files
// that end in .yaml or .yml, sorted by their path. Whatever begins with a dot,
// such as the ..data of a Kubernetes ConfigMap, and what ends in _test.yaml or
// _test.yml is left out. A file that is named twice is read once.
//
// The error is a [Problems] with everything that is wrong. What is merely odd
// is in [Ruleset.Warnings].
func Load(paths ...string) (*Ruleset, error) { return Options{}.Load(paths...) }

// Load is [Load] with these options.
func (o Options) Load(paths ...string) (*Ruleset, error) {
	c := collector{seen: map[string]bool{}}
	for _, path := range paths {
		c.collect(path)
	}
	set, diagnostics := o.Parse(c.sources...)
	diagnostics = append(c.problems, diagnostics...)
	if set == nil || hasErrors(c.problems) {
		return nil, Problems(diagnostics)
	}
	set.warnings = diagnostics
	return set, nil
}

// collector gathers the files to read.
type collector struct {
	sources  []Source
	seen     map[string]bool
	problems []Diagnostic
	tests    bool // gather rule tests, not rules
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
		} else if c.tests {
			c.problems = append(c.problems, Diagnostic{File: path, Message: "not a file of rule tests", Hint: "they end in _test.yaml"})
		}
		return
	}
	before := len(c.seen)
	c.folder(path, 0)
	if len(c.seen) == before && len(c.problems) == 0 && !c.tests {
		c.problems = append(c.problems, Diagnostic{
			Severity: SeverityWarning, File: path, Message: "the folder has no rule files", Hint: "they end in .yaml or .yml",
		})
	}
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
		switch ext := filepath.Ext(name); {
		case strings.HasPrefix(e.Name(), "."):
		case e.IsDir():
			c.folder(name, depth+1)
		case (ext == ".yaml" || ext == ".yml") && IsTest(name) == c.tests:
			info, err := os.Stat(name)
			if err != nil {
				c.fail(name, err)
			} else if !info.IsDir() {
				c.read(name, info)
			}
		}
	}
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
	data, err := io.ReadAll(io.LimitReader(f, MaxFileSize+1))
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
	c.problems = append(c.problems, Diagnostic{File: path, Message: fmt.Sprintf("cannot be read: %v", err)})
}

func hasErrors(list []Diagnostic) bool {
	for _, d := range list {
		if d.Severity == SeverityError {
			return true
		}
	}
	return false
}
