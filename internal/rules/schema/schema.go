// Package schema has the JSON Schemas (draft 2020-12) of rule files and rule tests, for
// completion and checks in editors. They are written by hand; tests compare them with
// the loader.
package schema

import _ "embed"

//go:embed rules.schema.json
var rulesSchema string

//go:embed rule-tests.schema.json
var ruleTestsSchema string

// Rules returns the schema of one document of a rule file.
func Rules() string { return rulesSchema }

// RuleTests returns the schema of a file of rule tests.
func RuleTests() string { return ruleTestsSchema }
