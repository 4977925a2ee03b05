package ownform

import (
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/base/clip"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/form"
	"github.com/headgate/headgate/internal/rules/rate"
	"github.com/headgate/headgate/internal/rules/yamltext"
)

// The defaults of on_repeat.
const (
	defaultBanFactor = 4
	defaultMaxBan    = 24 * time.Hour
)

// onRepeatKeys are the keys of on_repeat.
func (p *Parser) onRepeatKeys(o *rules.OnRepeat, refusals *rate.Rate) form.Mapping {
	return form.Mapping{Def: "onRepeat", Doc: "Bans a key that the rule refuses again and again, for longer each time. See docs/more/offenders.md.", Rows: []form.Row{
		{
			Key: "refusals", Doc: "How many refusals lead to a ban, and within which time. Up to 10000 within 24h.", Example: "for example refusals: 100/10m",
			Type: form.Type{Schema: `"type":"string","pattern":"^\\s*[0-9][0-9_]*\\s*/","not":{"pattern":"^[\\s0_]*/"}`}.
				By("`100/10m`", func(n *yamltext.Node) { *refusals = p.parseRefusals(n) }),
		},
		{
			Key: "ban", Doc: "How long the first ban lasts.", Missing: ", how long the first ban lasts", Example: "for example ban: 1m",
			Type: form.Duration(rules.MinBan, rules.MaxBan, &o.Ban, ""),
		},
		{Key: "factor", Doc: "How much longer each further ban lasts.", Type: form.Integer(1, rules.MaxBanFactor, &o.Factor)},
		{Key: "max", Doc: "How long a ban lasts at most.", Type: form.Duration(rules.MinBan, rules.MaxBan, &o.Max, "").Or("24h, or the first ban if that is longer")},
		{
			Key: "forget", Doc: "This long after the start of its last ban, a key is treated like a new one. At least max.",
			Type: form.Duration(rules.MinBan, rules.MaxForget, &o.Forget, "").Or("twice max"),
		},
		{Key: "mode", Doc: "shadow: count and report who would be banned, but ban nobody.", Type: form.Choice(&o.Mode, rules.Enforce, rules.Shadow)},
	}}
}

// parseOnRepeat reads on_repeat. The limit, the key and on_limit of r must be known. tiers
// is nil without tiers.
func (p *Parser) parseOnRepeat(f yamltext.Fields, r *rules.Rule, tiers *tierForm) {
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
	case r.Limit.IsUnlimited() && tiers != nil:
		return // other tiers have a limit
	case r.Limit.IsUnlimited():
		p.Errorf(at, "remove it", "\"on_repeat\" has no effect without a limit")
		return
	}
	before := p.Errors
	o, refusals := rules.OnRepeat{Factor: defaultBanFactor, Mode: rules.Shadow}, rate.Rate{}
	inner := form.Read(p.Report, n, "on_repeat", p.onRepeatKeys(&o, &refusals).Rows)
	if p.Errors == before {
		p.boundBans(inner, &o)
	}
	if p.Errors > before {
		return
	}
	r.OnRepeat = rules.NewOnRepeat(refusals.N, refusals.Period, o)
	p.warnOfOnRepeat(inner, r)
}

// parseRefusals reads how many refusals lead to a ban.
func (p *Parser) parseRefusals(n *yamltext.Node) (out rate.Rate) {
	const example = "for example refusals: 100/10m"
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

// boundBans completes how long bans last, and how long they are remembered.
func (p *Parser) boundBans(f yamltext.Fields, o *rules.OnRepeat) {
	switch {
	case o.Max == 0 && o.Factor == 1:
		o.Max = o.Ban
	case o.Max == 0:
		o.Max = max(defaultMaxBan, o.Ban)
	case o.Max < o.Ban:
		p.Errorf(f.Get("max"), "", "\"max\" is %s, less than the first ban of %s", rate.Short(o.Max), rate.Short(o.Ban))
	}
	if o.Forget == 0 {
		o.Forget = 2 * o.Max
	} else if o.Forget < o.Max {
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
