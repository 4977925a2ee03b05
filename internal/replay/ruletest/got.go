package ruletest

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/rules"
)

// Got is the verdict on one request.
type Got struct {
	Allowed bool
	// Rule is the one that refuses or constrains most; nil if none applies.
	Rule     *rules.Rule
	Decision headgate.Decision
	Delay    time.Duration
	Status   int
	Reason   string
	// Shadow are the rules that only observe and would have refused.
	Shadow []*rules.Rule
}

func gotOf(v *engine.Verdict) Got {
	g := Got{Allowed: v.Allowed, Rule: v.Rule, Decision: v.Decision, Delay: v.Delay, Reason: v.Decision.Reason.String()}
	if !v.Known {
		g.Reason = "unknown_domain"
	}
	for _, r := range v.Results() {
		if r.Decision.Reason == headgate.Shadow {
			g.Shadow = append(g.Shadow, r.Rule)
		}
	}
	g.setStatus()
	return g
}

// gotOfAll makes one verdict of those on the parts of a request.
func gotOfAll(v *engine.MultiVerdict) Got {
	g := Got{Allowed: v.Allowed, Reason: "unknown_domain"}
	parts := v.Parts()
	for i := range parts {
		p := gotOf(&parts[i])
		g.Shadow = append(g.Shadow, p.Shadow...)
		g.Delay = max(g.Delay, p.Delay)
		switch {
		case v.Allowed && !p.Allowed:
			// A quota without anything left, and another that has some.
		case i == 0 || g.Rule == nil || p.Rule != nil && p.Decision.Tighter(g.Decision):
			g.Rule, g.Decision, g.Reason = p.Rule, p.Decision, p.Reason
		}
	}
	g.setStatus()
	return g
}

// setStatus is what an HTTP door would answer.
func (g *Got) setStatus() {
	g.Status = http.StatusOK
	if !g.Allowed {
		g.Status = http.StatusTooManyRequests
		if g.Rule != nil {
			g.Status = g.Rule.OnLimit.Status
		}
	}
}

// String says it in a line.
func (g *Got) String() string {
	var b strings.Builder
	b.WriteString(verdict(g.Allowed))
	switch d := &g.Decision; {
	case g.Rule == nil:
		b.WriteString(", " + g.Reason)
	case !g.Allowed:
		fmt.Fprintf(&b, " by %s, %d of %d left", g.Rule.Name, d.Remaining, d.Limit)
	case d.Reason == headgate.NoLimit:
		b.WriteString(", unlimited under " + g.Rule.Name)
	default:
		fmt.Fprintf(&b, ", %d of %d left under %s", d.Remaining, d.Limit, g.Rule.Name)
	}
	switch {
	case g.Allowed:
	case g.Decision.RetryAfter == headgate.Never:
		b.WriteString(", can never pass")
	default:
		b.WriteString(", retry after " + duration(g.Decision.RetryAfter))
	}
	if g.Delay > 0 {
		b.WriteString(", delayed by " + duration(g.Delay))
	}
	if len(g.Shadow) > 0 {
		b.WriteString(", would be refused by " + strings.Join(ruleNames(g.Shadow), ", "))
	}
	return b.String()
}

func verdict(allowed bool) string { return map[bool]string{true: "allowed", false: "refused"}[allowed] }

func duration(d time.Duration) string {
	if d == headgate.Never {
		return "never"
	}
	return d.String()
}

func ruleNames(list []*rules.Rule) []string {
	var out []string
	for _, r := range list {
		out = append(out, r.Name)
	}
	slices.Sort(out)
	return out
}

// compare returns what is not as expected.
func (g *Got) compare(want *Expectation) []Field {
	var c comparison
	if want.Allowed != nil && *want.Allowed != g.Allowed {
		c.add("expect", verdict(*want.Allowed), verdict(g.Allowed))
	}
	if want.Rule != nil && !isCalled(g.Rule, *want.Rule) {
		name := "none"
		if g.Rule != nil {
			name = g.Rule.Name
		}
		c.add("rule", orNone(*want.Rule), name)
	}
	c.number("limit", want.Limit, g.Decision.Limit)
	c.number("remaining", want.Remaining, g.Decision.Remaining)
	c.number("status", want.Status, int64(g.Status))
	c.duration("retry_after", want.RetryAfter, g.Decision.RetryAfter)
	c.duration("reset_after", want.ResetAfter, g.Decision.ResetAfter)
	c.duration("delay", want.Delay, g.Delay)
	if want.Reason != nil {
		c.add("reason", *want.Reason, g.Reason)
	}
	if want.Shadow != nil && !g.shadowIs(want.Shadow) {
		c.add("shadow", orNone(strings.Join(want.Shadow, ", ")), orNone(strings.Join(ruleNames(g.Shadow), ", ")))
	}
	return c
}

// isCalled reports whether r has that name; nil has the empty one.
func isCalled(r *rules.Rule, name string) bool {
	if r == nil {
		return name == ""
	}
	return r.Name == name || r.LimitName == name && name != ""
}

// shadowIs reports whether the rules that would have refused are those.
func (g *Got) shadowIs(want []string) bool {
	if len(want) != len(g.Shadow) {
		return false
	}
	for _, name := range want {
		if !slices.ContainsFunc(g.Shadow, func(r *rules.Rule) bool { return isCalled(r, name) }) {
			return false
		}
	}
	return true
}

func orNone(text string) string {
	if text == "" {
		return "none"
	}
	return text
}

// comparison collects the fields that differ.
type comparison []Field

func (c *comparison) add(name, want, got string) {
	if want != got {
		*c = append(*c, Field{name, want, got})
	}
}

func (c *comparison) number(name string, want *int64, got int64) {
	if want != nil {
		c.add(name, strconv.FormatInt(*want, 10), strconv.FormatInt(got, 10))
	}
}

func (c *comparison) duration(name string, want *time.Duration, got time.Duration) {
	if want != nil {
		c.add(name, duration(*want), duration(got))
	}
}
