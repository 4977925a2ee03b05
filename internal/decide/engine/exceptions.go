package engine

import (
	"maps"
	"time"

	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/store"
)

// Exception is an operator's setting for one key of a rule: a ban, another limit, or
// both.
type Exception struct {
	Scope, Key string // as in the rule's checks
	// BannedUntil is when a ban ends, in microseconds since the Unix epoch; 0 without
	// one. A banned key is refused with the Reason headgate.ReasonBanned, even by a rule that
	// only observes. The store is not called for such a request, and no limit is
	// charged. If the rule's action is ShadowBan, the other limits are charged, because
	// clients can see them.
	BannedUntil int64
	LimitUntil  int64 // when Instead ends; 0 without one
	// Instead lists rules of the Scope and their replacements: the same rules with
	// another limit. The key keeps its counts.
	Instead []Instead
}

// Instead is a rule and its replacement.
type Instead struct{ Of, Rule *rules.Rule }

// instead returns the replacement of r.
func (e *Exception) instead(r *rules.Rule) *rules.Rule {
	var same *rules.Rule
	base := r.Base()
	for i := range e.Instead {
		switch in := &e.Instead[i]; {
		case in.Of == base:
			return in.Rule.WithGiven(r.GivenText())
		case in.Of.Tier == r.Tier && in.Rule.Limit.Algorithm() == r.Limit.Algorithm():
			same = in.Rule
		}
	}
	if same == nil {
		return r
	}
	// r is from a ruleset that has been replaced, or is about to be.
	return r.Limited(same.Limit).WithGiven(r.GivenText())
}

// Exceptions is an immutable set of exceptions. A nil *Exceptions is empty.
type Exceptions struct {
	byID map[exceptionID]*Exception
	// newer, set by With, is looked at first.
	newer map[exceptionID]*Exception
	now   int64
}

type exceptionID struct{ scope, key string }

// NewExceptions returns a set of the exceptions in list, which must differ in Scope or
// Key. now, in microseconds since the Unix epoch, is used for requests without a time.
func NewExceptions(list []Exception, now int64) *Exceptions {
	if len(list) == 0 {
		return nil
	}
	x := &Exceptions{byID: make(map[exceptionID]*Exception, len(list)), now: now}
	for i := range list {
		x.byID[exceptionID{list[i].Scope, list[i].Key}] = &list[i]
	}
	return x
}

// With returns x with the exceptions in list replacing those with the same Scope and
// Key. An exception without a ban and a limit removes the old one. With copies what
// earlier calls added and shares the rest, so use it for few changes; see
// [Exceptions.Newer]. x may be nil.
func (x *Exceptions) With(list []Exception, now int64) *Exceptions {
	out := &Exceptions{now: now, newer: make(map[exceptionID]*Exception, x.Newer()+len(list))}
	if x != nil {
		out.byID = x.byID
		maps.Copy(out.newer, x.newer)
	}
	for i := range list {
		out.newer[exceptionID{list[i].Scope, list[i].Key}] = &list[i]
	}
	return out
}

// Newer returns the number of exceptions added by With.
func (x *Exceptions) Newer() int {
	if x == nil {
		return 0
	}
	return len(x.newer)
}

// find returns the exception of a key, or nil.
func (x *Exceptions) find(id exceptionID) *Exception {
	if len(x.newer) > 0 {
		if e := x.newer[id]; e != nil {
			return e
		}
	}
	return x.byID[id]
}

// SetExceptions swaps the exceptions. Decisions in progress keep the old ones.
func (e *Engine) SetExceptions(x *Exceptions) { e.exceptions.Store(x) }

// Exceptions returns the active exceptions, or nil.
func (e *Engine) Exceptions() *Exceptions { return e.exceptions.Load() }

// at returns the time to use.
func (x *Exceptions) at(at int64) int64 {
	if at == 0 {
		return x.now
	}
	return at
}

// of returns until when a key is banned, if it is, and the rule that applies to it. x
// may be nil.
func (x *Exceptions) of(rule *rules.Rule, key string, at int64) (bannedUntil int64, applies *rules.Rule) {
	if x == nil {
		return 0, rule
	}
	e := x.find(exceptionID{rule.Scope, key})
	if e == nil {
		return 0, rule
	}
	if e.LimitUntil > at {
		rule = e.instead(rule)
	}
	if e.BannedUntil > at {
		return e.BannedUntil, rule
	}
	return 0, rule
}

