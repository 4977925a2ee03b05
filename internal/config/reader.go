package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
	"go.yaml.in/yaml/v4/plugin/loaderlimits"

	"github.com/headgate/headgate/internal/rules"
)

// reader applies a file to a Config and collects what is wrong with it.
type reader struct {
	config   *Config
	file     string
	folder   string
	problems rules.Problems
}

func (r *reader) errorf(n *yaml.Node, hint, format string, args ...any) {
	r.problems = append(r.problems, rules.Diagnostic{
		File: r.file, Line: n.Line, Column: n.Column, Message: fmt.Sprintf(format, args...), Hint: hint,
	})
}

// read applies src.
func (r *reader) read(src []byte) {
	if !utf8.Valid(src) {
		r.problems = append(r.problems, rules.Diagnostic{File: r.file, Message: "the file is not UTF-8"})
		return
	}
	loader, err := yaml.NewLoader(bytes.NewReader(src), yaml.WithPlugin(loaderlimits.New(loaderlimits.DepthValue(16))))
	if err != nil {
		r.syntax(src, err)
		return
	}
	var doc, second yaml.Node
	switch err := loader.Load(&doc); {
	case errors.Is(err, io.EOF):
		return // an empty file sets nothing
	case err != nil:
		r.syntax(src, err)
		return
	case len(doc.Content) == 0:
		return
	}
	if err := loader.Load(&second); err == nil && len(second.Content) > 0 {
		r.errorf(second.Content[0], "", "the configuration is one YAML document, and this is a second")
		return
	}
	if root := doc.Content[0]; root.ShortTag() != "!!null" {
		r.mapping(root, "")
	}
}

// syntax reports what the YAML library could not read.
func (r *reader) syntax(src []byte, err error) {
	d := rules.Diagnostic{File: r.file, Message: "not valid YAML: " + err.Error()}
	if e, ok := errors.AsType[*yaml.LoadError](err); ok {
		message := e.Message
		if strings.HasPrefix(message, "unknown anchor ") { // whose name may be a password
			message = "unknown anchor: a text that begins with * needs quotes"
		}
		d.Line, d.Column, d.Message = e.Mark.Line, e.Mark.Column, "not valid YAML: "+message
		d.Hint = rules.SyntaxHint(src, e.Mark.Line, e.Message)
	}
	r.problems = append(r.problems, d)
}

// mapping applies the settings below prefix, which is empty or ends in a dot.
func (r *reader) mapping(n *yaml.Node, prefix string) {
	n = resolved(n)
	what := strings.TrimSuffix(prefix, ".")
	if n.Kind != yaml.MappingNode {
		if what == "" {
			what = "the configuration"
		}
		r.errorf(n, "", "%s must be a mapping of keys to values", what)
		return
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], resolved(n.Content[i+1])
		if line, twice := seen[key.Value]; twice {
			r.errorf(key, "", "duplicate key %q, first on line %d", key.Value, line)
			continue
		}
		seen[key.Value] = key.Line
		r.entry(key, value, prefix)
	}
}

// entry applies one pair of a mapping.
func (r *reader) entry(key, value *yaml.Node, prefix string) {
	path := prefix + key.Value
	all := settings()
	exact := slices.IndexFunc(all, func(s setting) bool { return s.key == path })
	if exact >= 0 && !isSection(path, value) {
		r.config.note(path, place{line: value.Line, column: value.Column})
		r.setting(&all[exact], key, value)
		return
	}
	if slices.ContainsFunc(all, func(s setting) bool { return strings.HasPrefix(s.key, path+".") }) {
		if value.ShortTag() != "!!null" {
			r.config.note(path, place{key.Line, key.Column, true})
			r.mapping(value, path+".")
		}
		return
	}
	known := below(all, prefix)
	near, hint := didYouMean(key.Value, known), ""
	if near == "" {
		hint = "known are " + strings.Join(known, ", ")
	}
	where := ""
	if prefix != "" {
		where = " in " + strings.TrimSuffix(prefix, ".")
	}
	r.errorf(key, hint, "unknown key %q%s%s", key.Value, where, near)
}

// below returns the keys that may stand directly below prefix.
func below(all []setting, prefix string) []string {
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
func (r *reader) setting(s *setting, key, value *yaml.Node) {
	nodes := []*yaml.Node{value}
	if s.list && value.Kind == yaml.SequenceNode {
		nodes = value.Content
	}
	values := make([]string, 0, len(nodes))
	if s.pairs && value.Kind == yaml.MappingNode {
		if nodes = r.pairs(s, value); nodes == nil {
			return
		}
	}
	for _, n := range nodes {
		n = resolved(n)
		switch {
		case n.Kind != yaml.ScalarNode && s.list:
			r.errorf(n, "", "%s must be a list of values", s.key)
			return
		case n.Kind != yaml.ScalarNode:
			r.errorf(n, "", "%s must be a single value", s.key)
			return
		case n.ShortTag() == "!!null" || n.Value == "":
			r.errorf(key, "", "%q has no value", key.Value)
			return
		}
		values = append(values, n.Value)
	}
	if s.path {
		values = relativeTo(r.folder, values)
	}
	if err := s.set(r.config, values); err != nil {
		hint := ""
		if h, ok := errors.AsType[*hinted](err); ok {
			hint = h.hint
		}
		r.errorf(value, hint, "%s: %s", s.key, err)
	}
}

// pairs returns name=value for each pair of a mapping; nil if something in it is
// wrong, or there is nothing in it.
func (r *reader) pairs(s *setting, mapping *yaml.Node) []*yaml.Node {
	var nodes []*yaml.Node
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		name, value := mapping.Content[i], resolved(mapping.Content[i+1])
		if value.Kind != yaml.ScalarNode || value.ShortTag() == "!!null" {
			r.errorf(name, "", "%s: %q must have a single value", s.key, name.Value)
			return nil
		}
		pair := *value
		pair.Value = name.Value + "=" + value.Value
		nodes = append(nodes, &pair)
	}
	return nodes
}

// resolved returns what an alias stands for. The walk goes no deeper than the
// settings do, so aliases cannot send it in circles.
func resolved(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode && n.Alias != nil {
		return n.Alias
	}
	return n
}
