package offenders

import (
	"fmt"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/base/plain"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/rate"
)

// Name is the key of the rule form, and for operators who has banned a key.
const Name = "on_repeat"

// OnRepeat bans a key that a rule refuses again and again, for longer each time. It is
// immutable.
type OnRepeat struct {
	// Refusals is how many refusals lead to a ban: N within Period. Bans counts the bans
	// of a key; its period is the time after which they are forgotten.
	Refusals, Bans headgate.Limit
	Ban            time.Duration // how long the first ban lasts
	Factor         int64         // how much longer each further one lasts, from 1 to MaxBanFactor
	Max            time.Duration // how long a ban lasts at most
	Forget         time.Duration // after this time without a new ban, the next one is the first
	Mode           rules.Mode    // rules.Shadow only reports who would be banned
}

// Bounds of OnRepeat.
const (
	MaxRefusals   = 10_000 // each key's refusals are kept one by one
	MaxRefusalsIn = 24 * time.Hour
	MinBan        = time.Second
	MaxBan        = 90 * 24 * time.Hour
	MaxForget     = 400 * 24 * time.Hour
	MaxBanFactor  = 100
)

// MaxBans is how many bans of a key are told apart: the last one counts for all further
// ones. It is more than any ladder has steps. It is no larger because a full store forgets
// those counts first that have used the least of their limit, and the number of bans has to
// outlast the counts of a flood.
const MaxBans = 32

// Of returns the on_repeat of a rule; nil if it has none.
func Of(r *rules.Rule) *OnRepeat { return rules.TraitOf[*OnRepeat](r) }

// newOnRepeat returns an OnRepeat that bans after n refusals within a time, and sets
// what follows from its fields.
func newOnRepeat(n int64, within time.Duration, o OnRepeat) *OnRepeat {
	o.Refusals = headgate.Per(n, within).WithAlgorithm(headgate.SlidingLog)
	o.Bans = headgate.Per(MaxBans, o.Forget).WithAlgorithm(headgate.SlidingLog)
	return &o
}

// Lasts returns how long the nth ban of a key lasts; the first is 1.
func (o *OnRepeat) Lasts(n int64) time.Duration {
	d := o.Ban
	for i := int64(1); i < n && d < o.Max && o.Factor > 1; i++ {
		d *= time.Duration(o.Factor) // Max is far below the largest Duration divided by MaxBanFactor
	}
	return min(d, o.Max)
}

// Steps is the number of the first ban that lasts as long as all further ones.
func (o *OnRepeat) Steps() int64 {
	n := int64(1)
	for o.Factor > 1 && o.Lasts(n) < o.Max {
		n++
	}
	return n
}

// Threshold describes the refusals that lead to a ban: "100 refusals within 10m".
func (o *OnRepeat) Threshold() string {
	return plain.Count(o.Refusals.N(), "refusal") + " within " + rate.Short(o.Refusals.Period())
}

// String describes o: "100 refusals within 10m: a ban of 1m, then 4m, 16m … 24h; forgotten after 48h".
func (o *OnRepeat) String() string {
	text, steps := fmt.Sprintf("%s: a ban of %s", o.Threshold(), rate.Short(o.Ban)), o.Steps()
	const listed = 3
	for n := int64(2); n <= min(steps, listed); n++ {
		joined := ", "
		if n == 2 {
			joined = ", then "
		}
		text += joined + rate.Short(o.Lasts(n))
	}
	switch {
	case steps == listed+1:
		text += ", " + rate.Short(o.Max)
	case steps > listed:
		text += " … " + rate.Short(o.Max)
	}
	text += "; forgotten after " + rate.Short(o.Forget)
	if o.Mode == rules.Shadow {
		text += " (shadow: nobody is banned)"
	}
	return text
}
