package tablefile

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/base/clip"
)

// scanner reads JSON byte by byte and knows where it is.
type scanner struct {
	t            *reading
	read         int64 // bytes
	line, column int   // of the next byte
	text         []byte
	names        []string          // of the other columns of an object
	known        map[string]string // names of columns, each allocated once
}

// syntax is a mistake after which nothing more can be read.
type syntax struct {
	line, column int
	message      string
}

// Error returns what is wrong.
func (e *syntax) Error() string { return e.message }

// maxDepth is how deeply values of other columns may be nested.
const maxDepth = 32

// readJSON reads an array of flat objects.
func readJSON(t *reading) {
	s := &scanner{t: t, line: 1, column: 1, known: map[string]string{}}
	err := s.rows()
	var wrong *syntax
	switch {
	case err == nil:
	case s.read > MaxSize:
		t.tooLong()
	case errors.As(err, &wrong):
		t.Addf(wrong.line, wrong.column, "", "%s", wrong.message)
	default:
		t.Addf(0, 0, "", "cannot be read: %v", err)
	}
}

// fail returns a mistake at the last byte that was read.
func (s *scanner) fail(format string, args ...any) error {
	return &syntax{s.line, max(s.column-1, 1), fmt.Sprintf(format, args...)}
}

// next reads a byte.
func (s *scanner) next() (byte, error) {
	c, err := s.t.in.ReadByte()
	if err != nil {
		if errors.Is(err, io.EOF) {
			s.column++
			return 0, s.fail("the file ends too early")
		}
		return 0, err
	}
	s.read++
	switch {
	case c == '\n':
		s.line, s.column = s.line+1, 1
	case c < 0x80 || c >= 0xc0: // not within a character
		s.column++
	}
	return c, nil
}

// token reads the first byte that is not white space.
func (s *scanner) token() (byte, error) {
	for {
		c, err := s.next()
		if err != nil || c != ' ' && c != '\t' && c != '\n' && c != '\r' {
			return c, err
		}
	}
}

// peek returns the next byte without reading it; 0 at the end of the file.
func (s *scanner) peek() byte {
	c, err := s.t.in.Peek(1)
	if err != nil {
		return 0
	}
	return c[0]
}

// rows reads the array.
func (s *scanner) rows() error {
	c, err := s.token()
	if err != nil {
		return err
	}
	if c != '[' {
		return s.fail("a table in JSON is an array of objects: [{...}, ...]")
	}
	for first := true; ; first = false {
		switch c, err = s.token(); {
		case err != nil:
			return err
		case c == ']' && first:
			return s.ended()
		case c != '{':
			return s.fail("a row must be an object, such as {\"key\": \"acme\", \"rate\": \"5/minute\"}")
		}
		if err := s.object(); err != nil {
			return err
		}
		switch c, err = s.token(); {
		case err != nil:
			return err
		case c == ']':
			return s.ended()
		case c != ',':
			return s.fail("want a comma between rows, or ] after the last")
		}
	}
}

// ended makes sure that nothing follows the array.
func (s *scanner) ended() error {
	c, err := s.token()
	if err == nil {
		return s.fail("unexpected %s after the table", clip.Quote(string(rune(c))))
	}
	if wrong := (*syntax)(nil); errors.As(err, &wrong) {
		return nil
	}
	return err
}

// object reads a row, after its brace.
func (s *scanner) object() error {
	line, column := s.line, s.column-1
	s.t.begin(line)
	s.names = s.names[:0]
	start := s.read
	for first := true; ; first = false {
		c, err := s.token()
		switch {
		case err != nil:
			return err
		case c == '}' && first:
			s.t.end(line, column, s.names)
			return nil
		case c != '"':
			return s.fail("want the name of a column in quotation marks")
		}
		if err := s.field(); err != nil {
			return err
		}
		if s.read-start > maxRow {
			return s.fail("a row is longer than %d KiB", maxRow>>10)
		}
		switch c, err = s.token(); {
		case err != nil:
			return err
		case c == '}':
			s.t.end(line, column, s.names)
			return nil
		case c != ',':
			return s.fail("want a comma between columns, or } after the last")
		}
	}
}

// field reads the name of a column, after its first quotation mark, and its value.
func (s *scanner) field() error {
	line, column := s.line, s.column-1
	name, err := s.quoted()
	if err != nil {
		return err
	}
	if known, ok := s.known[string(name)]; ok {
		return s.value(known, line, column)
	}
	own := string(name)
	if len(s.known) < 1000 {
		s.known[own] = own
	}
	return s.value(own, line, column)
}

