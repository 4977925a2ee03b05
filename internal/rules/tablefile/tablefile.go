// Package tablefile reads tables, row by row: CSV, JSON and YAML files with named columns.
// Of these only CSV is read without keeping the table in memory.
package tablefile

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/headgate/headgate/internal/base/clip"
	"github.com/headgate/headgate/internal/base/diagnostic"
	"github.com/headgate/headgate/internal/base/nearest"
)

const (
	// MaxSize is the size of the largest table, in bytes. One in JSON or YAML is at most
	// yamltext.MaxFileSize long, since it is read as a whole.
	MaxSize = 256 << 20
	// maxRow is the size of the longest row, in bytes.
	maxRow = 1 << 20
	// mostMistakes is how many mistakes of a table are told.
	mostMistakes = 10
)

// Column is a column that the caller wants. A table may have others, which are ignored.
type Column struct {
	Name     string
	Others   []string // what it may be called instead
	Optional bool     // rows and tables may do without it
	Header   bool     // an optional one must be among the columns of a CSV file
}

// Cell is a value in a row.
type Cell struct {
	Text         string // without what surrounds it in the file; valid until the next row
	Given        bool   // false for an empty cell, and for one that is not there
	Line, Column int
}

// Row is a row of a table. It is valid until the next one is read.
type Row struct {
	Line  int
	Cells []Cell // in the order of the columns that the caller wants
}

// Mistakes are what is wrong with a table: the first few, and how many more.
type Mistakes struct {
	File string
	list []diagnostic.Diagnostic
	more int
}

// Addf adds a mistake. The hint may be empty.
func (m *Mistakes) Addf(line, column int, hint, format string, args ...any) {
	if m.Full() {
		m.more++
		return
	}
	m.list = append(m.list, diagnostic.Diagnostic{File: m.File, Line: line, Column: column, Message: fmt.Sprintf(format, args...), Hint: hint})
}

// Full reports whether further mistakes are only counted.
func (m *Mistakes) Full() bool { return len(m.list) >= mostMistakes }

// Any reports whether there are mistakes.
func (m *Mistakes) Any() bool { return len(m.list) > 0 }

// List returns the mistakes in the order of the lines, and, if there are more, how many.
func (m *Mistakes) List() []diagnostic.Diagnostic {
	slices.SortStableFunc(m.list, func(a, b diagnostic.Diagnostic) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	if m.more == 0 {
		return m.list
	}
	return append(slices.Clip(m.list), diagnostic.Diagnostic{File: m.File, Message: fmt.Sprintf("%d more mistakes are not shown", m.more)})
}

// format is how a table is written.
type format func(t *reading)

// formatOf returns the format of a file by its name, or nil.
func formatOf(name string) format {
	switch strings.ToLower(filepath.Ext(name)) {
	case ".csv":
		return readCSV
	case ".json", ".yaml", ".yml": // JSON is YAML
		return readYAML
	}
	return nil
}

// Known reports whether a file can be a table, by its name.
func Known(name string) bool { return formatOf(name) != nil }

// reading is a table that is being read.
type reading struct {
	*Mistakes
	in      *bufio.Reader
	columns []Column
	each    func(Row)
	row     Row
	similar map[[2]string]bool // whether a column may be a misspelled other
}

// Read reads a table from r and calls each for every row that has all columns that are
// not optional. The name of the file, in m, says how it is written. Mistakes go to m.
func Read(r io.Reader, columns []Column, m *Mistakes, each func(Row)) {
	read := formatOf(m.File)
	if read == nil {
		m.Addf(0, 0, "tables end in .csv, .json, .yaml or .yml", "the name of the table does not say how it is written")
		return
	}
	t := &reading{Mistakes: m, in: bufio.NewReaderSize(io.LimitReader(r, MaxSize+1), 64<<10), columns: columns, each: each, similar: map[[2]string]bool{}}
	t.row.Cells = make([]Cell, len(columns))
	if start, err := t.in.Peek(3); err == nil && string(start) == "\uFEFF" {
		_, _ = t.in.Discard(len(start)) // what was peeked at
	}
	read(t)
}

// place returns the place of a column among those wanted, or -1.
func (t *reading) place(name string) int {
	return slices.IndexFunc(t.columns, func(c Column) bool {
		return c.Name == name || slices.Contains(c.Others, name)
	})
}

// begin begins a row.
func (t *reading) begin(line int) {
	t.row.Line = line
	clear(t.row.Cells)
}

// end hands on a row, if it is complete. others are the names of its other columns.
func (t *reading) end(line, column int, others []string) {
	complete := true
	for i := range t.columns {
		c := &t.columns[i]
		switch cell := &t.row.Cells[i]; {
		case cell.Given && !utf8.ValidString(cell.Text):
			t.Addf(cell.Line, cell.Column, "save the file as UTF-8", "%s is not valid UTF-8", clip.Quote(c.Name))
			complete = false
		case cell.Given:
		case t.lacks(i, line, column, others):
			complete = false
		}
	}
	if complete {
		t.each(t.row)
	}
}

// lacks reports whether it is wrong that a row does not have a column, and says so.
func (t *reading) lacks(i, line, column int, others []string) bool {
	c, cell := &t.columns[i], &t.row.Cells[i]
	for _, other := range others {
		if t.isSimilar(c.Name, other) {
			t.Addf(line, column, "", "unknown column %s, did you mean %q?", clip.Quote(other), c.Name)
			return true
		}
	}
	if c.Optional {
		return false
	}
	if cell.Line > 0 { // it is empty
		line, column = cell.Line, cell.Column
	}
	t.Addf(line, column, "", "the row has no %s", clip.Quote(c.Name))
	return true
}

// isSimilar reports whether a column may be a misspelled other one.
func (t *reading) isSimilar(want, name string) bool {
	pair := [2]string{want, name}
	similar, known := t.similar[pair]
	if !known {
		similar = nearest.Word(name, []string{want}) != ""
		if len(t.similar) < 1000 {
			t.similar[pair] = similar
		}
	}
	return similar
}

// list names columns for people.
func list(columns []Column) string {
	var names []string
	for _, c := range columns {
		if name := c.Name; c.Optional {
			names = append(names, name+" (optional)")
		} else {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// tooLong says that the file is.
func (t *reading) tooLong() {
	t.Addf(0, 0, "", "the table is larger than %d MiB", MaxSize>>20)
}
