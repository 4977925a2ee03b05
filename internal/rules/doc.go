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
// It knows neither YAML nor files: package rulefile reads these, and what it has read
// becomes an immutable [Ruleset] by a [Builder]. The forms of the files are described
// in docs/rules.md and, for the descriptors of envoyproxy/ratelimit,
// docs/envoy-rules.md.
package rules
