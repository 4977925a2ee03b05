package offenders

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/feature"
	"github.com/headgate/headgate/store"
)

// atOnce is how many keys are counted in one call of the store.
const atOnce = 128

// Saving bans may take long: a table in a file is written as a whole. So after a save, [Watch.Tick]
// rests restFactor times as long as that took, but not longer than mostRest.
const (
	restFactor = 4
	mostRest   = 5 * time.Second
)

// Tick implements feature.Worker. It does nothing while
// saving the last bans took so long that a tenth of a second later is too soon.
func (w *Watch) Tick(ctx context.Context) {
	if rest := w.next.Sub(w.process.Clock()); rest > 0 && rest <= mostRest { // a longer one is a changed clock
		return
	}
	took := w.flush(ctx)
	w.next = w.process.Clock().Add(min(restFactor*max(took, 0), mostRest))
}

// Flush counts the refusals since the last call, and starts the bans that they lead to.
// Refusals that the store cannot count are dropped: nobody is banned because of them. It
// may be called concurrently.
func (w *Watch) Flush(ctx context.Context) { w.flush(ctx) }

// flush is Flush, and returns how long it took to save bans.
func (w *Watch) flush(ctx context.Context) (took time.Duration) {
	w.flushing.Lock()
	defer w.flushing.Unlock()
	w.collect()
	var bans []feature.Ban
	for todo := w.todo; len(todo) > 0; {
		n := min(atOnce, len(todo))
		found, err := w.count(ctx, todo[:n])
		if bans = append(bans, found...); err != nil {
			w.drop(err, todo) // all: each call to a store that does not answer takes its timeout
			break
		}
		todo = todo[n:]
	}
	clear(w.todo)
	if len(w.known) > 0 {
		w.ban(ctx, w.known)
	}
	w.known = nil
	if len(bans) > 0 {
		before := w.process.Clock()
		w.start(ctx, bans)
		took = w.process.Clock().Sub(before)
	}
	return took
}

// drop notes refusals that were not counted.
func (w *Watch) drop(err error, list []offence) {
	for i := range list {
		w.stats.uncounted.Add(list[i].n)
	}
	if mayLog(&w.stats.uncountedAt, w.process.Clock()) {
		w.process.Log.Warn("refusals not counted for on_repeat: the store does not answer", "err", err)
	}
}

// ops returns the operations on the two counts of an offender.
func (o *offender) ops(r *OnRepeat, at int64) (bans, refusals store.Op) {
	suffix := ""
	if o.mode == rules.Shadow {
		suffix = "!shadow"
	}
	bans = store.Op{Key: o.key, Scope: o.scope + "!bans" + suffix, Rule: r.Bans.Rule(), At: at}
	refusals = store.Op{Key: o.key, Scope: o.scope + "!refusals" + suffix, Rule: r.Refusals.Rule(), At: at}
	return bans, refusals
}

// count counts refusals, and returns the bans that they lead to.
func (w *Watch) count(ctx context.Context, list []offence) (found []feature.Ban, err error) {
	now := w.process.Clock()
	at := now.UnixMicro()
	w.ops = w.ops[:0]
	for i := range list {
		o := &list[i]
		bans, refusals := o.ops(Of(o.rule), at)
		bans.Kind = store.KindPeek
		refusals.Kind, refusals.Cost = store.KindTakeUpTo, o.n
		if nobody(o.rule, o.key) {
			refusals.Cost = 0
		}
		w.ops = append(w.ops, bans, refusals)
	}
	if err := w.do(ctx, store.Independent); err != nil {
		return nil, err
	}
	var again []store.Op
	for i := range list {
		o, bans, refusals := &list[i], &w.out[2*i], &w.out[2*i+1]
		on := Of(o.rule)
		was := on.Bans.N() - bans.Remaining
		switch age := max(on.Forget-bans.ResetAfter, 0); { // a clock may have been ahead
		case was > 0 && age < on.Lasts(was):
			// Refusals during a ban do not count: they were in progress when it started, or
			// an operator has ended it, or it is in shadow mode.
			if refusals.Granted > 0 {
				op := w.ops[2*i+1]
				op.Kind, op.Cost = store.KindReset, 0
				again = append(again, op)
			}
			if left := on.Lasts(was) - age; w.process.Follow && o.mode == rules.Enforce {
				w.known = append(w.known, feature.Ban{Rule: o.rule, Key: o.key, Number: was, From: now, Until: now.Add(left)})
			}
		case refusals.Remaining == 0 && w.ops[2*i+1].Cost > 0:
			found = append(found, feature.Ban{Rule: o.rule, Key: o.key, Mode: o.mode, Number: was + 1, From: now})
		}
	}
	if len(again) > 0 {
		w.ops = append(w.ops[:0], again...)
		if err := w.do(ctx, store.Independent); err != nil {
			return nil, err
		}
	}
	return w.win(ctx, found)
}

