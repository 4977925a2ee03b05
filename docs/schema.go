// Package docs has the files of the documentation that the program prints.
package docs

import _ "embed"

// RuleTests is the JSON Schema of a file of rule tests.
//
//go:embed rule-tests.schema.json
var RuleTests string
