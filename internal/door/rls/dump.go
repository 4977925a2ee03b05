package rls

import (
	"fmt"
	"net/http"

	"github.com/headgate/headgate/internal/rules"
)

// Dump returns the handler of GET /rlconfig: the rules in force, one a line, as
// domain, name, limit and what is special about them, for people.
func Dump(current func() *rules.Ruleset) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		var b []byte
		for _, r := range current().Rules() {
			b = appendRule(b, r)
		}
		_, _ = w.Write(b) // a caller that went away has no use for the error
	})
}

// appendRule appends the line of a rule.
func appendRule(b []byte, r *rules.Rule) []byte {
	b = fmt.Appendf(b, "%s.%s: %s", r.Domain, r.Name, r.Limit)
	if r.LimitName != "" && r.LimitName != r.Name {
		b = fmt.Appendf(b, ", name: %s", r.LimitName)
	}
	for _, name := range r.Replaces {
		b = fmt.Appendf(b, ", replaces: %s", name)
	}
	if r.Mode == rules.Shadow {
		b = append(b, ", shadow_mode: true"...)
	}
	if r.QuotaMode {
		b = append(b, ", quota_mode: true"...)
	}
	return fmt.Appendf(b, " (%s)\n", r.Position())
}
