package rls

import (
	"bufio"
	"fmt"
	"net/http"

	"github.com/headgate/headgate/rules"
)

// Dump returns the handler of GET /rlconfig: the rules in force, one a line, as
// domain, name, limit and what is special about them, for people.
func Dump(current func() *rules.Ruleset) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		out := bufio.NewWriter(w)
		for _, r := range current().Rules() {
			fmt.Fprintf(out, "%s.%s: %s", r.Domain, r.Name, r.Limit)
			if r.LimitName != "" && r.LimitName != r.Name {
				fmt.Fprintf(out, ", name: %s", r.LimitName)
			}
			for _, name := range r.Replaces {
				fmt.Fprintf(out, ", replaces: %s", name)
			}
			if r.Mode == rules.Shadow {
				fmt.Fprint(out, ", shadow_mode: true")
			}
			if r.QuotaMode {
				fmt.Fprint(out, ", quota_mode: true")
			}
			fmt.Fprintf(out, " (%s)\n", r.Position())
		}
		_ = out.Flush() // a caller that went away has no use for the error
	})
}
