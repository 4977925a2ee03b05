package listfile_test

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/headgate/headgate/internal/rules/listfile"
	"github.com/headgate/headgate/internal/rules/tablefile"
)

// read returns the entries of a list as line:column text, and what is wrong with it.
func read(r io.Reader) (entries, problems []string) {
	m := &tablefile.Mistakes{File: "list.txt"}
	listfile.Read(r, m.Addf, func(e listfile.Entry) {
		entries = append(entries, fmt.Sprintf("%d:%d %s", e.Line, e.Column, e.Text))
	})
	for _, d := range m.List() {
		problems = append(problems, d.String())
	}
	return entries, problems
}

func TestRead(t *testing.T) {
	for text, want := range map[string]string{
		"":                             "",
		"\n\n":                         "",
		"a\nb":                         "1:1 a|2:1 b",
		"a\r\nb\r\n":                   "1:1 a|2:1 b",
		"\uFEFFa\n":                    "1:1 a",
		"# one\na # two\n\n\t b\t# c":  "2:1 a|4:3 b",
		"k#1\nk #1":                    "1:1 k#1|2:1 k",
		"two words\n":                  "1:1 two words",
		"#only a comment":              "",
		"10.0.0.0/8\n 2001:db8::/32\n": "1:1 10.0.0.0/8|2:2 2001:db8::/32",
	} {
		entries, problems := read(iotest.OneByteReader(strings.NewReader(text)))
		if got := strings.Join(entries, "|"); got != want || problems != nil {
			t.Errorf("%q: %s, %v, want %s", text, got, problems, want)
		}
	}
}

func TestMistakes(t *testing.T) {
	long := strings.Repeat("x", 1<<16)
	for name, c := range map[string]struct {
		in   io.Reader
		want string
	}{
		"bytes":     {strings.NewReader("a\n \xff\nb"), "list.txt:2:2: the line is not valid UTF-8"},
		"a line":    {strings.NewReader("a\n" + long + "\n"), "list.txt:2:1: the line is longer than 64 KiB"},
		"a lone CR": {strings.NewReader("a\rb\n"), "list.txt:1:1: the entry has a control character"},
		"the disk":  {iotest.ErrReader(errors.New("broken")), "list.txt: cannot be read: broken"},
	} {
		if _, problems := read(c.in); len(problems) != 1 || !strings.HasPrefix(problems[0], c.want) {
			t.Errorf("%s: %q, want %q", name, problems, c.want)
		}
	}
}

// endless is a long line again and again.
type endless struct{ line *strings.Reader }

// Read implements io.Reader.
func (e endless) Read(p []byte) (int, error) {
	if e.line.Len() == 0 {
		_, _ = e.line.Seek(0, io.SeekStart)
	}
	return e.line.Read(p)
}

func FuzzRead(f *testing.F) {
	for _, text := range []string{"a\nb\r\n", "\uFEFF# c\n k # d\n", "\xff", " \t\r\n", "k#1"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		lines := strings.Split(strings.TrimPrefix(text, "\uFEFF"), "\n")
		entries, problems := read(strings.NewReader(text))
		if len(entries)+len(problems) > len(lines)+1 {
			t.Fatalf("%d entries and %d problems of %d lines", len(entries), len(problems), len(lines))
		}
		for _, e := range entries {
			var line, column int
			if _, err := fmt.Sscanf(e, "%d:%d", &line, &column); err != nil {
				t.Fatal(err)
			}
			_, entry, _ := strings.Cut(e, " ")
			if !strings.HasPrefix(lines[line-1][column-1:], entry) || strings.HasPrefix(entry, "#") || strings.Trim(entry, " \t\r") != entry {
				t.Errorf("%q is not at %d:%d of %q", entry, line, column, text)
			}
		}
		if again, _ := read(strings.NewReader(text)); !slices.Equal(entries, again) {
			t.Error("reading twice differs")
		}
	})
}
