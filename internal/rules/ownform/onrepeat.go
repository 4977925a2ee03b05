package ownform

import (
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/base/clip"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/rate"
	"github.com/headgate/headgate/internal/rules/yamltext"
)

// OnRepeatKeys are the keys of on_repeat.
func OnRepeatKeys() []string { return []string{"refusals", "ban", "factor", "max", "forget", "mode"} }

// The defaults of on_repeat.
const (
	defaultBanFactor = 4
	defaultMaxBan    = 24 * time.Hour
)

// parseOnRepeat reads on_repeat. The limit, the key and on_limit of r must be known. form
// is nil without tiers.
func (p *Parser) parseOnRepeat(f yamltext.Fields, r *rules.Rule, form *tierForm) {
	n := f.Get("on_repeat")
	if n == nil {
		return
	}
	at, key := f["on_repeat"].Key, f.Get("key")
	switch {
	case key == nil || key.Kind == yamltext.List && len(key.Items) == 0:
		p.Errorf(at, "add a key, such as key: client_ip", "\"on_repeat\" needs a key: without one, it would ban everybody")
		return
	case r.OnLimit.Action == rules.Queue:
		p.Errorf(at, "remove one of them", "\"on_repeat\" does not work with action: queue: requests over the limit are kept, not refused")
		return
	case r.Limit.IsUnlimited() && form != nil:
		return // other tiers have a limit
	case r.Limit.IsUnlimited():
		p.Errorf(at, "remove it", "\"on_repeat\" has no effect without a limit")
		return
	}
	before := p.Errors
	inner := p.Fields(n, "on_repeat", OnRepeatKeys())
	if p.Errors > before {
		return
	}
	o := rules.OnRepeat{Factor: defaultBanFactor, Mode: rules.Shadow}
	refusals := p.parseRefusals(n, inner)
	p.parseBans(n, inner, &o)
	if p.ChoiceOf(inner, "mode", "enforce", "shadow") == "enforce" {
		o.Mode = rules.Enforce
	}
	if p.Errors > before {
		return
	}
	r.OnRepeat = rules.NewOnRepeat(refusals.N, refusals.Period, o)
	p.warnOfOnRepeat(inner, r)
}

// parseRefusals reads how many refusals lead to a ban.
func (p *Parser) parseRefusals(at *yamltext.Node, f yamltext.Fields) (out rate.Rate) {
	const example = "for example refusals: 100/10m"
	n := f.Get("refusals")
	if n == nil {
		if !yamltext.HasKey(at, "refusals") {
			p.Errorf(at, example, "on_repeat has no \"refusals\"")
		}
		return out
	}
	if n.Kind != yamltext.Text && n.Kind != yamltext.Number {
		p.Errorf(n, "", "\"refusals\" must be N/time, such as 100/10m, not %s", n.Kind)
		return out
	}
	out, err := rate.Parse(n.Text)
	switch {
	case err != nil:
		p.Errorf(n, example, "\"refusals\": %v", err)
	case out.Unlimited || out.N < 1 || out.N > rules.MaxRefusals:
		p.Errorf(n, example, "\"refusals\" must be from 1 to %d, not %s", rules.MaxRefusals, clip.Quote(n.Text))
	case out.Period > rules.MaxRefusalsIn:
		p.Errorf(n, example, "\"refusals\" must be within %s at most, not %s", rate.Short(rules.MaxRefusalsIn), rate.Short(out.Period))
	}
	return out
}

// parseBans reads how long bans last.
func (p *Parser) parseBans(at *yamltext.Node, f yamltext.Fields, o *rules.OnRepeat) {
	if !p.durationOf(f, "ban", rules.MinBan, rules.MaxBan, &o.Ban) && !yamltext.HasKey(at, "ban") {
		p.Errorf(at, "for example ban: 1m", "on_repeat has no \"ban\", how long the first ban lasts")
	}
	p.IntegerOf(f, "factor", 1, rules.MaxBanFactor, &o.Factor)
	if o.Factor == 1 {
		o.Max = o.Ban
	} else {
		o.Max = max(defaultMaxBan, o.Ban)
	}
	if p.durationOf(f, "max", rules.MinBan, rules.MaxBan, &o.Max) && o.Max < o.Ban {
		p.Errorf(f.Get("max"), "", "\"max\" is %s, less than the first ban of %s", rate.Short(o.Max), rate.Short(o.Ban))
	}
	o.Forget = 2 * o.Max
	if p.durationOf(f, "forget", rules.MinBan, rules.MaxForget, &o.Forget) && o.Forget < o.Max {
		p.Errorf(f.Get("forget"), "", "\"forget\" is %s, less than the longest ban of %s: a ban would be forgotten before it ends",
			rate.Short(o.Forget), rate.Short(o.Max))
	}
}

// warnOfOnRepeat warns about what has no effect.
func (p *Parser) warnOfOnRepeat(f yamltext.Fields, r *rules.Rule) {
	o := r.OnRepeat
	if n := f.Get("max"); n != nil && o.Factor == 1 && o.Max > o.Ban {
		p.Warnf(n, "", "\"max\" has no effect with a factor of 1: every ban lasts %s", rate.Short(o.Ban))
	}
	if o.Mode == rules.Enforce && r.Mode == rules.Shadow {
		p.Warnf(f.Get("mode"), "set mode: enforce for the rule, too", "nobody is banned: the rule itself only observes")
	}
	if out := usedUpFor(r); r.Limit.Valid() && o.Ban < out {
		p.Warnf(f.Get("ban"), "", "a first ban of %s has little effect: a key that has used up its limit is refused for up to %s anyway",
			rate.Short(o.Ban), rate.Short(out))
	}
}

// usedUpFor returns how long the limit of r refuses a request after it is used up, or 0 if
// that is not known, or not every request is refused.
func usedUpFor(r *rules.Rule) time.Duration {
	l := r.Limit
	switch l.Algorithm() {
	case headgate.FixedWindow, headgate.SlidingWindow, headgate.SlidingLog, headgate.SlidingBuckets:
		return l.Period()
	case headgate.TokenBucket, headgate.LeakyBucket:
		if l.N() > 0 {
			return l.Period() / time.Duration(l.N())
		}
	case headgate.Concurrency:
	case headgate.Distinct: // known values pass, but not those of a key that is banned
	}
	return 0
}
