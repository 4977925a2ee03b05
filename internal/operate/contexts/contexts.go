// Package contexts keeps the servers that the commands call: a name for each, with its
// address and the files with its credentials.
package contexts

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate/internal/base/atomicfile"
	"github.com/headgate/headgate/internal/base/diagnostic"
	"github.com/headgate/headgate/internal/base/nearest"
	"github.com/headgate/headgate/internal/rules/yamltext"
)

const (
	// maxFile is the size of the largest file that is read, in bytes.
	maxFile = 1 << 20
	// maxName is the length of the longest name, in bytes.
	maxName = 64
)

// Context is a server and how to reach it. It has no secrets, only their files.
type Context struct {
	Address   string `json:"address"`              // of the admin door: a URL, or host:port
	TokenFile string `json:"token_file,omitempty"` // has the token in its first line
	// API and APITokenFile are the same for the HTTP API.
	API          string `json:"api,omitempty"`
	APITokenFile string `json:"api_token_file,omitempty"`
	// CA has the authorities to trust, Cert and CertKey the client's certificate and its
	// key: PEM files.
	CA      string `json:"ca,omitempty"`
	Cert    string `json:"cert,omitempty"`
	CertKey string `json:"cert_key,omitempty"`
}

// keys are the keys of a context in the file.
func (c *Context) keys() []contextKey {
	return []contextKey{
		{"address", &c.Address, false},
		{"token_file", &c.TokenFile, true},
		{"api", &c.API, false},
		{"api_token_file", &c.APITokenFile, true},
		{"ca", &c.CA, true},
		{"cert", &c.Cert, true},
		{"cert_key", &c.CertKey, true},
	}
}

// contextKey is a key of a context and its value, which may be the name of a file.
type contextKey struct {
	key   string
	value *string
	file  bool
}

// Check returns what is wrong with c, or nil.
func (c *Context) Check() error {
	if c.Address == "" {
		return errors.New("the address is missing")
	}
	if err := checkAddress(c.Address, "the address", "token_file"); err != nil {
		return err
	}
	if c.API != "" {
		if err := checkAddress(c.API, "api", "api_token_file"); err != nil {
			return err
		}
	}
	if (c.Cert == "") != (c.CertKey == "") {
		return errors.New("cert and cert_key must be given together")
	}
	return nil
}

// checkAddress returns what is wrong with an address, which is not repeated: it may have
// a password.
func checkAddress(address, name, tokenFile string) error {
	if !strings.Contains(address, "://") {
		address = "http://" + address
	}
	u, err := url.Parse(address)
	switch {
	case err != nil, u.Host == "", u.Scheme != "http" && u.Scheme != "https":
		return errors.New(name + " is not a URL such as https://limits.example:6070")
	case u.User != nil:
		return errors.New(name + " has a user or a password: write the token to a file and set " + tokenFile)
	}
	return nil
}

// CheckName returns what is wrong with the name of a context, or nil.
func CheckName(name string) error {
	ok := name != "" && len(name) <= maxName && name[0] != '-' && name[0] != '.'
	for _, r := range name {
		ok = ok && (r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' || r == '.')
	}
	if !ok {
		return fmt.Errorf("invalid context name %.80q: want up to %d letters, digits, dots, hyphens and underscores, and no dot or hyphen first", name, maxName)
	}
	return nil
}

// File is the content of a file of contexts.
type File struct {
	Path    string // where it is, or would be
	Current string // the context in use; empty if none
	All     map[string]Context
}

// UnknownError says that there is no context of that name.
type UnknownError struct{ Name, Path, hint string }

// Error names the context and the file.
func (e *UnknownError) Error() string {
	return fmt.Sprintf("no context %q in %s", e.Name, e.Path)
}

// Hint suggests a name.
func (e *UnknownError) Hint() string { return e.hint }

// Names returns the names of the contexts, sorted.
func (f *File) Names() []string { return slices.Sorted(maps.Keys(f.All)) }

// Get returns a context, or an *UnknownError.
func (f *File) Get(name string) (Context, error) {
	c, ok := f.All[name]
	if ok {
		return c, nil
	}
	return c, &UnknownError{name, f.Path, f.hint(name)}
}

// hint suggests a name instead of one that does not exist.
func (f *File) hint(name string) string {
	if near := nearest.Word(name, f.Names()); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	if len(f.All) > 0 {
		return "contexts: " + strings.Join(f.Names(), ", ")
	}
	return "make it with headgate context set"
}

// Read reads the file; one that does not exist has no contexts. The error is a
// diagnostic.Problems if the file is wrong. Relative names of files in it are relative
// to its folder.
func Read(path string) (*File, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &File{Path: path, All: map[string]Context{}}, nil
	case err != nil:
		return nil, err
	case info.IsDir(), info.Size() > maxFile:
		return nil, diagnostic.Problems{{File: path, Message: "this is a folder, or larger than 1 MiB; contexts are one small file"}}
	}
	src, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, src)
}

