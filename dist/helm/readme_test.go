package helm

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// value is a line of the table: one value, or a group of them that is set as a whole.
type value struct{ name, initial, meaning string }

// table reads values.yaml: the comment above a key says what it means.
func table(t *testing.T) (all []value) {
	t.Helper()
	var document yaml.Node
	if err := yaml.Unmarshal(read(t, folder+"/values.yaml"), &document); err != nil {
		t.Fatal(err)
	}
	var walk func(node *yaml.Node, prefix string)
	walk = func(node *yaml.Node, prefix string) {
		for i := 0; i < len(node.Content); i += 2 {
			key, v := node.Content[i], node.Content[i+1]
			if isGroup(v) {
				walk(v, prefix+key.Value+".")
				continue
			}
			all = append(all, value{prefix + key.Value, compact(t, v), meaning(key.HeadComment)})
		}
	}
	walk(document.Content[0], "")
	return all
}

// isGroup reports whether the values of a mapping are described one by one.
func isGroup(v *yaml.Node) bool {
	return v.Kind == yaml.MappingNode && slices.ContainsFunc(v.Content, func(n *yaml.Node) bool { return n.HeadComment != "" || isGroup(n) })
}

func meaning(comment string) string {
	paragraphs := strings.Split(comment, "\n\n") // those above are about what follows
	return strings.ReplaceAll(strings.TrimPrefix(paragraphs[len(paragraphs)-1], "# "), "\n# ", " ")
}

// compact is the value as JSON.
func compact(t *testing.T, v *yaml.Node) string {
	t.Helper()
	var x any
	if err := v.Decode(&x); err != nil {
		t.Fatal(err)
	}
	if x == "" {
		return ""
	}
	text, err := json.Marshal(x)
	if err != nil {
		t.Fatal(err)
	}
	return "`" + string(text) + "`"
}

// README.md shows values.yaml.
func TestReadmeShowsTheValues(t *testing.T) {
	const start, end = "| value | default | meaning |\n| --- | --- | --- |\n", "\n## "
	var lines strings.Builder
	for _, v := range table(t) {
		if v.meaning == "" {
			t.Errorf("values.yaml does not describe %s", v.name)
		}
		lines.WriteString("| `" + v.name + "` | " + v.initial + " | " + v.meaning + " |\n")
	}
	file := folder + "/README.md"
	text := string(read(t, file))
	before, after, found := strings.Cut(text, start)
	_, after, more := strings.Cut(after, end)
	if !found || !more {
		t.Fatal("README.md has no table of values")
	}
	want := before + start + lines.String() + end + after
	if *update {
		text = want
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if text != want {
		t.Error("README.md is out of date: go test -run TestReadmeShowsTheValues . -update")
	}
}

// The schema knows every value of values.yaml, and no other.
func TestSchemaKnowsTheValues(t *testing.T) {
	var schema struct {
		node
		Definitions map[string]node
	}
	decoder := json.NewDecoder(bytes.NewReader(read(t, folder+"/values.schema.json")))
	if err := decoder.Decode(&schema); err != nil {
		t.Fatal(err)
	}
	var known []string
	var walk func(n node, name string)
	walk = func(n node, name string) {
		if ref, ok := strings.CutPrefix(n.Ref, "#/definitions/"); ok {
			n = schema.Definitions[ref]
		}
		if len(n.Properties) == 0 || string(n.More) != "false" {
			known = append(known, strings.TrimPrefix(name, "."))
			return
		}
		for key, part := range n.Properties {
			walk(part, name+"."+key)
		}
	}
	walk(schema.node, "")
	var described []string
	for _, v := range table(t) {
		described = append(described, v.name)
	}
	for _, name := range known {
		if name != "global" && !slices.ContainsFunc(described, func(d string) bool { return d == name || strings.HasPrefix(name, d+".") }) {
			t.Errorf("values.yaml does not have %s of the schema", name)
		}
	}
	for _, name := range described {
		if !slices.ContainsFunc(known, func(k string) bool { return k == name || strings.HasPrefix(k, name+".") }) {
			t.Errorf("the schema does not have %s of values.yaml", name)
		}
	}
}

// node is what the test reads of a schema.
type node struct {
	Ref        string          `json:"$ref"`
	Properties map[string]node `json:"properties"`
	More       json.RawMessage `json:"additionalProperties"`
}
