package contexts_test

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/operate/contexts"
)

// What is written is read again, and only its owner can read it.
func TestWriteThenRead(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	f, err := contexts.Read(filepath.Join(folder, "new", "contexts.yaml"))
	if err != nil || len(f.All) != 0 || f.Current != "" {
		t.Fatalf("a file that does not exist: %+v, %v", f, err)
	}
	f.Current = "eu-1"
	f.All["eu-1"] = contexts.Context{
		Address: "https://limits.example:6070", TokenFile: `/run/"odd": \file #1`, API: "limits.example:8080", APITokenFile: "/run/api", CA: "/ca.pem", Cert: "/c\u00e9.pem", CertKey: "/key\u2028.pem",
	}
	f.All["007"] = contexts.Context{Address: "127.0.0.1:6070"} // no number
	f.All["true"] = contexts.Context{Address: "localhost:1"}
	if err := f.Write(); err != nil {
		t.Fatal(err)
	}
	again, err := contexts.Read(f.Path)
	if err != nil || !reflect.DeepEqual(again, f) {
		t.Errorf("read %+v, %v; wrote\n%s", again, err, f.Text())
	}
	if info, err := os.Stat(f.Path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if got := strings.Join(f.Names(), " "); got != "007 eu-1 true" {
		t.Errorf("names %s", got)
	}
}

// Files are relative to the folder of contexts.yaml, as in a configuration.
func TestRelativeFiles(t *testing.T) {
	t.Parallel()
	f, err := contexts.Parse("/etc/hg/contexts.yaml", []byte("contexts: {a: {address: 'h:1', token_file: token, ca: /ca.pem}}"))
	if want := (contexts.Context{Address: "h:1", TokenFile: filepath.FromSlash("/etc/hg/token"), CA: "/ca.pem"}); err != nil || f.All["a"] != want {
		t.Errorf("%+v, %v", f, err)
	}
}

func TestMistakes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"current: a": `c.yaml:1:10: current: there is no context "a"; remove this line`,
		"contexts: {prod: {address: 'h:1'}}\ncurrent: prd": `c.yaml:2:10: current: there is no context "prd"; did you mean "prod"?`,
		"contexts: [a]":                                             "c.yaml:1:11: contexts must be a mapping of names to contexts",
		"contexts: {a: {adress: 'h:1'}}":                            `c.yaml:1:16: unknown key "adress" in context "a", did you mean "address"?`,
		"contexts: {a: {ca: x}}":                                    `c.yaml:1:12: context "a": the address is missing`,
		"contexts: {a: {address: 'h:1', cert: x}}":                  `c.yaml:1:12: context "a": cert and cert_key must be given together`,
		"contexts: {a: {address: 'https://u:sesame@h'}}":            `c.yaml:1:12: context "a": the address has a user or a password`,
		"contexts: {a: {address: 'h:1', api: 'http://u:sesame@h'}}": `c.yaml:1:12: context "a": api has a user or a password: write the token to a file and set api_token_file`,
		"contexts: {a: {address: 'h:1', api: 'h:sesame:1'}}":        `c.yaml:1:12: context "a": api is not a URL`,
		"contexts: {a: {address: 'ftp://h'}}":                       `c.yaml:1:12: context "a": the address is not a URL`,
		"contexts: {a: {address: 'http://:sesame@'}}":               `c.yaml:1:12: context "a": the address is not a URL`,
		"contexts: {-a: {address: 'h:1'}}":                          `c.yaml:1:12: invalid context name "-a"`,
		"contexts: {a: {address: 'h:1', token: sesame}}":            `unknown key "token" in context "a"; use one of address, token_file`,
		"a: &a [*a]":                  "c.yaml:1:",
		"current: a\n---\ncurrent: b": "c.yaml:3:1: contexts must be a single YAML document",
	} {
		f, err := contexts.Parse("c.yaml", []byte(text))
		if err == nil || f != nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "sesame") {
			t.Errorf("%s: the error repeats a secret: %v", text, err)
		}
	}
	if _, err := contexts.Read(t.TempDir()); err == nil || !strings.Contains(err.Error(), "this is a folder") {
		t.Errorf("a folder: %v", err)
	}
}

func TestUnknownNames(t *testing.T) {
	t.Parallel()
	f := &contexts.File{Path: "c.yaml", All: map[string]contexts.Context{"production": {}, "staging": {}}}
	for name, want := range map[string]string{
		"prodution": `did you mean "production"?`,
		"x":         "contexts: production, staging",
	} {
		_, err := f.Get(name)
		if unknown, ok := errors.AsType[*contexts.UnknownError](err); !ok || unknown.Hint() != want {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, ok := range map[string]bool{"": false, ".": false, "a/b": false, "a b": false, "é": false, strings.Repeat("a", 65): false, "_a.b-C": true} {
		if err := contexts.CheckName(name); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("current: a\ncontexts:\n  a: {address: 'https://h:1', token_file: t, api: 'h:2', api_token_file: u, ca: c, cert: p, cert_key: k}\n")
	f.Add("contexts: {a: &a {address: 'h:1'}, b: *a}")
	f.Add("contexts: {a: {<<: {address: h}}}")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := contexts.Parse("/c/contexts.yaml", []byte(text))
		if (got == nil) != (err != nil) {
			t.Fatalf("%v and %v", got, err)
		}
		if err != nil {
			return
		}
		again, err := contexts.Parse("/c/contexts.yaml", got.Text())
		if err != nil || !reflect.DeepEqual(again, got) {
			t.Errorf("%+v became %+v, %v:\n%s", got, again, err, got.Text())
		}
	})
}