// Parse is Read of the text src.
func Parse(path string, src []byte) (*File, error) {
	p := parser{&yamltext.Report{File: path, Secrets: true}}
	f := &File{Path: path, All: map[string]Context{}}
	docs := yamltext.Read(src, p.Report)
	switch {
	case len(docs) > 1:
		p.Errorf(docs[1], "", "contexts must be a single YAML document; this is a second one")
	case len(docs) == 1 && docs[0].Kind != yamltext.Null:
		p.file(docs[0], f)
	}
	if problems := p.Sorted(); diagnostic.HasErrors(problems) {
		return nil, diagnostic.Problems(problems)
	}
	return f, nil
}

type parser struct{ *yamltext.Report }

func (p parser) file(n *yamltext.Node, f *File) {
	fields := p.Fields(n, "the contexts", []string{"current", "contexts"})
	if list := fields.Get("contexts"); list != nil && list.Kind != yamltext.Map {
		p.Errorf(list, "", "contexts must be a mapping of names to contexts")
	} else if list != nil {
		for _, pair := range list.Pairs {
			p.context(pair, f)
		}
	}
	current := fields.Get("current")
	if current == nil {
		return
	}
	f.Current, _ = p.Word(current, "current")
	if f.All[f.Current] == (Context{}) && f.Current != "" && p.Errors == 0 {
		hint := "remove this line"
		if len(f.All) > 0 {
			hint = f.hint(f.Current)
		}
		p.Errorf(current, hint, "current: there is no context %q", f.Current)
	}
}

func (p parser) context(pair yamltext.Pair, f *File) {
	name := pair.Key.Text
	if err := CheckName(name); err != nil {
		p.Errorf(pair.Key, "", "%s", err)
		return
	}
	var c Context
	var known []string
	for _, k := range c.keys() {
		known = append(known, k.key)
	}
	before := p.Errors
	fields := p.Fields(pair.Value, fmt.Sprintf("context %q", name), known)
	for _, k := range c.keys() {
		n := fields.Get(k.key)
		if n == nil {
			continue
		}
		*k.value, _ = p.Word(n, k.key)
		if k.file && *k.value != "" && !filepath.IsAbs(*k.value) {
			*k.value = filepath.Join(filepath.Dir(f.Path), *k.value)
		}
	}
	if p.Errors > before {
		return
	}
	if err := c.Check(); err != nil {
		p.Errorf(pair.Key, "", "context %q: %s", name, err)
	}
	f.All[name] = c
}

// Write writes the file, and makes its folder if needed. Comments in it are not kept.
func (f *File) Write() error {
	if err := os.MkdirAll(filepath.Dir(f.Path), 0o700); err != nil {
		return err
	}
	return atomicfile.Write(f.Path, f.Text())
}

// Text returns the content of the file.
func (f *File) Text() []byte {
	var b strings.Builder
	b.WriteString("# Written by headgate context, which keeps no comments.\n")
	if f.Current != "" {
		fmt.Fprintf(&b, "current: %s\n", strconv.Quote(f.Current))
	}
	if len(f.All) > 0 {
		b.WriteString("contexts:\n")
	}
	for _, name := range f.Names() {
		c := f.All[name]
		fmt.Fprintf(&b, "  %s:\n", strconv.Quote(name))
		for _, k := range c.keys() {
			if *k.value != "" {
				fmt.Fprintf(&b, "    %s: %s\n", k.key, strconv.Quote(*k.value))
			}
		}
	}
	return []byte(b.String())
}