// Applies returns the rule that applies to a key now in place of rule (usually rule
// itself, or its variant for the key), and until when the key is banned, or the zero time.
func (e *Engine) Applies(rule *rules.Rule, key string, now time.Time) (applies *rules.Rule, bannedUntil time.Time) {
	until, applies := e.exceptions.Load().of(rule.ForKey(key), key, now.UnixMicro())
	if until > 0 {
		bannedUntil = time.UnixMicro(until)
	}
	return applies, bannedUntil
}

// OverriddenUntil returns until when a key has another limit than rule says, or the zero time.
func (e *Engine) OverriddenUntil(rule *rules.Rule, key string, now time.Time) time.Time {
	if x := e.exceptions.Load(); x != nil {
		if it := x.find(exceptionID{rule.Scope, key}); it != nil && it.LimitUntil > now.UnixMicro() {
			return time.UnixMicro(it.LimitUntil)
		}
	}
	return time.Time{}
}

// ban returns the decision about a banned key.
func ban(rule *rules.Rule, until, at int64) store.Decision {
	left := time.Duration(until-at) * time.Microsecond
	return store.Decision{Reason: store.ReasonBanned, Limit: rule.Limit.Burst(), RetryAfter: left, ResetAfter: left}
}

// except applies x to the results, and reports whether it has refused the request.
// Refunds are still made, and rules that only observe still observe.
func (d *deciding) except(x *Exceptions) (refused bool) {
	at := x.at(d.query.At)
	for i := range d.results {
		r := &d.results[i]
		until, rule := x.of(r.Rule, r.Key, at)
		if until == 0 {
			until = d.bannedAs(x, r, at)
		}
		if r.Rule = rule; d.explains != nil {
			d.explains.except(i, rule, until, at)
		}
		if until == 0 || r.role == refund {
			continue
		}
		if r.role, r.Decision = none, ban(rule, until, at); d.explains == nil {
			r.step = none
		}
		if d.query.Observe {
			d.shadow(r)
			continue
		}
		r.Enforced, d.allowed, refused = true, false, true
	}
	return refused
}

// bannedAs returns until when any of the possible senders of the request is banned.
func (d *deciding) bannedAs(x *Exceptions, r *Result, at int64) (until int64) {
	q, ok := d.Parts[r.Part].Request.(rules.DisputedRequest)
	if !ok {
		return 0
	}
	for _, client := range q.Clients() {
		if key, ok := r.Rule.KeyOfClient(r.Key, client); ok {
			its, _ := x.of(r.Rule, key, at)
			until = max(until, its)
		}
	}
	return until
}

// keepBans removes all results except the bans and those that hide them, because the
// other limits no longer matter.
func (d *deciding) keepBans() {
	if d.todo &= 1<<enforce | 1<<observe; !d.hidden {
		d.todo = 0
	}
	d.keep(func(r *Result) bool { return r.role == none || d.hidden && (r.visible() || r.passes()) })
}

// Hidden reports whether clients must not learn of the rule: its action is ShadowBan,
// so no header field may show its limit, even for a request that passes.
func (r *Result) Hidden() bool { return r.Rule.OnLimit.Action == rules.ShadowBan }

// visible reports whether a request that only hidden rules refused is charged to the
// rule of r, as it would be if it had passed.
func (r *Result) visible() bool { return r.role == enforce && !r.Hidden() }

// hides reports whether the request is refused only by hidden rules with this role. It
// is then charged to the limits that its client can see, all or nothing. Otherwise
// their remaining numbers would not change, which would reveal the ban. If one of these
// limits refuses, so does the verdict: the client meets it like any other client.
func (d *deciding) hides(role step) bool {
	first := Allowed
	for i := range d.results {
		r := &d.results[i]
		if r.role != role || r.Decision.Allowed {
			continue
		}
		if o := refusal(r.Rule, &r.Decision); o.precedence() > first.precedence() {
			first = o
		}
	}
	return first == ShadowBanned
}

// pretend makes the slots of a concurrency rule look as if one had been taken to
// disguise the request. None was, because it would never be released.
func (d *deciding) pretend(r *Result) {
	p := &d.Parts[r.Part]
	if d.hidden && r.Decision.Allowed && r.Rule.Concurrent() && p.Kind == store.KindTake {
		r.Decision.Remaining = max(r.Decision.Remaining-times(p.Cost, r.cost), 0)
	}
}
