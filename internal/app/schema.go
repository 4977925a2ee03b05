package app

import "github.com/headgate/headgate/internal/rules/schema"

// RulesSchema returns the JSON Schema of rule files.
func RulesSchema() string { return schema.Rules() }

// RuleTestsSchema returns the JSON Schema of rule tests.
func RuleTestsSchema() string { return schema.RuleTests() }
