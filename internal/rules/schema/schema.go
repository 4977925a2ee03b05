// Package schema has the JSON Schemas (draft 2020-12) of rule files and rule tests, for
// completion and checks in editors. That of rule files is made of the tables of their
// keys and of types.json, which has the types of values and what keys refuse of each other.
package schema

import (
	_ "embed"

	"github.com/headgate/headgate/docs"
	"github.com/headgate/headgate/internal/rules/envoyform"
	"github.com/headgate/headgate/internal/rules/form"
	"github.com/headgate/headgate/internal/rules/ownform"
	"github.com/headgate/headgate/internal/rules/rulefile"
)

//go:embed types.json
var types string

const head = `"$schema":"https://json-schema.org/draft/2020-12/schema","title":"Headgate rules",` +
	`"description":"A document of a rule file: Headgate's own rules under limits, rules of envoyproxy/ratelimit under descriptors. See docs/rules/rules.md."`

// Rules returns the schema of one document of a rule file.
func Rules() string { return form.Schema(head, rulefile.Document(), types, Mappings()) }

// Mappings returns all mappings of a rule file below a document.
func Mappings() []form.Mapping { return append(ownform.Mappings(), envoyform.Mappings()...) }

// RuleTests returns the schema of a file of rule tests.
func RuleTests() string { return docs.RuleTests }
