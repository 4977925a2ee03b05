package yamltext_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/base/diagnostic"
	"github.com/headgate/headgate/internal/rules/yamltext"
)

// An aliased value counts as often as it is used.
func TestAliasesAreCounted(t *testing.T) {
	t.Parallel()
	// The document: 1, two keys, a list of 1 and 997, and a list of 1 and 1001 aliases
	// to 998 values each, and as many values more as are asked for.
	src := func(more int) string {
		return "a: &a [" + strings.Repeat("1,", 997) + "]\nb: [" + strings.Repeat("*a,", 1000) + strings.Repeat("1,", more) + "]\n"
	}
	const used = 1 + 2 + 998 + 1 + 1000*998
	for more, want := range map[int]int{yamltext.MaxValues - used: 0, yamltext.MaxValues - used + 1: 1} {
		report := yamltext.Report{File: "f"}
		docs := yamltext.Read([]byte(src(more)), &report)
		if len(report.Sorted()) != want || len(docs) != 1-want {
			t.Errorf("%d values: %v", used+more, report.Sorted())
		}
	}
}

// Multi-byte characters, replacement characters and a sign at the end are text like any
// other.
func TestOddTextsAreRead(t *testing.T) {
	t.Parallel()
	for src, want := range map[string]string{
		"a: \ufffd":                      "{a:\ufffd};",
		"a: b\ufffd\u0080":               "{a:b\ufffd\u0080};",
		"ä: 日本":                          "{ä:日本};",
		"a:":                             "{a:~};",
		"-":                              "[~];",
		"?":                              "{~:~};",
		"a: \"\tb\"\n":                   "{a:\tb};",
		"a: {\n b: 1,\n\tc: 2}\n":        "{a:{b:1! c:2!}};",
		"a: &x\nb: *x\n":                 "{a:~ b:~};",
		"a: &x {p: &y 1}\nb: [*x, *y]":   "{a:{p:1!} b:[{p:1!} 1!]};",
		"<<: [{a: 1, b: 1}, {b: 2}]\n":   "{a:1! b:1!};",
		"b: 0\n<<: [{a: 1}, {a: 2}]\n":   "{b:0! a:1!};",
		"<<: [{a: 1}]\na: 0\n<<: {c: 3}": "{a:0! c:3!};",
	} {
		if docs, said := reader(yamltext.Read).run(src); docs != want || said != "" {
			t.Errorf("%q: %s %s", src, docs, said)
		}
	}
}

// A repeated rate_limit is merged, as in Envoy's service: the later of two values under
// a key counts. Of any other repeated key the later one counts as a whole.
func TestRepeatedKeysAsEnvoy(t *testing.T) {
	t.Parallel()
	for src, want := range map[string]string{
		"rate_limit: {n: 1, m: 1}\nrate_limit: {n: 2}\n":                       "{rate_limit:{n:2! m:1!}};",
		"rate_limit: {n: 1, m: 1}\nrate_limit: {m: 2, o: 3}\n":                 "{rate_limit:{n:1! m:2! o:3!}};",
		"rate_limit: {n: 1}\nrate_limit: {m: 2}\nrate_limit: {n: 3, o: 3}\n":   "{rate_limit:{n:3! m:2! o:3!}};",
		"rate_limit: 1\nrate_limit: {m: 2}\n":                                  "{rate_limit:{m:2!}};",
		"other: {n: 1}\nother: {m: 2}\n":                                       "{other:{m:2!}};",
		"k: {rate_limit: {n: 1}, rate_limit: {m: 2}}\nl: 1\nk: {a: 1, a: 2}\n": "{k:{a:2!} l:1!};",
	} {
		last := reader(func(src []byte, r *yamltext.Report) []*yamltext.Node {
			docs := yamltext.ReadDocuments(src, r)
			for _, doc := range docs {
				r.TakeLast(doc)
			}
			return docs
		})
		if docs, _ := last.run(src); docs != want {
			t.Errorf("%q: %s, want %s", src, docs, want)
		}
	}
}

// Metadata of a rule becomes Go values; numbers that Go cannot represent remain text.
func TestPlain(t *testing.T) {
	t.Parallel()
	const src = "{n: ~, t: true, f: False, i: -5, big: 9223372036854775807, more: 9223372036854775808, x: 1.5e3, inf: .inf, nan: .nan, huge: 1e999, hex: 0x10, s: '5', l: [1, [a]], m: {k: v}}"
	report := yamltext.Report{File: "f"}
	docs := yamltext.Read([]byte(src), &report)
	if len(docs) != 1 {
		t.Fatal(report.Sorted())
	}
	want := map[string]any{
		"n": nil, "t": true, "f": false, "i": int64(-5), "big": int64(9223372036854775807), "more": float64(9223372036854775808), "x": 1500.0,
		"inf": ".inf", "nan": ".nan", "huge": "1e999", "hex": "0x10", "s": "5", "l": []any{int64(1), []any{"a"}}, "m": map[string]any{"k": "v"},
	}
	if got := docs[0].Plain(); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %#v\nwant %#v", got, want)
	}
}

