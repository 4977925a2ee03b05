package warning

import (
	"context"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/store"
)

// MaxRules is how many rules are watched at a time: those that had requests first. One
// takes up to 300 KiB, usually 120 KiB.
const MaxRules = 256

// Observer is an engine.Observer that looks for what to warn of. Make it with [New].
type Observer struct {
	settings Settings
	seed     maphash.Seed
	table    atomic.Pointer[table]
	watched  atomic.Int64 // rules with a state; Look counts them

	mu     sync.Mutex // guards what follows
	active map[identity]*active
	// activeKeys is how many of active are of KeyRefused, by rule.
	activeKeys map[ruleName]int
	recent     map[identity]ending // warnings that have ended
	turned     time.Time           // when the current fifth of KeyRefused.For began
}

var _ engine.Observer = (*Observer)(nil)

// table finds the watch of a rule. It is never changed, only replaced.
type table struct {
	rules   []*rules.Rule // by their Index
	watches []*watch      // in the same order
	byName  map[ruleName]*watch
}

// watch is what is known of one rule, or of several with one name.
type watch struct {
	rule  *rules.Rule // one of them
	state atomic.Pointer[state]
}

// state is what is known of a rule that has requests.
type state struct {
	suspects  *suspects
	fullness  *fullness
	newcomers *newcomers
	busy      atomic.Bool // had requests since the last look
	idle      int         // looks without
	full      time.Time   // when as many warnings of keys as at first may start again
}

// New returns an Observer without rules.
func New(s Settings) *Observer {
	o := &Observer{settings: s, seed: maphash.MakeSeed(), active: map[identity]*active{}, activeKeys: map[ruleName]int{}, recent: map[identity]ending{}}
	o.table.Store(&table{})
	return o
}

// SetRules watches the rules of rs. Rules that keep domain and name keep what is known of
// them. Call it before rs becomes active.
func (o *Observer) SetRules(rs *rules.Ruleset) {
	o.mu.Lock()
	defer o.mu.Unlock()
	old, list := o.table.Load(), rs.Rules()
	t := &table{rules: list, byName: make(map[ruleName]*watch, len(list))}
	for _, r := range list {
		name := nameOf(r)
		w := t.byName[name]
		if w == nil {
			w = &watch{rule: r}
			if before := old.byName[name]; before != nil {
				w.state.Store(before.state.Load())
			}
			t.byName[name] = w
		}
		t.watches = append(t.watches, w)
	}
	o.table.Store(t)
}

// of returns the watch of r, or nil if it is not of these rules.
func (t *table) of(r *rules.Rule) *watch {
	if i := r.Index; i >= 0 && i < len(t.rules) && t.rules[i] == r.Base() {
		return t.watches[i]
	}
	return nil
}

// Observe implements [engine.Observer]. It allocates only for a rule's first request,
// and for the first refusals of its keys.
func (o *Observer) Observe(_ context.Context, seen *engine.Decided) {
	t, results := o.table.Load(), seen.Verdict.Results()
	for i := range results {
		r := &results[i]
		if !seen.Parts[r.Part].Takes() {
			continue
		}
		if d := r.Decision.Reason; d == headgate.ReasonNoLimit || d == headgate.ReasonFailOpen || d == headgate.ReasonFailClosed {
			continue // says nothing of the key
		}
		w := t.of(r.Rule)
		if w == nil {
			continue
		}
		s := w.state.Load()
		if s == nil {
			if s = o.begin(w); s == nil {
				continue
			}
		}
		o.count(s, r)
	}
}

// begin returns the state of a rule with its first request, or nil if too many rules are
// watched.
func (o *Observer) begin(w *watch) *state {
	if o.watched.Add(1) > MaxRules {
		o.watched.Add(-1)
		return nil
	}
	s := new(state)
	if !o.settings.Off[KeyRefused] {
		s.suspects = new(suspects)
	}
	if !o.settings.Off[RuleNearLimit] {
		s.fullness = newFullness(len(o.settings.RuleNearLimit))
	}
	if !o.settings.Off[NewKeys] {
		s.newcomers = newNewcomers()
	}
	if !w.state.CompareAndSwap(nil, s) {
		o.watched.Add(-1)
		return w.state.Load()
	}
	return s
}

// count counts one result.
func (o *Observer) count(s *state, r *engine.Result) {
	if !s.busy.Load() {
		s.busy.Store(true)
	}
	refused := r.Outcome().Refuses()
	if r.Key == "" {
		if s.fullness != nil {
			s.fullness.add(0, true, o.levels(&r.Decision, refused))
		}
		return
	}
	hash := maphash.String(o.seed, r.Key)
	if s.suspects != nil {
		s.suspects.add(r.Key, hash, refused)
	}
	if s.fullness != nil {
		s.fullness.add(hash, false, o.levels(&r.Decision, refused))
	}
	if s.newcomers != nil {
		s.newcomers.add(hash)
	}
}

// levels returns how many levels of RuleNearLimit a key has reached. 100% is a refusal.
func (o *Observer) levels(d *store.Decision, refused bool) (n int) { //nolint:revive // a fact, not a mode
	if refused {
		return len(o.settings.RuleNearLimit)
	}
	if d.Limit < leastLimit {
		return 0
	}
	used := (d.Limit - d.Remaining) * 100 / d.Limit // limits are below 2^53, so the product fits
	for _, level := range o.settings.RuleNearLimit {
		if level >= 100 || used < level {
			break
		}
		n++
	}
	return n
}
