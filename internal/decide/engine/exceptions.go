package engine

import (
	"maps"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/rules"
)

// Exception is what an operator has said about one key of a rule: a ban,
// another limit, or both.
type Exception struct {
	Scope, Key string // those of the rule's checks
	// BannedUntil is when a ban ends, in microseconds since the Unix epoch; 0
	// without one. A banned key is refused with the Reason headgate.Banned, also
	// by a rule that otherwise only observes. Of the limits that apply to such a
	// request none is charged, and the store is not asked; if the rule's action
	// is ShadowBan the others are, as clients can see them.
	BannedUntil int64
	LimitUntil  int64 // until when Instead holds; 0 if it does not
	// Instead are rules of the Scope and what applies in their place: the same
	// with another limit. The counts stay those of the key.
	Instead []Instead
}

// Instead is a rule and what applies in its place.
type Instead struct{ Of, Rule *rules.Rule }

// instead returns what applies in place of r.
func (e *Exception) instead(r *rules.Rule) *rules.Rule {
	var same *rules.Rule
	for i := range e.Instead {
		switch in := &e.Instead[i]; {
		case in.Of == r:
			return in.Rule
		case in.Of.Tier == r.Tier && in.Of.Limit.Algorithm() == r.Limit.Algorithm():
			same = in.Rule
		}
	}
	if same == nil {
		return r
	}
	// Of a ruleset that has been replaced, or will be in a moment.
	changed := *r
	changed.Limit = same.Limit
	return &changed
}

// Exceptions are any number of them, and never change. A nil *Exceptions is
// none.
type Exceptions struct {
	byID map[exceptionID]*Exception
	// newer are looked at first: those of With.
	newer map[exceptionID]*Exception
	now   int64
}

type exceptionID struct{ scope, key string }

// NewExceptions returns those of list, whose Scope and Key together have to be
// different. now, in microseconds since the Unix epoch, is the time of
// requests that have none.
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

// With returns x with those of list in place of what it has of their Scope and
// Key; one without a ban and a limit takes that away. It copies what earlier
// Withs have added and shares the rest, so it is for few; see
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

// Newer is how many were added by With.
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

// SetExceptions swaps the exceptions. Decisions in progress keep the old
// ones.
func (e *Engine) SetExceptions(x *Exceptions) { e.exceptions.Store(x) }

// Exceptions returns the active ones, perhaps nil.
func (e *Engine) Exceptions() *Exceptions { return e.exceptions.Load() }

// at returns the time to go by.
func (x *Exceptions) at(at int64) int64 {
	if at == 0 {
		return x.now
	}
	return at
}

// of returns what holds for a key at a time: until when it is banned, if it is,
// and the rule that applies. x may be nil.
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

// Applies returns what applies now in place of a rule for a key, usually the
// rule itself, and until when the key is banned, or the zero time.
func (e *Engine) Applies(rule *rules.Rule, key string, now time.Time) (applies *rules.Rule, bannedUntil time.Time) {
	until, applies := e.exceptions.Load().of(rule, key, now.UnixMicro())
	if until > 0 {
		bannedUntil = time.UnixMicro(until)
	}
	return applies, bannedUntil
}

// ban is the decision about a key that is banned.
func ban(rule *rules.Rule, until, at int64) headgate.Decision {
	left := time.Duration(until-at) * time.Microsecond
	return headgate.Decision{Reason: headgate.Banned, Limit: rule.Limit.Capacity(), RetryAfter: left, ResetAfter: left}
}

// except applies x to the results, and reports whether it has refused the request.
// What has to be given back is given back all the same, and what only observes goes
// on observing.
func (d *deciding) except(x *Exceptions) (refused bool) {
	at := x.at(d.at)
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
		if d.watches {
			d.shadow(r)
			continue
		}
		r.Enforced, d.allowed, refused = true, false, true
	}
	return refused
}

// bannedAs returns until when one of those is banned who may have sent the request.
func (d *deciding) bannedAs(x *Exceptions, r *Result, at int64) (until int64) {
	q, ok := d.parts[r.part].Request.(rules.DisputedRequest)
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

// keepBans leaves of the results the bans, since the other limits do not matter any
// more, and those that are to hide them.
func (d *deciding) keepBans() {
	if d.todo = 0; d.hidden {
		d.todo = 1 << enforce
	}
	d.keep(func(r *Result) bool { return r.role == none || d.hidden && r.visible() })
}

// Hidden reports whether clients must not learn of the rule: its action is
// ShadowBan, so its limit belongs in no header field, not even of a request
// that passes.
func (r *Result) Hidden() bool { return r.Rule.OnLimit.Action == rules.ShadowBan }

// visible reports whether a request that only hidden rules have refused is
// charged to the rule of r, as it would be if it had passed.
func (r *Result) visible() bool { return r.role == enforce && !r.Hidden() }

// hides reports whether the request is refused by hidden rules only, of those with
// this role: then it is charged to the limits that its client can see, all of them
// or none. Otherwise their remaining numbers would not change, which reveals the ban to the client.
// If one of them refuses, so does the verdict: the client meets that
// limit as all clients do.
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

// pretend lets the places of a rule that limits concurrency look as if one had been
// taken to disguise the request. It was not, since it would not be refunded.
func (d *deciding) pretend(r *Result) {
	p := &d.parts[r.part]
	if d.hidden && r.Decision.Allowed && r.Rule.Concurrent() && p.Kind == headgate.Take {
		r.Decision.Remaining = max(r.Decision.Remaining-times(p.Cost, r.cost), 0)
	}
}
