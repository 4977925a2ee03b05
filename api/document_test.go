package api_test

import (
	"cmp"
	"encoding"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// dict is an object whose members keep their order.
type dict []pair

type pair struct {
	name  string
	value any
}

// plain returns v in the types of encoding/json.
func plain(v any) any {
	switch v := v.(type) {
	case dict:
		out := map[string]any{}
		for _, p := range v {
			out[p.name] = plain(p.value)
		}
		return out
	case []any:
		out := []any{}
		for _, e := range v {
			out = append(out, plain(e))
		}
		return out
	case int:
		return json.Number(strconv.Itoa(v))
	}
	return v
}

var simple = regexp.MustCompile(`^[A-Za-z_/][\w /{}$.-]*$`)

func quoted(s string) string {
	if simple.MatchString(s) && !slices.Contains([]string{"null", "true", "false", "yes", "no", "on", "off", "y", "n"}, strings.ToLower(s)) && !strings.HasSuffix(s, " ") {
		return s
	}
	text, _ := json.Marshal(s)
	return string(text)
}

// yaml writes v as YAML.
func yaml(b *strings.Builder, indent string, v any) {
	switch v := v.(type) {
	case dict:
		for _, p := range v {
			b.WriteString(indent + quoted(p.name) + ":")
			below(b, indent, p.value)
		}
	case []any:
		for _, e := range v {
			if d, ok := e.(dict); ok && len(d) > 0 {
				var text strings.Builder
				yaml(&text, indent+"  ", d)
				b.WriteString(indent + "- " + strings.TrimPrefix(text.String(), indent+"  "))
				continue
			}
			b.WriteString(indent + "-")
			below(b, indent, e)
		}
	}
}

func below(b *strings.Builder, indent string, v any) {
	switch v := v.(type) {
	case dict:
		if len(v) == 0 {
			b.WriteString(" {}\n")
			return
		}
		b.WriteString("\n")
		yaml(b, indent+"  ", v)
	case []any:
		if len(v) == 0 {
			b.WriteString(" []\n")
			return
		}
		b.WriteString("\n")
		yaml(b, indent+"  ", v)
	case string:
		b.WriteString(" " + quoted(v) + "\n")
	default:
		fmt.Fprintf(b, " %v\n", v)
	}
}

// schemas are the components of the document, by name.
type schemas struct {
	list dict
	of   map[reflect.Type]string
	said map[reflect.Type]map[string]string // what the source says of fields
}

func ref(name string) dict { return dict{{"$ref", "#/components/schemas/" + name}} }

// describe adds the schema of an object whose members are written as "name type: what",
// with ! after the name if it is always there. A type is one of JSON, [T] for a list, {T}
// for a map, T|T for one of several, or the name of another schema.
func (s *schemas) describe(name string, members ...string) {
	var properties dict
	var required []any
	for _, m := range members {
		head, what, _ := strings.Cut(m, ": ")
		field, kind, _ := strings.Cut(head, " ")
		field, always := strings.CutSuffix(field, "!")
		if always {
			required = append(required, field)
		}
		schema := typed(kind)
		if what != "" {
			schema = append(schema, pair{"description", what})
		}
		properties = append(properties, pair{field, schema})
	}
	s.add(name, properties, required)
}

func (s *schemas) add(name string, properties dict, required []any) {
	object := dict{{"type", "object"}}
	if required != nil {
		object = append(object, pair{"required", required})
	}
	s.list = append(s.list, pair{name, append(object, pair{"properties", properties})})
}

func typed(kind string) dict {
	switch {
	case strings.HasPrefix(kind, "["):
		return dict{{"type", "array"}, {"items", typed(kind[1 : len(kind)-1])}}
	case strings.HasPrefix(kind, "{"):
		return dict{{"type", "object"}, {"additionalProperties", typed(kind[1 : len(kind)-1])}}
	case strings.Contains(kind, "|"):
		var types []any
		for name := range strings.SplitSeq(kind, "|") {
			types = append(types, name)
		}
		return dict{{"type", types}}
	case kind[0] >= 'A' && kind[0] <= 'Z':
		return ref(kind)
	}
	return dict{{"type", kind}}
}

// goType returns the schema of a Go type, as encoding/json writes it. Those of structs are
// added under the type's name.
func (s *schemas) goType(t reflect.Type) dict {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return dict{{"type", "string"}, {"format", "date-time"}}
	case t == reflect.TypeFor[json.RawMessage]() || t.Kind() == reflect.Interface:
		return dict{}
	case t.Implements(reflect.TypeFor[encoding.TextMarshaler]()):
		return dict{{"type", "string"}}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return s.goType(t.Elem())
	case reflect.Struct:
		return ref(s.object(t))
	case reflect.Slice, reflect.Array:
		if t.Elem().Kind() == reflect.Uint8 {
			return dict{{"type", "string"}, {"contentEncoding", "base64"}}
		}
		return dict{{"type", "array"}, {"items", s.member(t.Elem())}}
	case reflect.Map:
		return dict{{"type", "object"}, {"additionalProperties", s.goType(t.Elem())}}
	case reflect.String:
		return dict{{"type", "string"}}
	case reflect.Bool:
		return dict{{"type", "boolean"}}
	case reflect.Float64:
		return dict{{"type", "number"}}
	default: // the rest of what the doors write
		return dict{{"type", "integer"}}
	}
}

