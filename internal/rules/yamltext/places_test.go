package yamltext_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/headgate/headgate/internal/rules/yamltext"
)

// document writes random YAML in which every scalar is a different word, so that the
// word shows its position.
type document struct {
	*rand.Rand

	text strings.Builder
	next int
	want strings.Builder // as show writes it
}

// word returns a scalar that has not been there before, as it is written and as it
// reads.
func (d *document) word() (written, reads string) {
	d.next++
	reads = fmt.Sprintf("%sw%dw", []string{"", "ä", "日本"}[d.IntN(3)], d.next)
	switch d.IntN(4) {
	case 0:
		return `"` + reads + `"`, reads
	case 1:
		return "'" + reads + "'", reads
	}
	return reads, reads
}

// scalar writes one, in flow or in block.
func (d *document) scalar() {
	written, reads := d.word()
	d.text.WriteString(written)
	d.want.WriteString(reads)
}

// flow writes a value in one line.
func (d *document) flow(depth int) {
	brackets, pair := "[]", false
	switch n := d.IntN(3); {
	case depth == 0 || n == 0:
		d.scalar()
		return
	case n == 1:
		brackets, pair = "{}", true
	}
	d.text.WriteByte(brackets[0])
	d.want.WriteByte(brackets[0])
	for i := range d.IntN(4) {
		if i > 0 {
			d.text.WriteString(", ")
			d.want.WriteByte(' ')
		}
		if pair {
			d.scalar()
			d.text.WriteString(": ")
			d.want.WriteByte(':')
		}
		d.flow(depth - 1)
	}
	d.text.WriteByte(brackets[1])
	d.want.WriteByte(brackets[1])
}

// block writes a mapping or a list over several lines, each so far from the left.
func (d *document) block(indent string, depth int) {
	brackets, pair := "[]", false
	if d.IntN(2) == 0 {
		brackets, pair = "{}", true
	}
	d.want.WriteByte(brackets[0])
	for i := range 1 + d.IntN(3) {
		if i > 0 {
			d.want.WriteByte(' ')
		}
		if d.IntN(5) == 0 {
			d.text.WriteString("\n" + indent + "# a rémark")
		}
		d.text.WriteString("\n" + indent)
		if pair {
			d.scalar()
			d.text.WriteString(":")
			d.want.WriteByte(':')
		} else {
			d.text.WriteString("-")
		}
		if depth > 0 && d.IntN(2) == 0 {
			d.block(indent+"  ", depth-1)
		} else {
			d.text.WriteByte(' ')
			d.flow(depth)
		}
	}
	d.want.WriteByte(brackets[1])
}

// scalars calls f for every scalar of a value, keys too.
func scalars(n *yamltext.Node, f func(*yamltext.Node)) {
	if n.IsScalar() {
		f(n)
	}
	for _, item := range n.Items {
		scalars(item, f)
	}
	for _, p := range n.Pairs {
		scalars(p.Key, f)
		scalars(p.Value, f)
	}
}

// place returns the line and the column, in characters, at which a scalar begins in a
// text that has it once.
func place(text, word string) string {
	before, _, _ := strings.Cut(text, word)
	before = strings.TrimRight(before, `"'`)
	line := before[strings.LastIndexByte(before, '\n')+1:]
	return fmt.Sprintf("%d:%d", strings.Count(before, "\n")+1, utf8.RuneCountInString(line)+1)
}

// Every scalar of a random document has its position in the text, and the document is
// what was written.
func TestPlacesAreThoseOfTheText(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 3))
	found := 0
	for range 500 {
		d := document{Rand: r}
		d.block("", 3)
		text := d.text.String()
		report := yamltext.Report{File: "f"}
		docs := yamltext.Read([]byte(text), &report)
		if len(docs) != 1 || len(report.Sorted()) > 0 || show(docs[0]) != d.want.String() {
			t.Fatalf("%v\n%s", report.Sorted(), text)
		}
		scalars(docs[0], func(n *yamltext.Node) {
			found++
			if got, want := fmt.Sprintf("%d:%d", n.Line, n.Column), place(text, n.Text); got != want {
				t.Errorf("%s is at %s, not at %s:\n%s", n.Text, want, got, text)
			}
		})
	}
	if found < 3000 {
		t.Errorf("only %d scalars", found)
	}
}

