package offenders

import (
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/base/clip"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/feature"
	"github.com/headgate/headgate/internal/rules/form"
	"github.com/headgate/headgate/internal/rules/rate"
	"github.com/headgate/headgate/internal/rules/yamltext"
)

// The defaults of on_repeat.
const (
	defaultBanFactor = 4
	defaultMaxBan    = 24 * time.Hour
)

// row is the key of a rule.
func row() form.Row {
	return form.Row{Key: Name, Doc: "Bans keys that are refused again and again.", See: "more/offenders.md", Type: form.Ref("onRepeat").Is("a mapping")}
}

// standard is an on_repeat without keys.
func standard() OnRepeat { return OnRepeat{Factor: defaultBanFactor, Mode: rules.Shadow} }

// keys are the keys of on_repeat.
func keys(r *feature.Reading, o *OnRepeat, refusals *rate.Rate) form.Mapping {
	return form.Mapping{Def: "onRepeat", Doc: "Bans a key that the rule refuses again and again, for longer each time. See docs/more/offenders.md.", Rows: []form.Row{
		{
			Key: "refusals", Doc: "How many refusals lead to a ban, and within which time. Up to 10000 within 24h.", Example: "for example refusals: 100/10m",
			Type: form.Type{Schema: `"type":"string","pattern":"^\\s*[0-9][0-9_]*\\s*/","not":{"pattern":"^[\\s0_]*/"}`}.
				By("`100/10m`", func(n *yamltext.Node) { *refusals = readRefusals(r, n) }),
		},
		{
			Key: "ban", Doc: "How long the first ban lasts.", Missing: ", how long the first ban lasts", Example: "for example ban: 1m",
			Type: form.Duration(MinBan, MaxBan, &o.Ban, ""),
		},
		{Key: "factor", Doc: "How much longer each further ban lasts.", Type: form.Integer(1, MaxBanFactor, &o.Factor)},
		{Key: "max", Doc: "How long a ban lasts at most.", Type: form.Duration(MinBan, MaxBan, &o.Max, "").Or("24h, or the first ban if that is longer")},
		{
			Key: "forget", Doc: "This long after the start of its last ban, a key is treated like a new one. At least max.",
			Type: form.Duration(MinBan, MaxForget, &o.Forget, "").Or("twice max"),
		},
		{Key: "mode", Doc: "shadow: count and report who would be banned, but ban nobody.", Type: form.Choice(&o.Mode, rules.Enforce, rules.Shadow)},
	}}
}

// read reads on_repeat.
func read(r *feature.Reading) {
	n := r.Fields.Get(Name)
	if n == nil {
		return
	}
	at, key, rule := r.Fields[Name].Key, r.Fields.Get("key"), r.Rule
	switch {
	case key == nil || key.Kind == yamltext.List && len(key.Items) == 0:
		r.Errorf(at, "add a key, such as key: client_ip", "\"on_repeat\" needs a key: without one, it would ban everybody")
		return
	case rule.OnLimit.Action == rules.Queue:
		r.Errorf(at, "remove one of them", "\"on_repeat\" does not work with action: queue: requests over the limit are kept, not refused")
		return
	case rule.OnLimit.Action == rules.Pass:
		r.Errorf(at, "remove one of them", "\"on_repeat\" does not work with action: pass: no request is refused")
		return
	case rule.Limit.Rule().Unlimited && r.Tiered:
		return // other tiers have a limit
	case rule.Limit.Rule().Unlimited:
		r.Errorf(at, "remove it", "\"on_repeat\" has no effect without a limit")
		return
	}
	before := r.Errors
	o, refusals := standard(), rate.Rate{}
	inner := form.Read(r.Report, n, Name, keys(r, &o, &refusals).Rows)
	if r.Errors == before {
		bound(r, inner, &o)
	}
	if r.Errors > before {
		return
	}
	on := newOnRepeat(refusals.N, refusals.Period, o)
	rule.AddTrait(on)
	warn(r, inner, on)
}

// readRefusals reads how many refusals lead to a ban.
func readRefusals(r *feature.Reading, n *yamltext.Node) (out rate.Rate) {
	const example = "for example refusals: 100/10m"
	if n.Kind != yamltext.Text && n.Kind != yamltext.Number {
		r.Errorf(n, "", "\"refusals\" must be N/time, such as 100/10m, not %s", n.Kind)
		return out
	}
	out, err := rate.Parse(n.Text)
	switch {
	case err != nil:
		r.Errorf(n, example, "\"refusals\": %v", err)
	case out.Unlimited || out.N < 1 || out.N > MaxRefusals:
		r.Errorf(n, example, "\"refusals\" must be from 1 to %d, not %s", MaxRefusals, clip.Quote(n.Text))
	case out.Period > MaxRefusalsIn:
		r.Errorf(n, example, "\"refusals\" must be within %s at most, not %s", rate.Short(MaxRefusalsIn), rate.Short(out.Period))
	}
	return out
}

// bound completes how long bans last, and how long they are remembered.
func bound(r *feature.Reading, f yamltext.Fields, o *OnRepeat) {
	switch {
	case o.Max == 0 && o.Factor == 1:
		o.Max = o.Ban
	case o.Max == 0:
		o.Max = max(defaultMaxBan, o.Ban)
	case o.Max < o.Ban:
		r.Errorf(f.Get("max"), "", "\"max\" is %s, less than the first ban of %s", rate.Short(o.Max), rate.Short(o.Ban))
	}
	if o.Forget == 0 {
		o.Forget = 2 * o.Max
	} else if o.Forget < o.Max {
		r.Errorf(f.Get("forget"), "", "\"forget\" is %s, less than the longest ban of %s: a ban would be forgotten before it ends",
			rate.Short(o.Forget), rate.Short(o.Max))
	}
}

// warn warns about what has no effect.
func warn(r *feature.Reading, f yamltext.Fields, o *OnRepeat) {
	if n := f.Get("max"); n != nil && o.Factor == 1 && o.Max > o.Ban {
		r.Warnf(n, "", "\"max\" has no effect with a factor of 1: every ban lasts %s", rate.Short(o.Ban))
	}
	if o.Mode == rules.Enforce && r.Rule.Mode == rules.Shadow {
		r.Warnf(f.Get("mode"), "set mode: enforce for the rule, too", "nobody is banned: the rule itself only observes")
	}
	if out := usedUpFor(r.Rule.Limit); r.Rule.Limit.Rule().Valid() && o.Ban < out {
		r.Warnf(f.Get("ban"), "", "a first ban of %s has little effect: a key that has used up its limit is refused for up to %s anyway",
			rate.Short(o.Ban), rate.Short(out))
	}
}

// usedUpFor returns how long a limit refuses a request after it is used up, or 0 if that is
// not known, or not every request is refused.
func usedUpFor(l headgate.Limit) time.Duration {
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
