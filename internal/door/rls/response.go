package rls

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
	"github.com/headgate/headgate/internal/answer"
	"github.com/headgate/headgate/internal/decide/admission"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/store"
)

// encode writes the RateLimitResponse of v to c.out.
func (c *call) encode(v *engine.Verdict) {
	c.over = !v.Allowed
	code := uint64(codeOK)
	if c.over {
		code = codeOverLimit
	}
	c.out = appendScalar(c.out[:0], 1, code)
	parts := v.Parts()
	for i := range parts {
		s := c.statusOf(&parts[i])
		c.out = s.append(c.out)
	}
	c.collect(v)
	c.encodeHeaders(parts)
	if delay := v.Delay; delay > 0 {
		c.text = strconv.AppendInt(c.text[:0], answer.Milliseconds(delay), 10)
		c.out = appendHeaderTo(c.out, 4, "X-Headgate-Delay-Ms", c.text)
	}
	if v.Marked > 0 {
		c.out = appendHeaderTo(c.out, 4, admission.SoftField, strings.Join(v.Marks(nil), ", "))
	}
	if c.over {
		c.encodeRefusal(v)
	}
	if c.service.options.DynamicMetadata {
		c.encodeMetadata(v)
	}
}

// statusOf returns the status of a descriptor: that of its tightest limit, or of one in
// shadow mode if there is no other. In global shadow mode, the code is that of the
// decision that would have been made.
func (c *call) statusOf(v *engine.Verdict) status {
	shadow := c.service.options.Shadow
	s := status{code: codeOK}
	if !v.Allowed {
		s.code = codeOverLimit
	}
	rule, d := v.Rule, v.Decision
	if rule != nil && rule.OnLimit.Action == rules.ShadowBan {
		rule, d = tightestShown(v.Results())
		if rule == nil {
			return s
		}
	}
	if rule == nil {
		results := v.Results()
		for i := range results {
			r := &results[i]
			if rule == nil && !r.Hidden() && r.Rule.List() == nil {
				rule, d = r.Rule, r.Decision
			}
			if shadow && !r.Hidden() && r.Decision.Reason == store.ReasonShadow && r.Rule.Mode != rules.Shadow {
				rule, d, s.code = r.Rule, r.Decision, codeOverLimit
			}
		}
		if rule == nil {
			return s
		}
	}
	if rule.List() != nil {
		return s // which has no limit
	}
	switch d.Reason {
	case headgate.ReasonNoLimit:
		s.remaining = math.MaxUint32
		return s
	case headgate.ReasonFailOpen:
		return s // what remains is unknown
	case headgate.ReasonOK, headgate.ReasonLimited, headgate.ReasonTooLarge, headgate.ReasonFailClosed,
		headgate.ReasonFallback, headgate.ReasonCached, store.ReasonShadow, store.ReasonBanned, headgate.ReasonExpired, store.ReasonHeadroom, store.ReasonShare:
	}
	s.hasLimit, s.limit = true, describe(rule.Limit)
	s.limit.name = rule.LimitName
	s.reset = answer.Seconds(c.untilReset(rule, d))
	if s.code == codeOK {
		s.remaining = clamp(d.Remaining)
	}
	return s
}

// tightestShown returns the tightest limit that clients may see, or nil. Envoy turns the
// status into header fields, so hidden limits must not appear in it.
func tightestShown(results []engine.Result) (rule *rules.Rule, d store.Decision) {
	for i := range results {
		if r := &results[i]; r.Enforced && !r.Hidden() && (rule == nil || r.Decision.Tighter(d)) {
			rule, d = r.Rule, r.Decision
		}
	}
	return rule, d
}

// untilReset returns the time from which Envoy makes the reset field and, for refusals,
// Retry-After. For a cost that can never fit, it is when the limit is full again. It is
// 0, which is not encoded, for an unused limit.
func (c *call) untilReset(rule *rules.Rule, d store.Decision) time.Duration {
	if after, ok := answer.RetryAfter(d); ok {
		return max(after, time.Second)
	}
	if rule.ChargeDenied && d.ResetAfter == 0 && c.at > 0 {
		return windowLeft(rule.Limit, c.at)
	}
	return d.ResetAfter
}

// windowLeft returns how much of the current fixed window is left at a time, or 0 if
// the windows of l are not aligned to the clock.
func windowLeft(l headgate.Limit, at int64) time.Duration {
	r := l.Rule()
	switch {
	case l.Algorithm() != headgate.FixedWindow:
	case r.Calendar != store.NoCalendar:
		_, end := algorithm.CalendarWindow(r.Calendar, r.Zone, at)
		return time.Duration(end-at) * time.Microsecond
	case r.Anchor == headgate.AnchorClock:
		return time.Duration(r.Period-at%r.Period) * time.Microsecond
	}
	return 0
}

