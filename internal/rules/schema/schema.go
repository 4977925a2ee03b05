// Package schema has the JSON Schemas (draft 2020-12) of rule files and of rule
// tests, for editors that complete and check while one types. They are kept by
// hand; tests hold them to what the loader takes.
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
