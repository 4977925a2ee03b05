// Package keysfile reads and writes files of bans, overrides and grants: JSON Lines or
// CSV, a row for each.
package keysfile

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// Row is a ban, an override or a grant.
type Row struct {
	Kind   string `json:"kind"`
	Domain string `json:"domain"`
	Rule   string `json:"rule"`
	// Key is the list of its parts as JSON, with null for a missing one. KeyBase64 is the
	// key as the store has it, for keys that are not text.
	Key       json.RawMessage `json:"key,omitempty"`
	KeyBase64 string          `json:"key_base64,omitempty"`
	Rate      string          `json:"rate,omitempty"`
	Burst     int64           `json:"burst,omitempty"`
	Amount    int64           `json:"amount,omitempty"`
	ID        string          `json:"id,omitempty"` // of a grant
	Until     time.Time       `json:"until"`
	Created   time.Time       `json:"created"`
	Reason    string          `json:"reason,omitempty"`
	By        string          `json:"by,omitempty"`
}

// Fields returns the names of all fields, in the order of columns.
func Fields() []string {
	return []string{"kind", "domain", "rule", "key", "key_base64", "rate", "burst", "amount", "id", "until", "created", "reason", "by"}
}

// Kinds returns the kinds of rows.
func Kinds() []string { return []string{"ban", "override", "grant"} }

// FieldsOf returns the fields that a kind of row may have.
func FieldsOf(kind string) []string {
	only := map[string]string{"rate": "override", "burst": "override", "amount": "grant", "id": "grant"}
	return slices.DeleteFunc(Fields(), func(field string) bool { return only[field] != "" && only[field] != kind })
}

// Format is the format of a file.
type Format uint8

// The formats.
const (
	JSONLines Format = iota
	CSV
)

// Formats returns the names of the formats.
func Formats() []string { return []string{"jsonl", "csv"} }

// ParseFormat returns the format with a name.
func ParseFormat(name string) (Format, bool) {
	at := slices.Index(Formats(), name)
	return Format(max(at, 0)), at >= 0
}

// FormatOf returns the format of a file by its name. It reports false if the name does
// not tell.
func FormatOf(file string) (Format, bool) {
	switch strings.ToLower(filepath.Ext(file)) {
	case ".csv":
		return CSV, true
	case ".jsonl", ".ndjson", ".json":
		return JSONLines, true
	}
	return JSONLines, false
}

// Write writes rows to w.
func Write(w io.Writer, format Format, rows []Row) error {
	if format == CSV {
		return writeCSV(w, rows)
	}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	for i := range rows {
		if err := e.Encode(&rows[i]); err != nil {
			return err
		}
	}
	return nil
}

func writeCSV(w io.Writer, rows []Row) error {
	c := csv.NewWriter(w)
	if err := c.Write(Fields()); err != nil {
		return err
	}
	number := func(n int64) string {
		if n == 0 {
			return ""
		}
		return strconv.FormatInt(n, 10)
	}
	for i := range rows {
		r := &rows[i]
		err := c.Write([]string{
			r.Kind, r.Domain, r.Rule, cellOf(r.Key), r.KeyBase64, r.Rate, number(r.Burst), number(r.Amount), r.ID,
			r.Until.Format(time.RFC3339Nano), r.Created.Format(time.RFC3339Nano), r.Reason, r.By,
		})
		if err != nil {
			return err
		}
	}
	c.Flush()
	return c.Error()
}

// cellOf returns a key as a cell: the text of a single part if it is plain, otherwise
// JSON.
func cellOf(key json.RawMessage) string {
	var parts []*string
	if json.Unmarshal(key, &parts) != nil || len(parts) != 1 || parts[0] == nil {
		return string(key)
	}
	text := *parts[0]
	plain := text != "" && strings.TrimSpace(text) == text && !strings.ContainsAny(text[:1], "[{\"") &&
		!strings.ContainsFunc(text, func(c rune) bool { return !unicode.IsPrint(c) })
	if plain {
		return text
	}
	return string(key)
}

// Problem is a mistake in a file.
type Problem struct {
	Line, Column int
	Message      string
}

// String returns line:column: message.
func (p Problem) String() string { return fmt.Sprintf("%d:%d: %s", p.Line, p.Column, p.Message) }

// File is what was read.
type File struct {
	Rows []Parsed
	// Problems are the first mistakes. Total counts all of them.
	Problems []Problem
	Total    int
}

// maxProblems is how many mistakes are kept.
const maxProblems = 10

// Limits of a file.
const (
	MaxRow  = 16 << 10  // bytes of a row
	MaxSize = 128 << 20 // bytes of a file
)

// Parsed is a row that was read: a JSON object with known fields.
type Parsed struct {
	JSON   []byte
	Line   int
	places []place // of its fields
}

// place is where the value of a field is.
type place struct {
	field        string
	line, column int32
}

// Problem returns a mistake in a field of r. If r does not have it, the place is where r
// begins.
func (r *Parsed) Problem(field, message string) Problem {
	for _, p := range r.places {
		if p.field == field {
			return Problem{int(p.line), int(p.column), message}
		}
	}
	return Problem{r.Line, 1, message}
}

func (f *File) wrong(p Problem) {
	if f.Total++; len(f.Problems) < maxProblems {
		f.Problems = append(f.Problems, p)
	}
}

// Read reads a file. The error is about reading only; mistakes in the content are in the
// File.
func Read(in io.Reader, format Format) (*File, error) {
	text, err := io.ReadAll(io.LimitReader(in, MaxSize+1))
	if err != nil {
		return nil, err
	}
	f := &File{}
	if len(text) > MaxSize {
		f.wrong(Problem{1, 1, fmt.Sprintf("the file is larger than %d MiB", MaxSize>>20)})
		return f, nil
	}
	text = bytes.TrimPrefix(text, []byte("\ufeff")) // spreadsheets and Windows begin files with it
	if format == CSV {
		f.readCSV(text)
	} else {
		f.readLines(text)
	}
	f.findTwins()
	return f, nil
}

// findTwins reports rows that are the same, byte for byte, as an earlier one.
func (f *File) findTwins() {
	seen := make(map[string]int, len(f.Rows))
	for i := range f.Rows {
		r := &f.Rows[i]
		if first, twice := seen[string(r.JSON)]; twice {
			f.wrong(Problem{r.Line, 1, fmt.Sprintf("duplicate of line %d", first)})
			continue
		}
		seen[string(r.JSON)] = r.Line
	}
}
