package tablefile

import (
	"encoding/csv"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/base/clip"
	"github.com/headgate/headgate/internal/base/nearest"
)

// errRowTooLong means that a row has no end, as after a quotation mark that is not closed.
var errRowTooLong = errors.New("the row is too long")

// bounded is a reader that fails after too many bytes of one row.
type bounded struct {
	in         io.Reader
	left, size int64
}

// Read implements io.Reader.
func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errRowTooLong
	}
	n, err := b.in.Read(p)
	b.left -= int64(n)
	b.size += int64(n)
	return n, err
}

// readCSV reads comma-separated values (RFC 4180): the first row names the columns. Spaces
// before a value do not count, unless it is in quotation marks. Empty lines are skipped.
func readCSV(t *reading) {
	in := &bounded{in: t.in, left: maxRow}
	r := csv.NewReader(in)
	r.ReuseRecord, r.TrimLeadingSpace = true, true
	header, err := r.Read()
	if errors.Is(err, io.EOF) {
		t.Addf(1, 1, "the first row names the columns: "+list(t.columns), "the table is empty")
		return
	}
	if err != nil && !errors.Is(err, csv.ErrFieldCount) {
		t.badRow(err)
		return
	}
	places, ok := t.header(r, header)
	if !ok {
		return
	}
	for {
		in.left = maxRow
		record, err := r.Read()
		switch {
		case errors.Is(err, io.EOF):
			if in.size > MaxSize {
				t.tooLong()
			}
			return
		case err != nil:
			if !t.badRow(err) {
				return
			}
			continue
		}
		t.record(r, record, places)
	}
}

// record hands on a row.
func (t *reading) record(r *csv.Reader, record []string, places []int) {
	line, column := r.FieldPos(0)
	t.begin(line)
	for i, text := range record {
		if places[i] < 0 {
			continue
		}
		cell := &t.row.Cells[places[i]]
		cell.Line, cell.Column = r.FieldPos(i)
		cell.Text, cell.Given = text, text != ""
	}
	t.end(line, column, nil)
}

// header returns for each column of the file its place among those wanted, or -1.
func (t *reading) header(r *csv.Reader, header []string) (places []int, ok bool) {
	taken := make([]bool, len(t.columns))
	var others []string
	ok = true
	for i, name := range header {
		line, column := r.FieldPos(i)
		place := t.place(strings.TrimSpace(name))
		places = append(places, place)
		switch {
		case place < 0:
			others = append(others, strings.TrimSpace(name))
		case taken[place]:
			t.Addf(line, column, "", "duplicate column %s", clip.Quote(name))
			ok = false
		default:
			taken[place] = true
		}
	}
	for i := range t.columns {
		c := &t.columns[i]
		if taken[i] {
			continue
		}
		near := nearest.Word(c.Name, others)
		switch {
		case near != "":
			at := slices.IndexFunc(header, func(name string) bool { return strings.TrimSpace(name) == near })
			line, column := r.FieldPos(at)
			t.Addf(line, column, "", "unknown column %s, did you mean %q?", clip.Quote(near), c.Name)
			ok = false
		case !c.Optional || c.Header:
			t.Addf(1, 1, "the first row names the columns: "+list(t.columns), "the table has no column %s", clip.Quote(c.Name))
			ok = false
		}
	}
	return places, ok
}

// badRow says what is wrong with a row and reports whether the next can be read.
func (t *reading) badRow(err error) bool {
	var e *csv.ParseError
	if !errors.As(err, &e) {
		line, column := 1, 1
		if errors.Is(err, errRowTooLong) {
			t.Addf(line, column, "look for a quotation mark without its second", "a row is longer than %d KiB", maxRow>>10)
		} else {
			t.Addf(0, 0, "", "cannot be read: %v", err)
		}
		return false
	}
	switch {
	case errors.Is(e.Err, csv.ErrFieldCount):
		t.Addf(e.StartLine, 1, "put values with commas in quotation marks", "the row does not have as many values as the first row has columns")
	case errors.Is(e.Err, csv.ErrQuote), errors.Is(e.Err, csv.ErrBareQuote):
		t.Addf(e.Line, e.Column, "write \"\" for a quotation mark in a quoted value", "misplaced quotation mark in a row that starts on line %d", e.StartLine)
	default:
		t.Addf(e.Line, e.Column, "", "not valid CSV: %v", e.Err)
	}
	return true
}
