package yamltext_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/base/diagnostic"
	"github.com/headgate/headgate/internal/rules/yamltext"
)

// If values may be secrets, errors do not repeat them.
func TestSecretsAreNotRepeated(t *testing.T) {
	t.Parallel()
	for _, src := range []string{"token: *hunter2\n", "token: !hunter2 x\n", "token: @hunter2\n", "token: %hunter2\n", "token: a: hunter2\n", "token: [hunter2\n", "token: \"hunter2\n"} {
		report := yamltext.Report{File: "f", Secrets: true}
		yamltext.Read([]byte(src), &report)
		problems := diagnostic.Problems(report.Sorted())
		if len(problems) == 0 || strings.Contains(problems.Error(), "hunter2") {
			t.Errorf("%q: %v", src, problems)
		}
	}
}

// A whole number is one of decimal digits; what other notations make of it is not
// what its writer sees.
func TestInteger(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"5": "5", "-3": "-3", "1_000": "1000", "0": "0",
		"010": "decimal digits", "0x10": "decimal digits", "0o17": "decimal digits", "1.5": "decimal digits", "1e3": "decimal digits",
		"1001": "from -10 to 1000", "99999999999999999999": "from -10 to 1000", "-11": "from -10 to 1000",
		`"5"`: "must be a whole number, not text; remove the quotes", "true": "must be a whole number",
	} {
		report := yamltext.Report{File: "f"}
		docs := yamltext.Read([]byte(text), &report)
		if len(docs) != 1 {
			t.Fatalf("%s: %v", text, report.Sorted())
		}
		got := ""
		if n, ok := report.Integer(docs[0], "n", -10, 1000); ok {
			got = fmt.Sprint(n)
		} else {
			got = diagnostic.Problems(report.Sorted()).Error()
		}
		if got != want && (len(report.Sorted()) == 0 || !strings.Contains(got, want)) {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// show writes a node in one line: text as it is, lists and mappings in brackets.
func show(n *yamltext.Node) string {
	var out []string
	switch n.Kind {
	case yamltext.List:
		for _, item := range n.Items {
			out = append(out, show(item))
		}
		return "[" + strings.Join(out, " ") + "]"
	case yamltext.Map:
		for _, p := range n.Pairs {
			out = append(out, show(p.Key)+":"+show(p.Value))
		}
		return "{" + strings.Join(out, " ") + "}"
	case yamltext.Null:
		return "~"
	case yamltext.Bool, yamltext.Number:
		return n.Text + "!"
	case yamltext.Text:
	}
	return n.Text
}

type reader func([]byte, *yamltext.Report) []*yamltext.Node

// run reads a file and returns its documents, and what is said, each in a line.
func (read reader) run(src string) (docs, said string) {
	report := yamltext.Report{File: "f"}
	for _, doc := range read([]byte(src), &report) {
		docs += show(doc) + ";"
	}
	for _, d := range report.Sorted() {
		said += fmt.Sprintf("%d:%d: %s; %s\n", d.Line, d.Column, d.Message, d.Hint)
	}
	return docs, said
}

// What YAML says arrives as nodes; aliases and merged mappings are resolved.
func TestRead(t *testing.T) {
	t.Parallel()
	for src, want := range map[string]string{
		"":                                  "",
		"# nothing\n":                       "",
		"a: 1\nb: [x, \"2\", ~, yes, true]": "{a:1! b:[x 2 ~ yes true!]};",
		"a: 1\n---\nb: 2\n":                 "{a:1!};{b:2!};",
		"a: &x [1]\nb: *x\n":                "{a:[1!] b:[1!]};",
		"a: &x {p: 1, q: 2}\nb: {<<: *x, q: 3}\n":               "{a:{p:1! q:2!} b:{q:3! p:1!}};",
		"a: &x {p: 1}\nb: &y {p: 2, q: 2}\nc: {<<: [*x, *y]}\n": "{a:{p:1!} b:{p:2! q:2!} c:{p:1! q:2!}};",
		"d: 2026-11-22\n":            "{d:2026-11-22};",
		"t: |\n  two\n  lines\n":     "{t:two\nlines\n};",
		"f: 1.5\ng: 0x10\nh: .inf\n": "{f:1.5! g:0x10! h:.inf!};",
		"[1, {a: b}]":                "[1! {a:b}];",
	} {
		if docs, said := reader(yamltext.Read).run(src); docs != want || said != "" {
			t.Errorf("%q: %s %s", src, docs, said)
		}
	}
}

// Errors have their line and column, and a hint.
func TestMistakesOfYAML(t *testing.T) {
	t.Parallel()
	for src, want := range map[string]string{
		"a: 1\na: 2\n":              `2:1: duplicate key "a", first on line 1`,
		"a: &x [*x]\n":              `1:8: the alias "*x" refers to itself`,
		"a: *x\n":                   "put values that start with * in quotes",
		"a:\n\tb: 1\n":              "indent with spaces, not tabs",
		"a: @b\n":                   "put values that start with @, % or ` in quotes",
		"a: b: c\n":                 "put values that contain \": \" in quotes",
		"a: 1\nb\nc: 2\n":           "3:1: not valid YAML: could not find expected ':'; write key: value",
		"l:\n  - a b\n    c: d\n":   "3:6: not valid YAML: mapping values are not allowed in this context; write a colon and a space after the key on line 2",
		"l\n\n# a: b\n  - a: b\n":   "write a colon and a space after the key on line 1",
		"a: {b: ^/c{2,3}$}\n":       "close the bracket, and put values that contain [ ] { } or a comma in quotes",
		"a: !own b\n":               `1:4: the tag "!own" is not supported; put values that start with ! in quotes`,
		"[a]: 1\n":                  "1:1: a key must be text",
		"<<: 5\n":                   "1:5: << needs a mapping or a list of mappings",
		"<<: [[a]]\n":               "<< needs a mapping or a list of mappings",
		"a: \"\x01\"\n":             "1:5: the control character 0x01 is not allowed",
		"a: \xff\n":                 "1:4: the file is not valid UTF-8 (byte 0xff)",
		"ä: \xff\n":                 "1:4: the file is not valid UTF-8 (byte 0xff)",
		strings.Repeat("[", 40):     "values are nested too deeply",
		strings.Repeat("a", 9<<20):  "the file is larger than 8 MiB; split it into several files",
		strings.Repeat("- \n", 1e6): "the file has more than 1000000 values",
		"a: &a [1,1,1,1,1,1,1,1,1,1]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]\n" +
			"e: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: [*e,*e,*e,*e,*e,*e,*e,*e,*e,*e]\n": "more than 1000000 values once its aliases are expanded",
	} {
		if _, said := reader(yamltext.Read).run(src); !strings.Contains(said, want) {
			t.Errorf("%.80q: %q, want %q", src, said, want)
		}
	}
}

// Files of Envoy's service are read as it does: the last of a key counts, the first of
// the documents, and rate_limit adds up.
func TestReadAsEnvoy(t *testing.T) {
	t.Parallel()
	first := reader(yamltext.ReadFirst)
	for src, want := range map[string]string{
		"a: 1\n---\nb: 2\n":                  "{a:1!};",
		"---\n---\na: 1\n---\nb: 2\n":        "~;{a:1!};",
		"a: 1\n---\nlimits: []\n---\nc: 3\n": "{a:1!};{limits:[]};",
		"a: 1\n---\nb: [\n":                  "{a:1!};",
	} {
		docs, said := first.run(src)
		if docs != want || !strings.Contains(said, "reads only the first document") {
			t.Errorf("%q: %s %s", src, docs, said)
		}
	}
	last := reader(func(src []byte, r *yamltext.Report) []*yamltext.Node {
		docs := yamltext.ReadDocuments(src, r)
		for _, doc := range docs {
			r.TakeLast(doc)
		}
		return docs
	})
	for src, want := range map[string][2]string{
		"a: 1\na: 2\n": {"{a:2!};", `2:1: duplicate key "a": the one on line 1 is ignored`},
		"rate_limit: {unit: day, n: 1}\nrate_limit: {n: 2, m: 3}\n": {"{rate_limit:{unit:day n:2! m:3!}};", `its keys are merged into those on line 1`},
		"rate_limit: {n: 1}\nrate_limit: 5\n":                       {"{rate_limit:5!};", "is ignored"},
	} {
		if docs, said := last.run(src); docs != want[0] || !strings.Contains(said, want[1]) {
			t.Errorf("%q: %s %s", src, docs, said)
		}
	}
}

// Values that are not what a key wants are refused, each with what would be right.
func TestFields(t *testing.T) {
	t.Parallel()
	const src = "text: x\nempty: \"\"\nnumber: 5\nyes: true\nlist: [a, 5]\nnone: []\nmap: {a: 1}\nnull:\n"
	for what, row := range map[string]struct {
		read func(r *yamltext.Report, f yamltext.Fields) any
		want string
	}{
		"word": {func(r *yamltext.Report, f yamltext.Fields) any {
			s, ok := r.Word(f.Get("text"), "k")
			return fmt.Sprint(s, ok)
		}, "xtrue"},
		"empty word":     {func(r *yamltext.Report, f yamltext.Fields) any { _, ok := r.Word(f.Get("empty"), "k"); return ok }, `false 2:8: "k" is empty`},
		"number as word": {func(r *yamltext.Report, f yamltext.Fields) any { _, ok := r.Word(f.Get("number"), "k"); return ok }, `false 3:9: "k" must be text, not a number; put it in quotes`},
		"bool as word":   {func(r *yamltext.Report, f yamltext.Fields) any { _, ok := r.Word(f.Get("yes"), "k"); return ok }, `put it in quotes`},
		"list as word":   {func(r *yamltext.Report, f yamltext.Fields) any { _, ok := r.Word(f.Get("list"), "k"); return ok }, `"k" must be text, not a list`},
		"span":           {func(r *yamltext.Report, f yamltext.Fields) any { _, ok := r.Span(f.Get("number"), "k"); return ok }, `"k" must be a duration such as 5s, not a number; for seconds, write 5s`},
		"integer": {func(r *yamltext.Report, f yamltext.Fields) any {
			v := int64(7)
			return fmt.Sprint(r.IntegerOf(f, "number", 1, 9, &v), v)
		}, "true 5"},
		"no integer": {func(r *yamltext.Report, f yamltext.Fields) any {
			v := int64(7)
			return fmt.Sprint(r.IntegerOf(f, "absent", 1, 9, &v), v)
		}, "false 7"},
		"large integer": {func(r *yamltext.Report, f yamltext.Fields) any {
			v := int64(7)
			return fmt.Sprint(r.IntegerOf(f, "number", 1, 4, &v), v)
		}, `false 7 3:9: "number" must be from 1 to 4, not 5`},
		"texts":   {func(r *yamltext.Report, f yamltext.Fields) any { return len(r.Texts(f.Get("text"), "k")) }, "1"},
		"list":    {func(r *yamltext.Report, f yamltext.Fields) any { return len(r.Texts(f.Get("list"), "k")) }, `1 5:11: "k" must be text, not a number`},
		"no list": {func(r *yamltext.Report, f yamltext.Fields) any { return len(r.Texts(f.Get("none"), "k")) }, `0 6:7: the list of "k" is empty`},
		"keys": {func(r *yamltext.Report, f yamltext.Fields) any {
			return len(r.Fields(f.Get("map"), "the map", []string{"aa"}))
		}, `0 7:7: unknown key "a" in the map`},
	} {
		report := &yamltext.Report{File: "f"}
		doc := yamltext.Read([]byte(src), report)[0]
		f := yamltext.Fields{}
		for _, p := range doc.Pairs {
			f[p.Key.Text] = p
		}
		got := fmt.Sprint(row.read(report, f))
		for _, d := range report.Sorted() {
			got += fmt.Sprintf(" %d:%d: %s; %s", d.Line, d.Column, d.Message, d.Hint)
		}
		if !strings.Contains(strings.TrimSuffix(got, "; "), row.want) {
			t.Errorf("%s: %q, want %q", what, got, row.want)
		}
	}
}
