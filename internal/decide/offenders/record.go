package offenders

import (
	"context"
	"time"

	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/store"
)

// Record is what is counted about a key of a rule with on_repeat, in its mode.
type Record struct {
	Mode     rules.Mode
	Refusals int64         // how many count towards the next ban
	Bans     int64         // how many there were, in shadow mode how many there would have been
	LastBan  time.Time     // when the last of them started; zero if there was none
	Next     time.Duration // how long the next one lasts
}

// RecordOf returns the record of a key of a rule that has on_repeat. It counts nothing.
func RecordOf(ctx context.Context, db store.Store, rule *rules.Rule, key string, now time.Time) (Record, error) {
	id := offender{rule.Scope, key, rule.OnRepeat.Mode}
	if !rule.Enforces(key) {
		id.mode = rules.Shadow
	}
	bans, refusals := id.ops(rule.OnRepeat, now.UnixMicro())
	bans.Kind, refusals.Kind = store.KindPeek, store.KindPeek
	var out [2]store.Decision
	if err := store.ExecuteAll(ctx, db, []store.Op{bans, refusals}, out[:], store.Independent); err != nil {
		return Record{}, err
	}
	r := Record{
		Mode: id.mode, Refusals: rule.OnRepeat.Refusals.N() - out[1].Remaining, Bans: rule.OnRepeat.Bans.N() - out[0].Remaining,
	}
	if r.Bans > 0 {
		r.LastBan = now.Add(min(out[0].ResetAfter-rule.OnRepeat.Forget, 0))
	}
	r.Next = rule.OnRepeat.Lasts(r.Bans + 1)
	return r, nil
}