// Values of a mapping are found by key.
func TestValuesOfMappings(t *testing.T) {
	t.Parallel()
	report := yamltext.Report{File: "f"}
	doc := yamltext.Read([]byte("a: x\nb: {c: 5}\nd:\n"), &report)[0]
	for key, want := range map[string]string{"a": "text x", "b": "a mapping ", "d": "empty ", "e": "absent "} {
		kind := "absent"
		if n := doc.Value(key); n != nil {
			kind = n.Kind.String()
		}
		if got := kind + " " + doc.TextOf(key); got != want || yamltext.HasKey(doc, key) == (kind == "absent") {
			t.Errorf("%s: %s, want %s; there: %v", key, got, want, yamltext.HasKey(doc, key))
		}
	}
	for src, want := range map[string]bool{"x": true, "5": true, "~": true, "[]": false, "{}": false} {
		if n := yamltext.Read([]byte(src), &report)[0]; n.IsScalar() != want {
			t.Errorf("%s: %v, want %v", src, n.IsScalar(), want)
		}
	}
}

// What is said of values that are no numbers, no switches and no words, to the letter.
func TestFieldsAreExplained(t *testing.T) {
	t.Parallel()
	integer := func(r *yamltext.Report, n *yamltext.Node) any {
		v, ok := r.Integer(n, "k", -10, 1000)
		return fmt.Sprintf("%v %v", v, ok)
	}
	boolean := func(r *yamltext.Report, n *yamltext.Node) any {
		v, ok := r.Boolean(n, "k")
		return fmt.Sprintf("%v %v", v, ok)
	}
	fields := func(r *yamltext.Report, n *yamltext.Node) any {
		return len(r.Fields(n, "a rule", []string{"name", "rate"}))
	}
	choice := func(r *yamltext.Report, n *yamltext.Node) any {
		w, ok := r.Choice(n, "k", "allow", "deny")
		return fmt.Sprintf("%v %v", w, ok)
	}
	span := func(r *yamltext.Report, n *yamltext.Node) any {
		w, ok := r.Span(n, "k")
		return fmt.Sprintf("%v %v", w, ok)
	}
	const decimal = `0 false: "k" must be a whole number in decimal digits, not `
	for _, row := range []struct {
		read func(*yamltext.Report, *yamltext.Node) any
		src  string
		want string
	}{
		{integer, "-10", "-10 true"},
		{integer, "1000", "1000 true"},
		{integer, "0", "0 true"},
		{integer, "-0", "0 true"},
		{integer, "9", "9 true"},
		{integer, "-11", `0 false: "k" must be from -10 to 1000, not -11`},
		{integer, "1001", `0 false: "k" must be from -10 to 1000, not 1001`},
		{integer, "-99999999999999999999", `0 false: "k" must be from -10 to 1000, not -99999999999999999999`},
		{integer, "+5", decimal + `"+5"`},
		{integer, ".5", decimal + `".5"`},
		{integer, "05", decimal + `"05"`},
		{integer, "-05", decimal + `"-05"`},
		{integer, ".inf", decimal + `".inf"`},
		{integer, "'5'", `0 false: "k" must be a whole number, not text; remove the quotes`},
		{integer, "five", `0 false: "k" must be a whole number, not text`},
		{integer, "[]", `0 false: "k" must be a whole number, not a list`},
		{integer, "~", `0 false: "k" must be a whole number, not empty`},
		{boolean, "TRUE", "true true"},
		{boolean, "false", "false true"},
		{boolean, "on", `false false: "k" must be true or false, not "on"`},
		{boolean, "1", `false false: "k" must be true or false, not "1"`},
		{boolean, "{}", `false false: "k" must be true or false, not a mapping`},
		{fields, "{name: x, rate: 5}", "2"},
		{fields, "{name: , rate: 5}", `1: "name" has no value`},
		{fields, "{nam: x}", `0: unknown key "nam" in a rule, did you mean "name"?`},
		{fields, "{rate 5/m}", `0: unknown key "rate 5/m" in a rule; write a colon after the key: "rate: 5/m"`},
		{fields, "{zzz: x}", `0: unknown key "zzz" in a rule; use one of name, rate`},
		{fields, "[a]", "0: a rule must be a mapping (key: value), not a list"},
		{choice, "deny", "deny true"},
		{choice, "dney", ` false: unknown k "dney", did you mean "deny"?`},
		{choice, "''", ` false: "k" is empty`},
		{choice, "true", ` false: "k" must be text, not true or false; put it in quotes`},
		{span, "5s", "5s true"},
		{span, "", ` false: "k" must be text, not empty`},
		{span, "30", ` false: "k" must be a duration such as 5s, not a number; for seconds, write 30s`},
	} {
		report := yamltext.Report{}
		n := &yamltext.Node{}
		if docs := yamltext.Read([]byte(row.src), &report); len(docs) > 0 {
			n = docs[0]
		}
		got := fmt.Sprint(row.read(&report, n))
		for _, d := range report.Sorted() {
			d.Line = 0
			got += ": " + d.String()
		}
		if got != row.want {
			t.Errorf("%s: %s, want %s", row.src, got, row.want)
		}
	}
	if got := yamltext.Ordinal("rule", 0) + ", " + yamltext.Ordinal("rule", 9); got != "rule 1, rule 10" {
		t.Error(got)
	}
}

