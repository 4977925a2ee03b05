package ruletest

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/store"
)

// Got is the verdict on one request.
type Got struct {
	Allowed bool
	// Rule is the rule that refuses or is closest to its limit; nil if none
	// applies.
	Rule     *rules.Rule
	Decision store.Decision
	Delay    time.Duration
	Status   int
	Reason   string
	Shadow   []*rules.Rule // rules in shadow mode that would have refused
	Soft     []string      // names of the limits that mark the request
}

func gotOf(v *engine.Verdict) Got {
	g := Got{Allowed: v.Allowed, Rule: v.Rule, Decision: v.Decision, Delay: v.Delay, Reason: v.Decision.Reason.String(), Soft: marksOf(v)}
	if !v.Known {
		g.Reason = "unknown_domain"
	}
	for _, r := range v.Results() {
		if r.Decision.Reason == store.ReasonShadow {
			g.Shadow = append(g.Shadow, r.Rule)
		}
	}
	g.setStatus()
	return g
}

func marksOf(v *engine.Verdict) []string { return slices.Sorted(slices.Values(v.Marks(nil))) }

// gotOfAll combines the verdicts on the parts of a request.
func gotOfAll(v *engine.Verdict) Got {
	g := Got{Allowed: v.Allowed, Reason: "unknown_domain", Soft: marksOf(v)}
	parts := v.Parts()
	for i := range parts {
		p := gotOf(&parts[i])
		g.Shadow = append(g.Shadow, p.Shadow...)
		g.Delay = max(g.Delay, p.Delay)
		switch {
		case v.Allowed && !p.Allowed:
			// One quota is used up, another is not.
		case i == 0 || g.Rule == nil || p.Rule != nil && p.Decision.Tighter(g.Decision):
			g.Rule, g.Decision, g.Reason = p.Rule, p.Decision, p.Reason
		}
	}
	g.setStatus()
	return g
}

// setStatus sets the status that the HTTP API and the proxy return.
func (g *Got) setStatus() {
	g.Status = http.StatusOK
	if !g.Allowed {
		g.Status = http.StatusTooManyRequests
		if g.Rule != nil {
			g.Status = g.Rule.OnLimit.Status
			if g.Status == http.StatusTooManyRequests && g.Decision.Reason == store.ReasonHeadroom && !g.Rule.OnLimit.Stated {
				g.Status = http.StatusServiceUnavailable
			}
		}
	}
}

// String returns one line.
func (g *Got) String() string {
	var b strings.Builder
	b.WriteString(verdict(g.Allowed))
	switch d := &g.Decision; {
	case g.Rule == nil:
		b.WriteString(", " + g.Reason)
	case !g.Allowed:
		fmt.Fprintf(&b, " by %s, %d of %d remaining", g.Rule.Name, d.Remaining, d.Limit)
	case d.Reason == headgate.ReasonNoLimit:
		b.WriteString(", unlimited under " + g.Rule.Name)
	default:
		fmt.Fprintf(&b, ", %d of %d remaining under %s", d.Remaining, d.Limit, g.Rule.Name)
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
	if len(g.Soft) > 0 {
		b.WriteString(", marked by " + strings.Join(g.Soft, ", "))
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

// compare returns the unexpected parts.
func (g *Got) compare(want *Expectation) (out []Field) {
	for _, part := range [...]string{
		"expect", "rule", "limit", "remaining", "status", "retry_after", "reset_after", "delay", "reason", "shadow", "soft",
	} {
		text, told := want.parts[part]
		if !told || part == "rule" && isCalled(g.Rule, *want.Rule) || part == "shadow" && g.shadowIs(want.Shadow) {
			continue
		}
		if got := g.part(part); got != text {
			out = append(out, Field{part, text, got})
		}
	}
	return out
}

// part formats a part of the verdict.
func (g *Got) part(name string) string {
	d := &g.Decision
	switch name {
	case "expect":
		return verdict(g.Allowed)
	case "rule":
		if g.Rule == nil {
			return none
		}
		return g.Rule.Name
	case "limit":
		return strconv.FormatInt(d.Limit, 10)
	case "remaining":
		return strconv.FormatInt(d.Remaining, 10)
	case "status":
		return strconv.Itoa(g.Status)
	case "retry_after":
		return duration(d.RetryAfter)
	case "reset_after":
		return duration(d.ResetAfter)
	case "delay":
		return duration(g.Delay)
	case "reason":
		return g.Reason
	case "soft":
		return cmp.Or(strings.Join(g.Soft, ", "), none)
	}
	return cmp.Or(strings.Join(ruleNames(g.Shadow), ", "), none)
}

// none stands for no rule.
const none = "none"

// isCalled reports whether r has that name; nil has the empty name.
func isCalled(r *rules.Rule, name string) bool {
	if r == nil {
		return name == ""
	}
	return r.Name == name || r.LimitName == name && name != ""
}

// shadowIs reports whether g.Shadow are the rules named in want.
func (g *Got) shadowIs(want []string) bool {
	return len(want) == len(g.Shadow) && !slices.ContainsFunc(want, func(name string) bool {
		return !slices.ContainsFunc(g.Shadow, func(r *rules.Rule) bool { return isCalled(r, name) })
	})
}
