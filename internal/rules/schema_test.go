package rules_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/headgate/headgate/internal/base/diagnostic"
	"github.com/headgate/headgate/internal/replay/ruletest"
	"github.com/headgate/headgate/internal/rules/rulefile"
	"github.com/headgate/headgate/internal/rules/schema"
	"github.com/headgate/headgate/internal/rules/yamltext"
)

// beyondSchema are mistakes that a schema cannot express, or that are not in
// the document but in its text, with the reason.
var beyondSchema = map[string]string{
	"only-comments":                "a file without documents",
	"soft-shared":                  "two keys far apart",
	"pass-quota":                   "two keys far apart",
	"fair-with":                    "two keys far apart",
	"marks-and-headroom":           "two keys far apart",
	"no-rules":                     "another document of the file may have them",
	"cut-off":                      "another document of the file may have them",
	"burst-too-large-for-rate":     "arithmetic",
	"key-hash-twice":               "two values that mean the same",
	"rate-period-too-long":         "arithmetic",
	"client-ip-host-bits":          "arithmetic on addresses",
	"list-host-bits":               "arithmetic on addresses",
	"list-file-in-memory":          "where the rules are",
	"list-in-envoy-compat":         "two keys far apart",
	"claim-rate-default-above":     "arithmetic",
	"timezone-unknown":             "the IANA database",
	"timezone-source-default":      "the IANA database",
	"timezone-source-prefix":       "a word that is nearly another",
	"name-twice":                   "two places of the file",
	"header-twice":                 "names that differ in case only",
	"envoy-duplicate":              "two places of the file",
	"envoy-duplicate-wildcard":     "two places of the file",
	"envoy-compat-collision":       "two places of the file",
	"envoy-duplicate-domain":       "two documents",
	"envoy-mixed-compat":           "two documents",
	"headers-disagree":             "two documents",
	"envoy-replaces-itself":        "two values that are the same",
	"envoy-compat-overlooked":      "what Envoy's service overlooks is taken with a warning; an editor may well call it wrong",
	"delay-after-more-than-burst":  "arithmetic",
	"refill-more-than-burst":       "arithmetic",
	"refill-more-than-given-burst": "arithmetic",
	"refill-too-exact":             "arithmetic",
	"refill-too-long":              "arithmetic",
	"refill-with-delay":            "two keys far apart",
	"sync-age-too-long":            "arithmetic",
	"sync-over-takes-the-burst":    "arithmetic",
	"sync-with-delay":              "two keys far apart",
	"regions-of-a-slow-bucket":     "arithmetic",
	"latency-spread":               "arithmetic",
	"cost-bounds":                  "arithmetic",
	"cost-default":                 "arithmetic",
	"queue-counts-denied":          "two keys far apart",
	"queue-backoff":                "arithmetic",
	"tiers-without-rate":           "what a tier may inherit",
	"tiers-default-unknown":        "two places of the file",
	"tiers-value-twice":            "two places of the file",
	"repeat-max-less":              "arithmetic",
	"repeat-forget-less":           "arithmetic",
	"repeat-refusals-many":         "arithmetic",
	"repeat-refusals-long":         "arithmetic",
	"repeat-ban-long":              "arithmetic",
	"distinct-of-key":              "two values that are the same",
	"distinct-too-many":            "arithmetic",
	"distinct-not-exact":           "arithmetic",
	"body-variable-unknown":        "what is in a text",
	"body-not-json":                "what is in a text",
}

