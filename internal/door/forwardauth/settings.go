package forwardauth

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/store"
)

// settings are the settings in the query of the forward-auth URL, which the proxy sets.
type settings struct {
	domain string // empty for the only one
	deny   int    // the status of every refusal; 0 for the rule's own
	cost   int64
}

// parse reads a raw query. An unknown parameter is an error, since an operator may rely
// on it.
func (s *settings) parse(raw string) error {
	*s = settings{cost: 1}
	if raw == "" {
		return nil
	}
	query, err := url.ParseQuery(raw)
	if err != nil {
		return errors.New("the query of the forward-auth URL cannot be parsed")
	}
	for name, values := range query {
		if len(values) > 1 {
			return fmt.Errorf("%q is in the forward-auth URL more than once", name)
		}
		value := values[0]
		switch name {
		case "domain":
			if s.domain = value; value == "" {
				return errors.New("domain= is empty")
			}
		case "deny":
			if value != "403" {
				return fmt.Errorf("deny=%q is not supported: only 403 is", value)
			}
			s.deny = http.StatusForbidden
		case "cost":
			if s.cost, err = strconv.ParseInt(value, 10, 64); err != nil || s.cost < 0 || s.cost > store.MaxLimit {
				return fmt.Errorf("cost=%q is not a whole number from 0 to %d", value, int64(store.MaxLimit))
			}
		default:
			return fmt.Errorf("unknown setting %q in the forward-auth URL; known are domain, deny and cost", name)
		}
	}
	return nil
}

// domains caches the names of the domains of a ruleset.
type domains struct {
	of    *rules.Ruleset
	names []string
}

// errNoRules is the error of a process without rules.
var errNoRules = errors.New("no rules are loaded")

// onlyDomain returns the only domain.
func (h *Handler) onlyDomain() (string, error) {
	now, d := h.options.Engine.Rules(), h.domains.Load()
	if d == nil || d.of != now {
		d = &domains{of: now, names: now.Domains()}
		h.domains.Store(d)
	}
	switch len(d.names) {
	case 0:
		return "", errNoRules
	case 1:
		return d.names[0], nil
	}
	const most = 8
	return "", fmt.Errorf("there are %d domains, such as %q: choose one in the URL, as in /v1/auth?domain=NAME",
		len(d.names), d.names[:min(len(d.names), most)])
}
