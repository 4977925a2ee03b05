// Package rules finds the rules that apply to a request.
//
//	set, err := rulefile.Load("rules/")
//	if err != nil {
//		// every mistake, each with its file, line and column
//	}
//	var m rules.Matches // kept and used again
//	known := set.Match("api", request, &m)
//	for _, c := range m.Checks {
//		// ask the store about c.Key under c.Rule.Limit
//	}
//
// Package rulefile reads rule files and uses a [Builder] to make an immutable
// [Ruleset]; this package does not depend on YAML or files. docs/rules/rules.md describes
// the file format, docs/connect/envoy-rules.md that of envoyproxy/ratelimit.
package rules
