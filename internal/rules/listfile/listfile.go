// Package listfile reads lists: text files with one entry a line.
package listfile

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"math"
	"unicode"
	"unicode/utf8"
)

const (
	// MaxSize is the size of the largest list, in bytes.
	MaxSize = 256 << 20
	// maxLine is the size of the longest line, in bytes.
	maxLine = 64 << 10
)

// Entry is an entry of a list.
type Entry struct {
	Text         []byte // without the spaces around it; valid until the next entry
	Line, Column int
}

// Wrong is called for a mistake in a list. line is 0 if it is not in a single line; the hint
// may be empty.
type Wrong func(line, column int, hint, format string, args ...any)

// Read reads a list from r and calls each for every entry. Lines end in LF or CRLF. Empty
// lines are skipped, and so is what follows a # at the start of a line or after a space. A
// byte order mark is fine.
func Read(r io.Reader, wrong Wrong, each func(Entry)) {
	in := &io.LimitedReader{R: r, N: MaxSize + 1}
	lines := bufio.NewReaderSize(in, maxLine)
	if start, err := lines.Peek(3); err == nil && string(start) == "\uFEFF" {
		_, _ = lines.Discard(len(start)) // what was peeked at
	}
	for number := 1; ; number++ {
		line, err := lines.ReadSlice('\n')
		switch {
		case in.N <= 0:
			wrong(0, 0, "", "the list is larger than %d MiB", MaxSize>>20)
			return
		case errors.Is(err, bufio.ErrBufferFull):
			wrong(number, 1, "write one entry a line", "the line is longer than %d KiB", maxLine>>10)
			return
		case err != nil && !errors.Is(err, io.EOF):
			wrong(0, 0, "", "cannot be read: %v", err)
			return
		case number > math.MaxInt32:
			wrong(0, 0, "", "the list has too many lines")
			return
		}
		if e := (Entry{Line: number}); e.cut(line) {
			switch {
			case !utf8.Valid(e.Text):
				wrong(number, e.Column, "save the file as UTF-8", "the line is not valid UTF-8")
			case bytes.ContainsFunc(e.Text, unicode.IsControl):
				wrong(number, e.Column, "write one entry a line", "the entry has a control character")
			default:
				each(e)
			}
		}
		if err != nil {
			return
		}
	}
}

// cut sets e to the entry of a line, and reports whether there is one.
func (e *Entry) cut(line []byte) bool {
	line = bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
	for i, c := range line {
		if c == '#' && (i == 0 || line[i-1] == ' ' || line[i-1] == '\t') {
			line = line[:i]
			break
		}
	}
	e.Text = bytes.Trim(line, " \t")
	e.Column = 1 + len(line) - len(bytes.TrimLeft(line, " \t"))
	return len(e.Text) > 0
}
