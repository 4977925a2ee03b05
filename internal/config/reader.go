package config

import (
	"errors"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/base/nearest"
	"github.com/headgate/headgate/internal/rules/yamltext"
)

// reader applies a file to a Config and collects what is wrong with it.
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
		r.Errorf(docs[1], "", "the configuration is one YAML document, and this is a second")
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
		r.entry(field.Key, field.Value, prefix)
	}
}

// entry applies one pair of a mapping.
func (r *reader) entry(key, value *yamltext.Node, prefix string) {
	path := prefix + key.Text
	all := r.config.settings()
	exact := slices.IndexFunc(all, func(s Setting) bool { return s.key == path })
	if exact >= 0 && !isSection(path, value) {
		r.config.note(path, place{line: value.Line, column: value.Column})
		r.setting(&all[exact], key, value)
		return
	}
	if slices.ContainsFunc(all, func(s Setting) bool { return strings.HasPrefix(s.key, path+".") }) {
		if value.Kind != yamltext.Null {
			r.config.note(path, place{key.Line, key.Column, true})
			r.mapping(value, path+".")
		}
		return
	}
	known := below(all, prefix)
	near, hint := nearest.DidYouMean(key.Text, known), ""
	if near == "" {
		hint = "known are " + strings.Join(known, ", ")
	}
	where := ""
	if prefix != "" {
		where = " in " + strings.TrimSuffix(prefix, ".")
	}
	r.Errorf(key, hint, "unknown key %q%s%s", key.Text, where, near)
}

// below returns the keys that may stand directly below prefix.
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

// pairs returns name=value for each pair of a mapping; nil if something in it is
// wrong, or there is nothing in it.
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