// What is no YAML is found at its place too, behind letters of several bytes and
// after lines of any kind.
func TestPlacesOfMistakes(t *testing.T) {
	t.Parallel()
	for src, want := range map[string]string{
		"\x01":                            "1:1: the control character 0x01 is not allowed",
		"a: 1\n\nb:\x7f\n":                "3:3: the control character 0x7f is not allowed",
		"# äö\n# äö\x00":                  "2:5: the control character 0x00 is not allowed",
		"a: 1\r\n\tb: \x1b[0m":            "2:5: the control character 0x1b is not allowed",
		"a: \x80\n":                       "1:4: the file is not valid UTF-8 (byte 0x80)",
		"a: 1\nb: \xff\xff":               "2:4: the file is not valid UTF-8 (byte 0xff)",
		"a: 1\n日: \xe6\x97":               "2:4: the file is not valid UTF-8 (byte 0xe6)",
		"a: [1\n":                         "2:1: not valid YAML: did not find expected ',' or ']'; close the bracket, and put values that contain [ ] { } or a comma in quotes",
		"a: b\n- c\n":                     "2:1: not valid YAML: did not find expected key while parsing a block mapping",
		"a: 'x\n":                         "2:1: not valid YAML: found unexpected end of stream while scanning a quoted scalar",
		"a: *x\n":                         "1:4: not valid YAML: unknown anchor 'x' referenced; put values that start with * in quotes",
		"a: [\n\t1\n":                     "3:1: not valid YAML: did not find expected ',' or ']'; indent with spaces, not tabs",
		"a: [\n  1,\n \t2\n":              "4:1: not valid YAML: did not find expected ',' or ']'; indent with spaces, not tabs",
		"a: [\n\t1,\n  2\n":               "4:1: not valid YAML: did not find expected ',' or ']'; close the bracket, and put values that contain [ ] { } or a comma in quotes",
		"a: [1\nb: c\n\td: e":             "3:1: not valid YAML: found a tab character that violates indentation; indent with spaces, not tabs",
		"a:\n  b: 1\n\tc: 2\n":            "3:1: not valid YAML: found a tab character that violates indentation; indent with spaces, not tabs",
		"a: @x\n":                         "1:4: not valid YAML: found character that cannot start any token; indent with spaces, not tabs, and put values that start with @, % or ` in quotes",
		"<<: {a: 1}\n<<: [{b: 2}, [c]]\n": "2:14: << needs a mapping or a list of mappings",
		"a: &a {<<: *a}\n":                `1:12: the alias "*a" refers to itself`,
	} {
		_, said := reader(yamltext.Read).run(src)
		if got, _, _ := strings.Cut(said, "\n"); strings.TrimSuffix(got, "; ") != want {
			t.Errorf("%q: %s, want %s", src, got, want)
		}
	}
}

// Any text is read or refused; reported positions are inside it, and the same every
// time.
func FuzzRead(f *testing.F) {
	for _, src := range []string{
		"a: &x {p: 1}\nb: {<<: *x, q: [2, ~]}\n---\nc: |\n  d\n", "a: 1\na: 2\n", "[a]: *b", "? a\n: {b", "- - - x\n  - \ty",
		"a: &a [*a]", "<<: [[a], 5]\n<<: {<<: {}}", "{a: !x 'y', \"b\\u00e9\": @}", "\ufeffä: \u2028\u0085b\r\nc", "a: \xff", "...\n%YAML 1.2\n---\n# c",
	} {
		f.Add([]byte(src))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		for _, read := range []reader{yamltext.Read, yamltext.ReadFirst, yamltext.ReadDocuments} {
			report := yamltext.Report{File: "f"}
			docs := read(src, &report)
			lines := 2 + strings.Count(strings.NewReplacer("\r\n", "\n", "\r", "\n", "\u0085", "\n", "\u2028", "\n", "\u2029", "\n").Replace(string(src)), "\n")
			for _, d := range report.Sorted() {
				if d.File != "f" || d.Line < 0 || d.Line > lines || (d.Column < 1) != (d.Line == 0) {
					t.Errorf("%s lies beyond the %d lines of the text", d, lines)
				}
			}
			text, said := "", fmt.Sprint(report.Sorted())
			for _, doc := range docs {
				text += show(doc) + ";"
				_ = doc.Plain()
				scalars(doc, func(n *yamltext.Node) {
					if n.Line < 1 || n.Line > lines || n.Column < 1 {
						t.Errorf("%q is at %d:%d of %d lines", n.Text, n.Line, n.Column, lines)
					}
				})
			}
			again := yamltext.Report{File: "f"}
			for _, doc := range read(src, &again) {
				text = strings.TrimPrefix(text, show(doc)+";")
			}
			if text != "" || fmt.Sprint(again.Sorted()) != said {
				t.Errorf("read again it is another: %s, %s", text, said)
			}
		}
	})
}