// nameOf returns the name of a limit that the proxy's clients see.
func nameOf(r *rules.Rule) string {
	if r.LimitName != "" {
		return r.LimitName
	}
	return r.Name
}

// collect fills c.policies from the enforced limits. Exhausted quotas are left out of an
// allowed request.
func (c *call) collect(v *engine.Verdict) {
	parts := v.Parts()
	for i := range parts {
		results := parts[i].Results()
		for j := range results {
			r := &results[j]
			if p, ok := admission.Policy(r, c.at); ok && (r.Decision.Allowed || c.over) {
				p.Name = nameOf(r.Rule)
				c.policies = append(c.policies, p)
			}
		}
	}
}

// dialect returns the dialect of the domain, which all parts share, or the process's.
func (c *call) dialect(parts []engine.Verdict) answer.Dialect {
	for i := range parts {
		if own := parts[i].Headers(); own != "" {
			return c.service.options.Dialect.Or(own)
		}
	}
	return c.service.options.Dialect
}

// encodeHeaders writes response_headers_to_add. If the dialect and the fields of
// envoyproxy/ratelimit share a name, the latter give the value.
func (c *call) encodeHeaders(parts []engine.Verdict) {
	legacy := c.service.options.Legacy
	var least status
	if legacy != nil {
		least = c.least(parts)
	}
	c.text = answer.Each(c.text[:0], c.dialect(parts), c.policies, func(name string, value []byte) {
		if !least.hasLimit || !legacy.has(name) {
			c.out = appendHeader(c.out, name, value)
		}
	})
	if least.hasLimit {
		c.encodeLegacy(legacy, least)
	}
}

// has reports whether name is one of h, ignoring case.
func (h *LegacyHeaders) has(name string) bool {
	return strings.EqualFold(name, h.Limit) || strings.EqualFold(name, h.Remaining) || strings.EqualFold(name, h.Reset)
}

// least returns the status for the fields of envoyproxy/ratelimit: that of the
// descriptor with the least remaining. If several refuse, it is the tightest or, with
// compat: envoy, the last that is not a quota, like the original.
func (c *call) least(parts []engine.Verdict) status {
	least := status{remaining: math.MaxUint32}
	for i := range parts {
		s := c.statusOf(&parts[i])
		tighter := s.remaining < least.remaining || s.code > least.code
		if c.compat == rules.CompatEnvoy {
			tighter = s.remaining < least.remaining || s.code == codeOverLimit && !isQuota(&parts[i])
		}
		if s.hasLimit && tighter {
			least = s
		}
	}
	return least
}

// isQuota reports whether all limits of a part are in quota mode.
func isQuota(v *engine.Verdict) bool {
	return !slices.ContainsFunc(v.Results(), func(r engine.Result) bool { return !r.Rule.QuotaMode })
}

// encodeLegacy writes the fields of envoyproxy/ratelimit.
func (c *call) encodeLegacy(names *LegacyHeaders, least status) {
	for _, f := range [...]struct {
		name  string
		value int64
	}{
		{names.Limit, int64(least.limit.requests)},
		{names.Remaining, int64(least.remaining)},
		{names.Reset, least.reset},
	} {
		if f.name != "" {
			c.text = strconv.AppendInt(c.text[:0], f.value, 10)
			c.out = appendHeader(c.out, f.name, c.text)
		}
	}
}

// encodeRefusal writes the answer to a refused client: the rule's header fields and
// body, or a problem+json body.
func (c *call) encodeRefusal(v *engine.Verdict) {
	refusal := answer.Refusal{Policies: c.policies}
	if v.Rule != nil {
		o := &v.Rule.OnLimit
		refusal.Body, refusal.ContentType, refusal.Bodies = o.Body, o.ContentType, o.Bodies
		if v.Outcome() == engine.ShadowBanned && o.Body == "" && len(o.Bodies) == 0 {
			return // a problem+json body would reveal the ban
		}
		if v.Rule.List() != nil {
			refusal.OnDenyList, refusal.Status = true, o.Status
		}
		for name, value := range o.Headers {
			c.out = appendHeader(c.out, name, value)
		}
	}
	body, contentType := refusal.Content()
	c.out = appendHeader(c.out, "Content-Type", contentType)
	c.out = appendText(c.out, 5, body)
}
