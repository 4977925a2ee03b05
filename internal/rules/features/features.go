// Package features lists the features of rules that have a folder of their own, below this
// one. Parsers, doors, commands and replays ask it, and know none of them by name.
package features

import (
	"context"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/feature"
	"github.com/headgate/headgate/internal/rules/features/offenders"
	"github.com/headgate/headgate/internal/rules/features/when"
	"github.com/headgate/headgate/store"
)

//nolint:gochecknoglobals // it is only written by a test that adds one
var list = []feature.Feature{
	offenders.Feature(),
	when.Feature(),
}

// All returns the features, in the order in which their keys are read.
func All() []feature.Feature { return list }

// Told is what features say about a rule, as members of its JSON.
type Told struct {
	OnRepeat string `json:"on_repeat,omitempty"` // which refusals lead to which bans; empty for none
	Soft     string `json:"soft,omitempty"`      // which requests pass and are marked; empty for none
}

// Tell returns what features say about a rule.
func Tell(r *rules.Rule) Told { return Told{OnRepeat: offenders.Text(r), Soft: r.SoftText()} }

// Lines calls show for each feature of the rule.
func (t Told) Lines(show func(name, text string)) {
	if t.OnRepeat != "" {
		show(offenders.Name, t.OnRepeat)
	}
	if t.Soft != "" {
		show("soft", t.Soft)
	}
}

// Lacks returns what a rule needs to apply that no access log has; empty for nothing.
func Lacks(r *rules.Rule) string { return when.Lacks(r) }

// Counted is what features have counted about a key, as members of its JSON.
type Counted struct {
	Repeat *offenders.RepeatView `json:"on_repeat,omitempty"` // set if the rule has on_repeat
}

// Count returns what features have counted about a key of a rule. It counts nothing.
func Count(ctx context.Context, db store.Store, rule *rules.Rule, key string, now time.Time) (c Counted, err error) {
	c.Repeat, err = offenders.View(ctx, db, rule, key, now)
	return c, err
}

// Lines calls show for each feature that has counted.
func (c Counted) Lines(now time.Time, show func(text string)) {
	if c.Repeat != nil {
		show(c.Repeat.Text(now))
	}
}

// Replayed is what features have done in a replay under a rule, as members of its JSON.
type Replayed struct {
	OnRepeat *feature.Bans `json:"on_repeat,omitempty"` // nil for a rule without on_repeat
}

// Replay returns what features have done under a rule that has banned keys.
func Replay(r *rules.Rule, bans, keys int64) Replayed {
	return Replayed{offenders.Replay(r, bans, keys)}
}

// Bans calls show for each feature that has banned keys.
func (r Replayed) Bans(show func(*feature.Bans)) {
	if r.OnRepeat != nil && r.OnRepeat.Bans > 0 {
		show(r.OnRepeat)
	}
}

// Resets returns the operations with which all is forgotten that features have counted
// about a key of a rule.
func Resets(rule *rules.Rule, key string, now time.Time) (ops []store.Op) {
	for _, f := range All() {
		if f.Resets != nil {
			ops = append(ops, f.Resets(rule, key, now)...)
		}
	}
	return ops
}

// Workers are what features do in a process. They implement engine.Refusals.
type Workers []feature.Worker

// Open returns what features do in a process.
func Open(p feature.Process) (all Workers) {
	for _, f := range All() {
		if f.Open != nil {
			all = append(all, f.Open(p))
		}
	}
	return all
}

// Wanted reports whether any rule has a feature with a worker.
func (w Workers) Wanted(rs *rules.Ruleset) bool {
	return slices.ContainsFunc(w, func(one feature.Worker) bool { return one.Wanted(rs) })
}

// Refused implements engine.Refusals.
func (w Workers) Refused(rule *rules.Rule, key string, lane uint32, enforced bool) {
	for _, one := range w {
		one.Refused(rule, key, lane, enforced)
	}
}

// Tick is to be called at every [feature.Interval] by one goroutine.
func (w Workers) Tick(ctx context.Context) {
	for _, one := range w {
		one.Tick(ctx)
	}
}

// Flush does all that is due at once.
func (w Workers) Flush(ctx context.Context) {
	for _, one := range w {
		one.Flush(ctx)
	}
}

// Metrics returns the metrics of all features.
func (w Workers) Metrics() (all []feature.Metric) {
	for _, one := range w {
		all = append(all, one.Metrics()...)
	}
	return all
}

// Last returns up to n of the bans that each feature has started last, newest first.
func (w Workers) Last(n int) (all []feature.Ban) {
	for _, one := range w {
		all = append(all, one.Last(n)...)
	}
	return all
}