func compileSchema(t *testing.T, text string) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("schema.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// asJSON returns the documents of a YAML file as JSON has them, and false if
// it is not even YAML.
func asJSON(t *testing.T, src []byte) ([]any, bool) {
	t.Helper()
	var r yamltext.Report
	nodes := yamltext.Read(src, &r)
	if r.Errors > 0 {
		return nil, false
	}
	var docs []any
	for _, n := range nodes {
		if n.Kind == yamltext.Null {
			continue
		}
		text, err := json.Marshal(n.Plain())
		if err != nil {
			t.Fatal(err)
		}
		doc, err := jsonschema.UnmarshalJSON(strings.NewReader(string(text)))
		if err != nil {
			t.Fatal(err)
		}
		docs = append(docs, doc)
	}
	return docs, true
}

// accepts validates all documents of a file.
func accepts(s *jsonschema.Schema, docs []any) error {
	for _, doc := range docs {
		if err := s.Validate(doc); err != nil {
			return err
		}
	}
	return nil
}

// The schema takes what the loader takes, and refuses what it refuses, as far
// as a schema can.
func TestSchemaAgreesWithTheLoader(t *testing.T) {
	s := compileSchema(t, schema.Rules())
	files, err := filepath.Glob("testdata/*/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	files = append(files, "../app/quickstart.yaml", "../../examples/quickstart/rules.yaml", "../../examples/rule-tests/rules.yaml", "../../examples/figma/rules.yaml", "../../examples/steps/rules.yaml", "../../examples/blocks/rules.yaml", "../../examples/regions/rules/api.yaml", "../../examples/time-zones/rules.yaml", "../../examples/claims/rules.yaml")
	sources := map[string][]byte{}
	for _, file := range files {
		if sources[file], err = os.ReadFile(file); err != nil {
			t.Fatal(err)
		}
	}
	eachBad(t, func(_ string, a *txtar.Archive) {
		for i := 0; i < len(a.Files); i += 2 {
			sources[a.Files[i].Name] = a.Files[i].Data
		}
	})
	if len(sources) < 350 {
		t.Fatalf("%d files", len(sources))
	}
	unused := maps.Clone(beyondSchema)
	for file, src := range sources {
		docs, isYAML := asJSON(t, src)
		if !isYAML {
			continue // an editor says so before it looks at the schema
		}
		set, problems := rulefile.Parse(rulefile.Source{Name: file, Data: src})
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		refused := accepts(s, docs)
		_, known := beyondSchema[name]
		delete(unused, name)
		switch {
		case (refused == nil) == (set != nil) && known:
			t.Errorf("%s: an exception that is none", name)
		case (refused == nil) == (set != nil), known:
		case refused == nil:
			t.Errorf("%s: the schema takes it, and the loader says %v", name, diagnostic.Problems(problems))
		default:
			t.Errorf("%s: the loader takes it, and the schema says %v", name, refused)
		}
	}
	for name := range unused {
		t.Errorf("%s: an exception for no file", name)
	}
}

// The schema of tests has exactly the keys of their loader; that of rules is made of the
// tables that the loader reads by.
func TestSchemaKnowsAllKeys(t *testing.T) {
	type object struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	var root struct {
		object
		Defs map[string]json.RawMessage `json:"$defs"`
	}
	keys := func(o object) []string { return slices.Sorted(maps.Keys(o.Properties)) }
	compare := func(what string, want []string, got object) {
		t.Helper()
		if diff := cmp.Diff(slices.Sorted(slices.Values(want)), keys(got)); diff != "" {
			t.Errorf("%s: -loader +schema:\n%s", what, diff)
		}
	}
	def := func(name string) object {
		t.Helper()
		var o object
		if err := json.Unmarshal(root.Defs[name], &o); err != nil {
			t.Fatal(err)
		}
		return o
	}
	if err := json.Unmarshal([]byte(schema.RuleTests()), &root); err != nil {
		t.Fatal(err)
	}
	compare("tests", ruletest.FileKeys(), root.object)
	compare("test", ruletest.TestKeys(), def("test"))
	compare("step", ruletest.StepKeys(), def("step"))
}

// Every key has a description, for editors to show.
func TestSchemaDescribesAllKeys(t *testing.T) {
	for _, text := range []string{schema.Rules(), schema.RuleTests()} {
		var root struct {
			Properties map[string]map[string]any
			Defs       map[string]struct {
				Properties map[string]map[string]any
			} `json:"$defs"`
		}
		if err := json.Unmarshal([]byte(text), &root); err != nil {
			t.Fatal(err)
		}
		for name, def := range root.Defs {
			for key, p := range def.Properties {
				target, _ := p["$ref"].(string)
				if p["description"] == nil && !strings.Contains(text, `"`+strings.TrimPrefix(target, "#/$defs/")+`": {`+"\n      \"description\"") {
					t.Errorf("%s.%s has no description", name, key)
				}
			}
		}
	}
}

// docs/ has the current schema, for editors to fetch.
func TestPublishedSchemaIsCurrent(t *testing.T) {
	golden(t, "../../docs/rules.schema.json", schema.Rules())
}

// The schema of tests takes the tests that there are.
func TestSchemaTakesTheExampleTests(t *testing.T) {
	s := compileSchema(t, schema.RuleTests())
	files, err := filepath.Glob("../../examples/*/*_test.yaml")
	if err != nil || len(files) < 2 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, file := range files {
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		docs, _ := asJSON(t, src)
		if err := accepts(s, docs); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
	for _, src := range []string{
		"tests: []", "test: []", "tests: [{name: a}]", "tests: [{name: a, trace: [{request: {}}]}]",
		"tests: [{name: a, trace: [{request: {}, expect: allowwed}]}]", "tests: [{name: a, trace: [{request: {}, expect: {remaning: 1}}]}]",
		"tests: [{name: a, trace: [{request: {}, descriptor: {a: b}, expect: any}]}]", "tests: [{name: a, trace: [{request: {path: []}, expect: any}]}]",
		"tests: [{name: a, trace: [{request: {}, answer: 401, expect: any}]}]", "tests: [{name: a, trace: [{request: {}, answer: {grpc: 16}, expect: any}]}]",
	} {
		docs, _ := asJSON(t, []byte(src))
		if accepts(s, docs) == nil {
			t.Errorf("%s: it is taken", src)
		}
	}
}
