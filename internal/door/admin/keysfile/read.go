package keysfile

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/headgate/headgate/internal/base/clip"
	"github.com/headgate/headgate/internal/base/nearest"
)

// readLines reads JSON Lines. Empty lines are skipped.
func (f *File) readLines(text []byte) {
	line := 0
	for row := range bytes.Lines(text) {
		line++
		row = bytes.TrimRight(row, "\r\n")
		if len(bytes.TrimSpace(row)) == 0 {
			continue
		}
		parsed, at, err := readLine(row, line)
		if err != nil {
			f.wrong(Problem{line, column(row, at), err.Error()})
			continue
		}
		f.Rows = append(f.Rows, parsed)
	}
}

// readLine reads an object and notes where its values are. at is the offset of a mistake.
func readLine(row []byte, line int) (parsed Parsed, at int64, err error) {
	switch {
	case len(row) > MaxRow:
		return parsed, 0, fmt.Errorf("the line has %d bytes, at most %d are allowed", len(row), MaxRow)
	case !utf8.Valid(row):
		return parsed, int64(validUntil(row)), errors.New("this is not valid UTF-8: give such a key as key_base64")
	}
	d := json.NewDecoder(bytes.NewReader(row))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return parsed, 0, errors.New(`this is not a JSON object: each line is one, such as {"kind":"ban","rule":"login","key":["198.51.100.7"],"until":"2027-01-31T12:00:00Z"}`)
	}
	parsed = Parsed{JSON: row, Line: line}
	for d.More() {
		before := skip(row, d.InputOffset(), ", \t")
		t, err := d.Token()
		if err != nil {
			return parsed, offset(err, before), broken(err)
		}
		name, _ := t.(string)
		switch {
		case !slices.Contains(Fields(), name):
			return parsed, before, unknown("field", name)
		case slices.ContainsFunc(parsed.places, func(p place) bool { return p.field == name }):
			return parsed, before, fmt.Errorf("duplicate field %q", name)
		}
		value := skip(row, d.InputOffset(), ": \t")
		parsed.places = append(parsed.places, place{name, int32(line), int32(column(row, value))})
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return parsed, offset(err, value), broken(err)
		}
	}
	if _, err := d.Token(); err != nil {
		return parsed, int64(len(row)), broken(err)
	}
	if end := skip(row, d.InputOffset(), " \t"); end < int64(len(row)) {
		return parsed, end, errors.New("unexpected text after the object: each line is one object")
	}
	return parsed, 0, nil
}

// validUntil returns the offset of the first byte that is not UTF-8.
func validUntil(text []byte) (n int) {
	for n < len(text) {
		c, size := utf8.DecodeRune(text[n:])
		if c == utf8.RuneError && size <= 1 {
			return n
		}
		n += size
	}
	return n
}

// skip returns the offset of the next byte that is none of those.
func skip(text []byte, at int64, none string) int64 {
	for at < int64(len(text)) && strings.IndexByte(none, text[at]) >= 0 {
		at++
	}
	return at
}

// offset returns where a syntax error is, or otherwise.
func offset(err error, otherwise int64) int64 {
	if s, ok := errors.AsType[*json.SyntaxError](err); ok && s.Offset > 0 {
		return max(s.Offset-1, otherwise)
	}
	return otherwise
}

func broken(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the line ends inside the object")
	}
	return fmt.Errorf("this is not valid JSON: %w", err)
}

func unknown(what, name string) error {
	shown := strconv.Quote(clip.Text(name, 40))
	if near := nearest.Word(name, Fields()); near != "" {
		return fmt.Errorf("unknown %s %s, did you mean %q?", what, shown, near)
	}
	return fmt.Errorf("unknown %s %s: known are %s", what, shown, strings.Join(Fields(), ", "))
}

// column counts characters from 1.
func column(row []byte, at int64) int { return utf8.RuneCount(row[:min(at, int64(len(row)))]) + 1 }

// readCSV reads comma-separated values (RFC 4180). The first row names the columns. An
// empty cell means that the row does not have the field.
func (f *File) readCSV(text []byte) {
	r := csv.NewReader(bytes.NewReader(text))
	r.ReuseRecord, r.FieldsPerRecord = true, -1
	columns, err := r.Read()
	if errors.Is(err, io.EOF) {
		f.wrong(Problem{1, 1, "the file is empty: the first row names the columns, such as kind,rule,key,until"})
		return
	}
	if err != nil {
		f.wrong(csvProblem(err))
		return
	}
	columns = slices.Clone(columns)
	if !f.header(r, columns) {
		return
	}
	for {
		record, err := r.Read()
		switch {
		case errors.Is(err, io.EOF):
			return
		case err != nil:
			f.wrong(csvProblem(err))
			return // what follows may be inside a quotation
		}
		line, _ := r.FieldPos(0)
		if len(record) != len(columns) {
			f.wrong(Problem{line, 1, fmt.Sprintf("the row has %d cells, want %d as in the first row", len(record), len(columns))})
			continue
		}
		if parsed, problem := readRecord(r, columns, record); problem != nil {
			f.wrong(*problem)
		} else {
			f.Rows = append(f.Rows, parsed)
		}
	}
}

// header checks the names of the columns.
func (f *File) header(r *csv.Reader, columns []string) bool {
	for i, name := range columns {
		line, at := r.FieldPos(i)
		switch {
		case !slices.Contains(Fields(), name):
			f.wrong(Problem{line, at, unknown("column", name).Error()})
		case slices.Index(columns, name) < i:
			f.wrong(Problem{line, at, fmt.Sprintf("duplicate column %q", name)})
		}
	}
	return f.Total == 0
}

func csvProblem(err error) Problem {
	if p, ok := errors.AsType[*csv.ParseError](err); ok {
		return Problem{p.Line, max(p.Column, 1), "this is not valid CSV: " + p.Err.Error()}
	}
	return Problem{1, 1, err.Error()}
}

// readRecord makes a JSON object from a record.
func readRecord(r *csv.Reader, columns, record []string) (Parsed, *Problem) {
	line, _ := r.FieldPos(0)
	parsed, out := Parsed{Line: line}, []byte("{")
	for i, cell := range record {
		if cell == "" {
			continue
		}
		line, at := r.FieldPos(i)
		value, err := valueOf(columns[i], cell)
		if err == nil && len(out)+len(value) > MaxRow {
			err = fmt.Errorf("the row has more than %d bytes", MaxRow)
		}
		if err != nil {
			return parsed, &Problem{line, at, err.Error()}
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(strconv.AppendQuote(out, columns[i]), ':')
		out = append(out, value...)
		parsed.places = append(parsed.places, place{columns[i], int32(line), int32(at)})
	}
	parsed.JSON = append(out, '}')
	return parsed, nil
}

// valueOf returns a cell as JSON.
func valueOf(column, cell string) ([]byte, error) {
	if !utf8.ValidString(cell) {
		return nil, errors.New("this is not valid UTF-8: give such a key as key_base64")
	}
	switch column {
	case "burst", "amount":
		if n, err := strconv.ParseInt(cell, 10, 64); err != nil || strconv.FormatInt(n, 10) != cell {
			return nil, fmt.Errorf("%s is %s, not a whole number", column, strconv.Quote(clip.Text(cell, 40)))
		}
		return []byte(cell), nil
	case "key":
		if strings.ContainsAny(cell[:1], "[{\"") {
			if !json.Valid([]byte(cell)) {
				return nil, errors.New(`key is not valid JSON: give a list, such as ["198.51.100.7"], or the text of a single part`)
			}
			return []byte(cell), nil
		}
	}
	return json.Marshal(cell)
}
