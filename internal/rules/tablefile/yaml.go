package tablefile

import (
	"io"
	"slices"

	"github.com/headgate/headgate/internal/base/clip"
	"github.com/headgate/headgate/internal/rules/yamltext"
)

// readYAML reads a list of flat mappings, in YAML or JSON.
func readYAML(t *reading) {
	src, err := io.ReadAll(io.LimitReader(t.in, yamltext.MaxFileSize+1))
	switch {
	case err != nil:
		t.Addf(0, 0, "", "cannot be read: %v", err)
		return
	case len(src) > yamltext.MaxFileSize:
		t.Addf(0, 0, "use a CSV file for a large table", "a table in JSON or YAML may have at most %d MiB", yamltext.MaxFileSize>>20)
		return
	}
	report := &yamltext.Report{File: t.File}
	docs := yamltext.Read(src, report)
	if report.Errors > 0 {
		for _, d := range report.Sorted() {
			t.Addf(d.Line, d.Column, d.Hint, "%s", d.Message)
		}
		return
	}
	docs = slices.DeleteFunc(docs, func(n *yamltext.Node) bool { return n.Kind == yamltext.Null })
	if len(docs) != 1 || docs[0].Kind != yamltext.List {
		t.Addf(1, 1, `for example - {key: acme, rate: 5/minute}; in JSON [{"key": "acme", "rate": "5/minute"}]`, "a table is a list of rows")
		return
	}
	for _, n := range docs[0].Items {
		t.node(n)
	}
}

// node hands on a row.
func (t *reading) node(n *yamltext.Node) {
	if n.Kind != yamltext.Map {
		t.Addf(n.Line, n.Column, "for example {key: acme, rate: 5/minute}", "a row must be a mapping, not %s", n.Kind)
		return
	}
	t.begin(n.Line)
	var others []string
	for _, field := range n.Pairs {
		place := t.place(field.Key.Text)
		if place < 0 {
			others = append(others, field.Key.Text)
			continue
		}
		cell, v := &t.row.Cells[place], field.Value
		if cell.Line > 0 {
			t.Addf(field.Key.Line, field.Key.Column, "", "duplicate column %s", clip.Quote(field.Key.Text))
			return
		}
		cell.Line, cell.Column = v.Line, v.Column
		switch v.Kind {
		case yamltext.Text, yamltext.Number:
			cell.Text, cell.Given = v.Text, v.Text != ""
		case yamltext.Null:
		case yamltext.Bool, yamltext.List, yamltext.Map:
			t.Addf(v.Line, v.Column, "put it in quotes if it is text", "%s must be text or a number, not %s", clip.Quote(field.Key.Text), v.Kind)
			return
		}
	}
	t.end(n.Line, n.Column, others)
}
