package config

import (
	"errors"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/base/diagnostic"
	"github.com/headgate/headgate/internal/rules/yamltext"
)

// reader applies a file to a Config and collects errors.
type reader struct {
	*yamltext.Report
	config *Config
	folder string
}

// read applies src. An empty file sets nothing.
func (r *reader) read(src []byte) {
	docs := yamltext.Read(src, r.Report)
	switch {
	case len(docs) > 1:
		r.Errorf(docs[1], "", "the configuration must be a single YAML document; this is a second one")
	case len(docs) == 1 && docs[0].Kind != yamltext.Null:
		r.mapping(docs[0], "")
	}
}

// mapping applies the settings below prefix, which is empty or ends in a dot.
func (r *reader) mapping(n *yamltext.Node, prefix string) {
	what := strings.TrimSuffix(prefix, ".")
	if n.Kind != yamltext.Map {
		if what == "" {
			what = "the configuration"
		}
		r.Errorf(n, "", "%s must be a mapping of keys to values", what)
		return
	}
	for _, field := range n.Pairs {
		if prefix == "" && slices.Contains([]string{"limits", "descriptors"}, field.Key.Text) {
			r.Errorf(field.Key, "name it in the configuration, such as rules: [rules.yaml], or with --rules",
				"this is a rule file, not a configuration: %q is a key of rule files", field.Key.Text)
			return
		}
	}
	for _, field := range n.Pairs {
		r.entry(field.Key, field.Value, prefix)
	}
}

// entry applies one pair of a mapping.
func (r *reader) entry(key, value *yamltext.Node, prefix string) {
	path := prefix + key.Text
	all := r.config.settings()
	exact := slices.IndexFunc(all, func(s Setting) bool { return s.key == path })
	isSection := slices.ContainsFunc(all, func(s Setting) bool { return strings.HasPrefix(s.key, path+".") })
	if value.Kind == yamltext.Map && !isSection && hadSettings(path) {
		r.mapping(value, path+".")
		return
	}
	if isPlain := value.Kind != yamltext.Map && value.Kind != yamltext.Null; exact >= 0 && (!isSection || isPlain) {
		r.config.remember(path, place{line: value.Line, column: value.Column})
		r.setting(&all[exact], key, value)
		return
	}
	if isSection {
		if value.Kind != yamltext.Null {
			r.config.remember(path, place{key.Line, key.Column, true})
			r.mapping(value, path+".")
		}
		return
	}
	if instead := insteadOf(path); instead != "" {
		r.Errorf(key, instead, "%s is not a setting any more", path)
		return
	}
	where, more := "", ""
	if prefix != "" {
		section := strings.TrimSuffix(prefix, ".")
		where = " in " + section
		if turned := key.Text + "." + section; slices.ContainsFunc(all, func(s Setting) bool { return s.key == turned }) {
			more = ", or " + turned // such as proxy.listen
		}
	}
	r.Unknown(key, "key", where, below(all, prefix), more)
}

// below returns the keys allowed directly below prefix.
func below(all []Setting, prefix string) []string {
	var known []string
	for _, s := range all {
		if rest, ok := strings.CutPrefix(s.key, prefix); ok && rest != "" {
			word, _, _ := strings.Cut(rest, ".")
			if !slices.Contains(known, word) {
				known = append(known, word)
			}
		}
	}
	return known
}

// setting applies one value.
func (r *reader) setting(s *Setting, key, value *yamltext.Node) {
	nodes := []*yamltext.Node{value}
	if s.list && value.Kind == yamltext.List {
		nodes = value.Items
	}
	values := make([]string, 0, len(nodes))
	if s.pairs && value.Kind == yamltext.Map {
		if nodes = r.pairs(s, value); nodes == nil {
			return
		}
	}
	for _, n := range nodes {
		switch {
		case !n.IsScalar() && s.list:
			r.Errorf(n, "", "%s must be a list of values", s.key)
			return
		case !n.IsScalar():
			r.Errorf(n, "", "%s must be a single value", s.key)
			return
		case n.Kind == yamltext.Null || n.Text == "":
			r.Errorf(key, "", "%q has no value", key.Text)
			return
		}
		values = append(values, n.Text)
	}
	if s.path {
		values = relativeTo(r.folder, values)
	}
	if err := s.set(r.config, values); err != nil {
		hint := ""
		if h, ok := errors.AsType[*hinted](err); ok {
			hint = h.hint
		}
		r.Errorf(value, hint, "%s: %s", s.key, err)
	}
}

// pairs returns name=value for each pair of a mapping; nil if one is wrong or there
// are none.
func (r *reader) pairs(s *Setting, mapping *yamltext.Node) []*yamltext.Node {
	var nodes []*yamltext.Node
	for _, field := range mapping.Pairs {
		if !field.Value.IsScalar() || field.Value.Kind == yamltext.Null {
			r.Errorf(field.Key, "", "%s: %q must have a single value", s.key, field.Key.Text)
			return nil
		}
		pair := *field.Value
		pair.Text = field.Key.Text + "=" + field.Value.Text
		nodes = append(nodes, &pair)
	}
	return nodes
}

// place is the position of a setting or section in the file.
type place struct {
	line, column int
	section      bool // not a value
}

// remember remembers the position of a key's value.
func (c *Config) remember(key string, at place) {
	if c.places == nil {
		c.places = map[string]place{}
	}
	c.places[key] = at
}

// forget drops the positions of a key that another source has set, and of the keys
// above and below it.
func (c *Config) forget(key string) {
	for known := range c.places {
		if known == key || strings.HasPrefix(known, key+".") || strings.HasPrefix(key, known+".") {
			delete(c.places, known)
		}
	}
}

// Locate adds to a [SourceError] the setting's position in the file, or that of the
// section where it is missing. It returns other errors, and those about settings
// that are not in the file, unchanged.
func (c *Config) Locate(err error) error {
	e, ok := err.(*SourceError) //nolint:errorlint // the error itself, not one of several
	if !ok || e.Line > 0 {
		return err
	}
	for key := e.Source; key != ""; {
		if at, ok := c.places[key]; ok {
			located := *e
			located.File, located.Line, located.Column = c.File, at.line, at.column
			if !at.section {
				located.Source = key // such as store, whose value may be the URL of store.redis.url
			}
			return &located
		}
		dot := strings.LastIndexByte(key, '.')
		key = key[:max(dot, 0)]
	}
	return err
}

// Diagnostic returns e as a Diagnostic.
func (e *SourceError) Diagnostic() diagnostic.Diagnostic {
	return diagnostic.Diagnostic{File: e.File, Line: e.Line, Column: e.Column, Message: e.Source + ": " + e.Message, Hint: e.Hint}
}

func (c *Config) locateWarnings() {
	for i, w := range c.Warnings {
		if located, ok := errors.AsType[*SourceError](c.Locate(w)); ok {
			c.Warnings[i] = located
		}
	}
}