// do calls the store with w.ops.
func (w *Watch) do(ctx context.Context, mode store.Mode) error {
	if cap(w.out) < len(w.ops) {
		w.out = make([]store.Decision, len(w.ops), 2*atOnce)
	}
	w.out = w.out[:len(w.ops)]
	return store.ExecuteAll(ctx, w.process.Store, w.ops, w.out, mode)
}

// win returns those of the bans that this process starts: it is the one that counts them.
// From the ban MaxBans on, another process may start the same one.
func (w *Watch) win(ctx context.Context, list []feature.Ban) (won []feature.Ban, err error) {
	for i := range list {
		b := &list[i]
		id := offender{b.Rule.Scope, b.Key, b.Mode}
		o := Of(b.Rule)
		bans, refusals := id.ops(o, b.From.UnixMicro())
		most := o.Bans.N()
		w.ops = append(w.ops[:0], bans, bans, bans, refusals)
		w.ops[0].Cost = most - b.Number + 1 // fits only if no other process has counted this ban
		w.ops[1].Kind = store.KindReset
		w.ops[2].Cost = min(b.Number, most-1)
		w.ops[3].Kind = store.KindReset
		if err := w.do(ctx, store.AllOrNothing); err != nil {
			return won, err
		}
		if w.out[0].Allowed {
			b.Until, b.By, b.Reason = b.From.Add(o.Lasts(b.Number)), Name, reason(o, b.Number)
			won = append(won, *b)
		}
	}
	return won, nil
}

// start starts bans, and reports those that are saved.
func (w *Watch) start(ctx context.Context, list []feature.Ban) {
	enforced, seen := make([]feature.Ban, 0, len(list)), make([]feature.Ban, 0, len(list))
	for _, b := range list {
		if b.Mode == rules.Enforce {
			enforced = append(enforced, b)
		} else {
			seen = append(seen, b)
		}
	}
	if len(enforced) > 0 {
		seen = append(seen, w.ban(ctx, enforced)...)
	}
	for i := range seen {
		w.stats.add(&seen[i])
		if w.process.Started != nil {
			w.process.Started(seen[i])
		}
	}
}

// ban passes bans on, and returns those that were started.
func (w *Watch) ban(ctx context.Context, list []feature.Ban) []feature.Ban {
	started, unsaved, err := w.process.Ban(ctx, list)
	w.stats.unsaved.Add(int64(unsaved))
	if err != nil {
		lost := len(list) - len(started)
		w.stats.unbanned.Add(int64(lost))
		if mayLog(&w.stats.unbannedAt, w.process.Clock()) {
			w.process.Log.Error("keys not banned by on_repeat", "keys", lost, "in_all", w.stats.unbanned.Load(), "err", err)
		}
	}
	return started
}

// reason describes what led to a ban: "100 refusals within 10m, ban 2".
func reason(o *OnRepeat, number int64) string {
	later := ""
	if number >= MaxBans {
		later = " or later"
	}
	return fmt.Sprintf("%s, ban %d%s", o.Threshold(), number, later)
}

// pardons returns the operations with which a key's refusals and bans are forgotten: the
// next ban is then the first.
func pardons(rule *rules.Rule, key string, now time.Time) []store.Op {
	on := Of(rule)
	if on == nil {
		return nil
	}
	var out []store.Op
	for _, mode := range []rules.Mode{rules.Enforce, rules.Shadow} {
		id := offender{rule.Scope, key, mode}
		bans, refusals := id.ops(on, now.UnixMicro())
		bans.Kind, refusals.Kind = store.KindReset, store.KindReset
		out = append(out, bans, refusals)
	}
	return out
}
