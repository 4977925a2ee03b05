package form

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

// Schema returns the JSON Schema of a mapping. types has the schemas of values, by name, in
// the form of a JSON object; defs are the other mappings.
func Schema(head string, root Mapping, types string, defs []Mapping) string {
	var all []string
	for i := range defs {
		all = append(all, quote(defs[i].Def)+":{"+defs[i].whole()+"}")
	}
	types = strings.TrimSuffix(strings.TrimSpace(types), "}")
	text := "{" + head + "," + root.object() + `,"$defs":` + types + "," + strings.Join(all, ",") + "}}"
	var out bytes.Buffer
	if err := json.Indent(&out, []byte(text), "", "  "); err != nil {
		return text // a test compiles it
	}
	return out.String() + "\n"
}

// Required is the default of a key that must be there, and whose absence something else
// reports.
const Required = "required"

// whole returns the members of the schema of a mapping that may be short.
func (m *Mapping) whole() string {
	text := described(m.Doc)
	if m.Short == nil {
		return text + m.object()
	}
	return text + `"anyOf":[{` + m.Short.Said().Schema + "},{" + m.object() + "}]"
}

// object returns the members of the schema of a mapping.
func (m *Mapping) object() string {
	members := []string{`"type":"object"`}
	if m.Nullable {
		members[0] = `"type":["object","null"]`
	}
	if !strings.Contains(m.Extra, `"additionalProperties"`) {
		members = append(members, `"additionalProperties":false`)
	}
	var needed, properties []string
	together := slices.Clone(m.Together)
	for i := range m.Rows {
		row := &m.Rows[i]
		row.Type = row.Said()
		if row.Example != "" || row.Default == Required {
			needed = append(needed, row.Key)
		}
		properties = append(properties, quote(row.Key)+":{"+row.schema()+"}")
		if len(row.Only) > 0 {
			together = append(together, m.only(row))
		}
	}
	if len(needed) > 0 {
		members = append(members, `"required":`+list(needed))
	}
	members = append(members, `"properties":{`+strings.Join(properties, ",")+"}")
	if m.Extra != "" {
		members = append(members, m.Extra)
	}
	if len(together) > 0 {
		members = append(members, `"allOf":[`+strings.Join(together, ",")+"]")
	}
	return strings.Join(members, ",")
}

// only says with which words a key goes.
func (m *Mapping) only(row *Row) string {
	words, other := []string{}, ""
	for _, word := range row.Only {
		if instead := m.Instead[word]; instead != "" {
			other = instead
		} else {
			words = append(words, word)
		}
	}
	then := `"properties":{` + quote(m.By) + `:{"enum":` + list(words) + "}}"
	if !slices.Contains(words, m.Word) {
		then += `,"required":` + list([]string{m.By})
	}
	if other != "" {
		then = `"anyOf":[{` + then + "}," + other + "]"
	}
	return `{"if":{"required":` + list([]string{row.Key}) + `},"then":{` + then + "}}"
}

// schema returns the members of the schema of a row.
func (row *Row) schema() string {
	text := row.sentence(func(page string) string { return "See docs/" + page + "." })
	if row.Default != "" && row.Default != Required && !strings.Contains(text, "Default:") && !strings.Contains(text, "(default") {
		text = strings.TrimSpace(text + " Default: " + strings.ReplaceAll(row.Default, "`", "") + ".")
	}
	return described(text) + row.Schema
}

func described(text string) string {
	if text == "" {
		return ""
	}
	return `"description":` + quote(text) + ","
}

func quote(text string) string {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	_ = e.Encode(text) // a text always can
	return strings.TrimSpace(out.String())
}

// Words returns a list of texts in JSON.
func Words(words []string) string { return list(words) }

func list(words []string) string {
	quoted := make([]string, len(words))
	for i, word := range words {
		quoted[i] = quote(word)
	}
	return "[" + strings.Join(quoted, ",") + "]"
}

// Without returns a JSON Schema: with what the condition says, none of the keys is there.
func Without(condition string, keys []string) string {
	none := make([]string, len(keys))
	for i, key := range keys {
		none[i] = quote(key) + ":false"
	}
	return `{"if":{` + condition + `},"then":{"properties":{` + strings.Join(none, ",") + "}}}"
}
