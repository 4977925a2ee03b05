package offenders

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate/headgate/internal/base/plain"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/feature"
	"github.com/headgate/headgate/internal/rules/rate"
	"github.com/headgate/headgate/store"
)

// Text describes the on_repeat of a rule; empty without one.
func Text(r *rules.Rule) string {
	if o := Of(r); o != nil {
		return o.String()
	}
	return ""
}

// RepeatView is what on_repeat has counted about a key.
type RepeatView struct {
	Mode     string     `json:"mode"`               // shadow: nobody is banned
	Refusals int64      `json:"refusals"`           // how many count towards the next ban
	Of       int64      `json:"of"`                 // how many lead to it
	Within   int64      `json:"within_ms"`          // in how long
	Bans     int64      `json:"bans"`               // how many bans of the key there were, or would have been in shadow mode
	LastBan  *time.Time `json:"last_ban,omitempty"` // when the last one started
	NextBan  int64      `json:"next_ban_ms"`        // how long the next one lasts
}

// View returns what is counted about a key of a rule; nil without on_repeat. It counts
// nothing.
func View(ctx context.Context, db store.Store, rule *rules.Rule, key string, now time.Time) (*RepeatView, error) {
	o := Of(rule)
	if o == nil {
		return nil, nil //nolint:nilnil // nothing is counted
	}
	id := offender{rule.Scope, key, o.Mode}
	if !rule.Enforces(key) {
		id.mode = rules.Shadow
	}
	bans, refusals := id.ops(o, now.UnixMicro())
	bans.Kind, refusals.Kind = store.KindPeek, store.KindPeek
	var out [2]store.Decision
	if err := store.ExecuteAll(ctx, db, []store.Op{bans, refusals}, out[:], store.Independent); err != nil {
		return nil, err
	}
	v := &RepeatView{
		Mode: id.mode.String(), Refusals: o.Refusals.N() - out[1].Remaining, Of: o.Refusals.N(), Within: milliseconds(o.Refusals.Period()),
		Bans: o.Bans.N() - out[0].Remaining,
	}
	v.NextBan = milliseconds(o.Lasts(v.Bans + 1))
	if v.Bans > 0 {
		v.LastBan = new(now.Add(min(out[0].ResetAfter-o.Forget, 0)).UTC().Truncate(time.Millisecond))
	}
	return v, nil
}

func milliseconds(d time.Duration) int64 { return (d + time.Millisecond - 1).Milliseconds() }

// Text describes v for operators.
func (v *RepeatView) Text(now time.Time) string {
	short := func(ms int64) string { return rate.Short(time.Duration(ms) * time.Millisecond) }
	text := fmt.Sprintf("%d of %s within %s", v.Refusals, plain.Count(v.Of, "refusal"), short(v.Within))
	never, were, next := "never banned", "banned ", "; the next ban lasts "
	if v.Mode == rules.Shadow.String() {
		never, were, next = "would not have been banned yet", "would have been banned ", "; the next ban would last "
	}
	if v.LastBan == nil {
		return text + ", " + never + next + short(v.NextBan)
	}
	return text + ", " + were + plain.Count(v.Bans, "time") + ", last " + v.LastBan.Format(time.RFC3339) +
		fmt.Sprintf(" (%s ago)", rate.Roughly(max(now.Sub(*v.LastBan), 0))) + next + short(v.NextBan)
}

// Replay returns what on_repeat has done in a replay; nil for a rule without it.
func Replay(r *rules.Rule, bans, keys int64) *feature.Bans {
	if o := Of(r); o != nil {
		return &feature.Bans{By: Name, Mode: max(o.Mode, r.Mode).String(), Bans: bans, Keys: keys}
	}
	return nil
}