// The first problems are kept, sorted by position, and the number of the others is
// reported: as an error only if any problem is one.
func TestProblemsAreKept(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		errors, warnings int
		kept             int
		last             string
	}{
		{0, 0, 0, ""},
		{0, 100, 100, "f:1:1: warning: odd"},
		{0, 101, 101, "f: warning: 1 more problems are not shown"},
		{0, 350, 101, "f: warning: 250 more problems are not shown"},
		{1, 99, 100, "f:1:1: warning: odd"},
		{1, 100, 101, "f: 1 more problems are not shown"},
		{100, 0, 100, "f:1:1: wrong"},
		{101, 2, 101, "f: 3 more problems are not shown"},
	} {
		report := yamltext.Report{File: "f"}
		at := func(i, of int) *yamltext.Node { return &yamltext.Node{Line: 1 + (of-i)/10, Column: 1 + (of-i)%10} }
		for i := range row.errors {
			report.Errorf(at(i+1, row.errors), "", "wrong")
		}
		for i := range row.warnings {
			report.Warnf(at(i+1, row.warnings), "", "odd")
		}
		list := report.Sorted()
		last := ""
		if len(list) > 0 {
			last = list[len(list)-1].String()
		}
		if row.kept <= yamltext.MaxProblems && row.kept > 0 {
			last = strings.Replace(last, last[:strings.Index(last, ": ")], "f:1:1", 1)
		}
		if len(list) != row.kept || last != row.last || report.Errors != row.errors || diagnostic.HasErrors(list) != (row.errors > 0) {
			t.Errorf("%d errors, %d warnings: %d are kept, %d errors counted, the last is %s; want %d, %s", row.errors, row.warnings, len(list), report.Errors, last, row.kept, row.last)
		}
		for i := 1; i < min(len(list), yamltext.MaxProblems); i++ {
			if a, b := list[i-1], list[i]; a.Line > b.Line || a.Line == b.Line && a.Column > b.Column {
				t.Errorf("%s before %s", a, b)
			}
		}
	}
}

// What has been said of a file that is read twice, in two ways, is said once; of
// another file it is said too.
func TestProblemsAreSaidOnce(t *testing.T) {
	t.Parallel()
	once := map[diagnostic.Diagnostic]bool{}
	for _, row := range []struct {
		file, src string
		want      int
	}{{"f", "a: 1\na: 2\n", 1}, {"f", "a: 1\na: 2\n", 0}, {"g", "a: 1\na: 2\n", 1}, {"f", "a: 1\n\na: 2\n", 1}, {"f", "a: 1\na: 2\na: 3\n", 0}, {"f", "a: 1\n\n\na: 3\n", 1}} {
		report := yamltext.Report{File: row.file, Once: once}
		yamltext.Read([]byte(row.src), &report)
		if got := len(report.Sorted()); got != row.want || report.Errors != row.want {
			t.Errorf("%s %q: %v, want %d", row.file, row.src, report.Sorted(), row.want)
		}
	}
	report := yamltext.Report{File: "f"}
	for range 2 {
		yamltext.Read([]byte("a: 1\na: 2\n"), &report)
	}
	if len(report.Sorted()) != 2 {
		t.Errorf("without a memory of what was said: %v", report.Sorted())
	}
}
