// Package rules reads rule files into an immutable Ruleset and finds the rules
// that apply to a request.
//
//	set, err := rules.Load("rules/")
//	if err != nil {
//		// every mistake, each with its file, line and column
//	}
//	var m rules.Matches // kept and used again
//	known := set.Match("api", request, &m)
//	for _, c := range m.Checks {
//		// ask the store about c.Key under c.Rule.Limit
//	}
//
// The forms of the files are described in docs/rules.md and, for the descriptors
// of envoyproxy/ratelimit, docs/envoy-rules.md. Whatever a file holds,
// reading it ends in a Ruleset or in a list of what is wrong with it, within a
// bounded amount of memory.
package rules