// value reads a colon and the value of a column, whose name is at a place.
func (s *scanner) value(name string, line, column int) error {
	c, err := s.token()
	if err != nil {
		return err
	}
	if c != ':' {
		return s.fail("want a colon after the name of a column")
	}
	place := s.t.place(name)
	if c, err = s.token(); err != nil {
		return err
	}
	if place < 0 {
		if slices.Contains(s.names, name) {
			return &syntax{line, column, "duplicate column " + clip.Quote(name)}
		}
		s.names = append(s.names, name)
		return s.skip(c, 0)
	}
	cell := &s.t.row.Cells[place]
	if cell.Line > 0 {
		return &syntax{line, column, "duplicate column " + clip.Quote(name)}
	}
	cell.Line, cell.Column = s.line, s.column-1
	switch {
	case c == '"':
		text, err := s.quoted()
		if err != nil {
			return err
		}
		cell.Text, cell.Given = string(text), len(text) > 0
	case c == '-' || c >= '0' && c <= '9':
		text, err := s.plain(c)
		if err != nil {
			return err
		}
		cell.Text, cell.Given = text, true
	default:
		text, err := s.plain(c)
		if err != nil {
			return err
		}
		if text != "null" {
			return &syntax{cell.Line, cell.Column, clip.Quote(name) + " must be text or a number"}
		}
	}
	return nil
}

// quoted reads a string, after its first quotation mark. The result is valid until the
// next one.
func (s *scanner) quoted() ([]byte, error) {
	s.text = append(s.text[:0], '"')
	for {
		c, err := s.next()
		switch {
		case err != nil:
			return nil, err
		case len(s.text) > maxRow:
			return nil, s.fail("a row is longer than %d KiB", maxRow>>10)
		case c < ' ':
			return nil, s.fail("a string must not have control characters")
		}
		s.text = append(s.text, c)
		if c == '"' {
			return s.unescaped(s.text)
		}
		if c == '\\' { // what follows does not end the string
			if c, err = s.next(); err != nil {
				return nil, err
			}
			s.text = append(s.text, c)
		}
	}
}

// unescaped returns the content of a string with its quotation marks.
func (s *scanner) unescaped(quoted []byte) ([]byte, error) {
	if !slices.Contains(quoted, '\\') {
		return quoted[1 : len(quoted)-1], nil
	}
	var text string
	if json.Unmarshal(quoted, &text) != nil {
		return nil, s.fail("invalid escape in a string")
	}
	return []byte(text), nil
}

// plain reads a number, true, false or null that starts with c.
func (s *scanner) plain(c byte) (string, error) {
	s.text = append(s.text[:0], c)
	for strings.IndexByte("+-.0123456789abcdefghijklmnopqrstuvwxyzE", s.peek()) >= 0 && len(s.text) < 1000 {
		c, err := s.next()
		if err != nil {
			return "", err
		}
		s.text = append(s.text, c)
	}
	if !json.Valid(s.text) {
		return "", s.fail("unexpected %s", clip.Quote(string(s.text)))
	}
	return string(s.text), nil
}

// skip reads the value of a column that nobody wants and that starts with c.
func (s *scanner) skip(c byte, depth int) error {
	switch {
	case depth > maxDepth:
		return s.fail("values are nested too deeply")
	case c == '"':
		_, err := s.quoted()
		return err
	case c == '[':
		return s.skipAll(']', depth)
	case c == '{':
		return s.skipAll('}', depth)
	}
	_, err := s.plain(c)
	return err
}

// skipAll skips an array or an object, after its bracket.
func (s *scanner) skipAll(end byte, depth int) error {
	for first := true; ; first = false {
		c, err := s.token()
		if err != nil || c == end && first {
			return err
		}
		if end == '}' {
			if c != '"' {
				return s.fail("want a name in quotation marks")
			}
			if _, err = s.quoted(); err != nil {
				return err
			}
			if c, err = s.token(); err != nil {
				return err
			}
			if c != ':' {
				return s.fail("want a colon after a name")
			}
			if c, err = s.token(); err != nil {
				return err
			}
		}
		if err := s.skip(c, depth+1); err != nil {
			return err
		}
		switch c, err = s.token(); {
		case err != nil || c == end:
			return err
		case c != ',':
			return s.fail("want a comma, or %c at the end", end)
		}
	}
}