// member is the schema of a value that may be null if it is a pointer.
func (s *schemas) member(t reflect.Type) dict {
	schema := s.goType(t)
	switch {
	case t.Kind() != reflect.Pointer:
		return schema
	case schema[0].name == "$ref":
		return dict{{"anyOf", []any{schema, dict{{"type", "null"}}}}}
	}
	schema[0].value = []any{schema[0].value, "null"}
	return schema
}

// object adds the schema of a struct and returns its name.
func (s *schemas) object(t reflect.Type) string {
	if name := s.of[t]; name != "" {
		return name
	}
	name := strings.ToUpper(t.Name()[:1]) + t.Name()[1:]
	for s.list.get(name) != nil {
		folder := t.PkgPath()[strings.LastIndex(t.PkgPath(), "/")+1:]
		name = strings.ToUpper(folder[:1]) + folder[1:] + name
	}
	s.of[t] = name
	at := len(s.list)
	s.list = append(s.list, pair{name, dict{}}) // before those that it needs
	var properties dict
	var required []any
	s.members(t, &properties, &required)
	rest := slices.Clone(s.list[at+1:])
	s.list = s.list[:at]
	s.add(name, properties, required)
	s.list = append(s.list, rest...)
	return name
}

func (s *schemas) members(t reflect.Type, properties *dict, required *[]any) {
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "" && f.Type.Kind() == reflect.Pointer: // absent if nil
			s.members(f.Type.Elem(), properties, new([]any))
			continue
		case f.Anonymous && name == "":
			s.members(f.Type, properties, required)
			continue
		case name == "-" || !f.IsExported():
			continue
		case name == "":
			name = f.Name
		}
		schema := s.goType(f.Type)
		if !strings.Contains(options, "omit") {
			*required = append(*required, name)
			schema = s.member(f.Type)
		}
		if what := cmp.Or(s.comments(t)[f.Name], everywhere[name]); what != "" {
			schema = append(schema, pair{"description", what})
		}
		*properties = append(*properties, pair{name, schema})
	}
}

// comments returns what the source of a struct says of its fields, by their names in Go.
func (s *schemas) comments(t reflect.Type) map[string]string {
	if said, ok := s.said[t]; ok {
		return said
	}
	said := map[string]string{}
	s.said[t] = said
	files, _ := filepath.Glob(".." + strings.TrimPrefix(t.PkgPath(), "github.com/headgate/headgate") + "/*.go")
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			panic(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok || spec.Name.Name != t.Name() {
				return true
			}
			if object, ok := spec.Type.(*ast.StructType); ok {
				for _, f := range object.Fields.List {
					for _, name := range f.Names {
						said[name.Name] = meaning(t, cmp.Or(f.Comment.Text(), f.Doc.Text()))
					}
				}
			}
			return false
		})
	}
	return said
}

// meaning is a comment of a field in the words of the document: fields by their names there,
// without "x is", which begins a comment in Go, and without the last full stop.
func meaning(t reflect.Type, comment string) string {
	text := strings.Join(strings.Fields(comment), " ")
	for f := range t.Fields() {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
			text = regexp.MustCompile(`\b`+f.Name+`\b`).ReplaceAllString(text, name)
			text = strings.TrimPrefix(text, name+" is ")
		}
	}
	return strings.TrimSuffix(text, ".")
}

func (d dict) get(name string) any {
	for _, p := range d {
		if p.name == name {
			return p.value
		}
	}
	return nil
}
