package doctor

import (
	"fmt"

	"github.com/headgate/headgate/internal/base/plain"
	"github.com/headgate/headgate/internal/door/admin"
)

// Running returns the findings about a running server.
func Running(s *admin.Status) []Finding {
	all := []Finding{{Check: "server", Level: OK, What: fmt.Sprintf("headgate %s, up for %d s", s.Version, s.UptimeS)}}
	if !s.Ready {
		all = append(all, Finding{"server", Fail, "it is not ready", "load balancers send it no requests", "see /readyz?verbose at the admin door"})
	}
	r := &s.Rules
	switch {
	case r.LastError != "":
		all = append(all, Finding{"rules", Fail, "the last reload failed: " + r.LastError, "older rules are active", "correct the file; headgate check shows all mistakes"})
	case r.Rules == 0:
		all = append(all, Finding{"rules", Warn, "there are no rules", "nothing is limited", "set rules in the configuration"})
	default:
		all = append(all, Finding{Check: "rules", Level: OK, What: plain.Count(r.Rules, "rule") + " in " + plain.Count(r.Domains, "domain")})
	}
	st := &s.Store
	switch {
	case !st.Healthy:
		all = append(all, Finding{"store", Fail, fmt.Sprintf("%s does not answer: %s", st.Kind, st.Error), "on_store_error of each rule decides", "check Redis: headgate doctor --config"})
	case st.Kind == "memory" && st.Evicted > 0:
		all = append(all, Finding{"store", Warn, fmt.Sprintf("%d keys were evicted", st.Evicted), "memory for counts is full; clients over their limit are forgotten last", "raise store.memory.max_keys or max_bytes"})
	default:
		all = append(all, Finding{Check: "store", Level: OK, What: st.Kind + " is healthy"})
	}
	return all
}
