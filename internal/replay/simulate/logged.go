package simulate

import (
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/features"
)

// logged records which of the attributes that rules need occur in a log. Several
// goroutines use it concurrently.
type logged struct {
	attributes []rules.Attribute
	seen       []atomic.Bool
}

func newLogged(sides []Side) *logged {
	l := &logged{}
	for _, s := range sides {
		for _, r := range s.Rules.Rules() {
			if r.Domain != s.Domain {
				continue
			}
			list := r.Needs()
			for _, a := range r.Key {
				list = append(list, a.Attribute)
			}
			for _, a := range list {
				if !slices.Contains(l.attributes, a) {
					l.attributes = append(l.attributes, a)
				}
			}
		}
	}
	l.seen = make([]atomic.Bool, len(l.attributes))
	return l
}

// note records the attributes that an entry has.
func (l *logged) note(e *entry) {
	for i, a := range l.attributes {
		if l.seen[i].Load() {
			continue
		}
		if _, ok := e.Attribute(a); ok {
			l.seen[i].Store(true)
		}
	}
}

// has reports whether any entry has an attribute.
func (l *logged) has(a rules.Attribute) bool {
	i := slices.Index(l.attributes, a)
	return i >= 0 && l.seen[i].Load()
}

// Lacking is an attribute that a rule needs and that is missing from the log, or
// from most of the rule's requests.
type Lacking struct {
	Attribute string `json:"attribute"`
	Never     bool   `json:"never"` // no line of the log has it
	// Needed is set if the rule applies only to requests that have the attribute.
	// Otherwise the rule counts by it, and Requests is how many requests shared one
	// count because they lack it.
	Needed   bool  `json:"needed"`
	Requests int64 `json:"requests"`
	// Measured is set if no log can have it: servers measure it.
	Measured bool `json:"measured,omitempty"`
}

// lackingShare is the share of a rule's requests without a part of the key from
// which on there is a warning.
const lackingShare = 0.9

// lacks returns the attributes that the rule needs and the log does not have.
func (rt *ruleTally) lacks(l *logged) []Lacking {
	var out []Lacking
	for _, a := range rt.rule.Needs() {
		if !l.has(a) {
			out = append(out, Lacking{Attribute: a.String(), Never: true, Needed: true})
		}
	}
	if what := features.Lacks(rt.rule); what != "" {
		out = append(out, Lacking{Attribute: what, Never: true, Needed: true, Measured: true})
	}
	if len(out) > 0 {
		return out // it applied to nothing
	}
	for i, a := range rt.rule.Key {
		n, never := rt.lacking[i], !l.has(a.Attribute)
		if n > 0 && (never || float64(n) >= lackingShare*float64(rt.Requests)) {
			out = append(out, Lacking{Attribute: a.Attribute.String(), Never: never, Requests: n})
		}
	}
	return out
}

// LogsMore reports whether a log could have more of what rules need.
func (r *Report) LogsMore() bool {
	return slices.ContainsFunc(r.Rules, func(r RuleReport) bool {
		return slices.ContainsFunc(r.Lacking, func(l Lacking) bool { return !l.Measured })
	})
}

// LackingText returns a sentence for each rule and attribute that the log does
// not have.
func (r *Report) LackingText() []string {
	var out []string
	for i := range r.Rules {
		r := &r.Rules[i]
		for _, l := range r.Lacking {
			switch {
			case l.Measured:
				out = append(out, fmt.Sprintf("rule %s needs %s, which only servers measure: it applied to no request", r.Name, l.Attribute))
			case l.Needed:
				out = append(out, fmt.Sprintf("rule %s needs %s, which is not in the log: it applied to no request", r.Name, l.Attribute))
			case l.Never:
				out = append(out, fmt.Sprintf("rule %s counts by %s, which is not in the log: %s shared one count", r.Name, l.Attribute, Plural(l.Requests, "request")))
			default:
				out = append(out, fmt.Sprintf("rule %s counts by %s, which is missing from %s (%s of its requests): they shared one count",
					r.Name, l.Attribute, Plural(l.Requests, "request"), percent(l.Requests, r.Requests)))
			}
		}
	}
	return out
}
