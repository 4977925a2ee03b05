// Package form describes mappings of YAML by tables of their keys. A row has the name of a
// key, what its value may be, what it means and where it goes. From the rows come the
// reader of a mapping and its errors, the JSON Schema for editors, and the tables of the
// docs.
package form

import (
	"cmp"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/rules/yamltext"
)

// Row is one key of a mapping.
type Row struct {
	Key string
	Type
	Doc     string // what it means, in sentences
	See     string // the page that says more, below docs
	Missing string // of a key that must be there: what an error adds to its name
	Example string // how to write it, for the error that it is missing
	// Only lists the words of the mapping's By that the key goes with; all if there are
	// none. Add says which word to add.
	Only []string
	Add  string
}

// Type is what a value may be.
type Type struct {
	Schema  string // the members of its JSON Schema
	Values  string // for people: 1 to 100
	Default string // what applies without it, for people
	// Read reads a value. Rows that are read together with others have none.
	Read func(r *yamltext.Report, key string, at yamltext.Pair)

	// say returns the schema, the values and the default where the fields are empty: rows are
	// made for each rule that is read, and described once.
	say func() (schema, values, standard string)
}

// Said returns the type with all that describes it.
func (t Type) Said() Type {
	if t.say != nil {
		schema, values, standard := t.say()
		t.Schema, t.Values, t.Default = cmp.Or(t.Schema, schema), cmp.Or(t.Values, values), cmp.Or(t.Default, standard)
	}
	return t
}

// Or returns the type with another default, for people.
func (t Type) Or(standard string) Type {
	t.Default = standard
	return t
}

// Mapping is a mapping by its keys.
type Mapping struct {
	Def  string // its name in the schema
	Doc  string
	Rows []Row
	// By is the key whose word other keys depend on, and Word the word without it.
	By, Word string
	Instead  map[string]string // JSON Schemas of what else may stand for a word
	Together []string          // JSON Schemas of what keys do together
	Nullable bool              // it may be empty
	Extra    string            // further members of its JSON Schema
	// Short is another form that the value may have: a word or a number. The mapping is
	// the long one.
	Short *Type
}

// Keys returns the names of keys.
func Keys(rows []Row) []string {
	keys := make([]string, len(rows))
	for i := range rows {
		keys[i] = rows[i].Key
	}
	return keys
}

// Read reads the values of a mapping, and reports keys that are unknown or missing. The
// fields are empty if it is no mapping.
func Read(r *yamltext.Report, n *yamltext.Node, what string, rows []Row) yamltext.Fields {
	before := r.Errors
	f := r.Fields(n, what, Keys(rows))
	if known := r.Errors == before; known { // a key that is unknown may be the one that is missing
		Need(r, n, what, rows)
	}
	ReadFields(r, f, rows)
	return f
}

// ReadFields reads the values that there are, in the order of the rows.
func ReadFields(r *yamltext.Report, f yamltext.Fields, rows []Row) {
	for i := range rows {
		if at, ok := f[rows[i].Key]; ok && rows[i].Read != nil {
			rows[i].Read(r, rows[i].Key, at)
		}
	}
}

// ReadOne reads the value of a key that is not one of a mapping.
func ReadOne(r *yamltext.Report, key string, n *yamltext.Node, t Type) {
	t.Read(r, key, yamltext.Pair{Key: n, Value: n})
}

// Need reports the keys that must be there and are not.
func Need(r *yamltext.Report, n *yamltext.Node, what string, rows []Row) {
	for i := range rows {
		if row := &rows[i]; row.Example != "" && !yamltext.HasKey(n, row.Key) {
			r.Errorf(n, row.Example, "%s has no %q%s", what, row.Key, row.Missing)
		}
	}
}

// Stray calls report for each key that does not go with a word.
func Stray(f yamltext.Fields, rows []Row, word string, report func(row *Row, at *yamltext.Node)) {
	for i := range rows {
		row := &rows[i]
		if field, ok := f[row.Key]; ok && len(row.Only) > 0 && !slices.Contains(row.Only, word) {
			report(row, field.Key)
		}
	}
}

// sentence returns what a row means, and where more is said.
func (row *Row) sentence(see func(page string) string) string {
	if row.See == "" {
		return row.Doc
	}
	return strings.TrimSpace(row.Doc + " " + see(row.See))
}
