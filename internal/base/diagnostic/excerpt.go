package diagnostic

import (
	"bytes"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Excerpt returns the line of src that d is about, with its number and a caret
// below the column, such as
//
//	5 |     rate: 5/minuet
//	  |           ^
//
// or an empty string if d has no line. Of a long line it shows the part around
// the column; what a terminal could not print becomes a dot.
func Excerpt(src []byte, d Diagnostic) string {
	line, ok := lineOf(src, d.Line)
	if !ok {
		return ""
	}
	text, caret := window(printable(line), max(d.Column, 1)-1)
	number := fmt.Sprint(d.Line)
	blank := strings.Repeat(" ", len(number))
	return fmt.Sprintf("%s | %s\n%s | %s^\n", number, string(text), blank, strings.Repeat(" ", caret))
}

// lineOf returns the line with that number, counted from 1.
func lineOf(src []byte, number int) ([]byte, bool) {
	if number < 1 {
		return nil, false
	}
	for ; number > 1; number-- {
		i := bytes.IndexByte(src, '\n')
		if i < 0 {
			// A parser that runs into the end of the file may point at the
			// line after the last.
			return nil, number == 2
		}
		src = src[i+1:]
	}
	if i := bytes.IndexByte(src, '\n'); i >= 0 {
		src = src[:i]
	}
	return bytes.TrimSuffix(src, []byte("\r")), true
}

// printable decodes a line into characters that take one column each.
func printable(line []byte) []rune {
	out := make([]rune, 0, min(len(line), 4096))
	for len(line) > 0 {
		r, size := utf8.DecodeRune(line)
		line = line[size:]
		switch {
		case r == '\t':
			r = ' '
		case r == utf8.RuneError || !unicode.IsPrint(r):
			r = '·'
		}
		out = append(out, r)
	}
	return out
}

// window cuts what is too long for one line of a terminal and returns where
// column has moved to.
func window(text []rune, column int) ([]rune, int) {
	const before, most = 60, 100
	column = min(column, len(text))
	if start := column - before; start > 0 && len(text) > most {
		text = append([]rune("…"), text[start:]...)
		column = before + 1
	}
	if len(text) > most {
		text = append(text[:most:most], '…')
	}
	return text, column
}
