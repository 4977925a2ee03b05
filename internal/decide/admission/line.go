package admission

import (
	"context"
	"slices"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/queue"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/store"
)

// askInLine asks the limits where a rule may queue. While other requests of its key wait in
// q, a request takes nothing, not even for a moment, since it could take just what they wait
// for. It is then refused by the limit of that key, unless another refuses it anyway.
func (p *Pass) askInLine(ctx context.Context, q *queue.Queue) (err error) {
	e, m := p.asker.Engine, rules.Matches{}
	p.behind = nil
	asked := p.query
	asked.Matched = &engine.Matched{Known: e.Rules().Match(asked.Domain, asked.Request, &m)}
	asked.Matched.Checks = m.Checks
	line := lineOf(ctx, q, m.Checks, asked.At)
	if line.check != nil && p.peekLine(ctx, asked, line) {
		return nil
	}
	p.Verdict, err = e.Decide(ctx, asked)
	if behind := line.resultOf(&p.Verdict); p.Allowed && behind != nil { // the limit that refused it in look no longer does
		p.Leave(ctx)
		p.join(behind)
	}
	return err
}

// peekLine peeks at the limits for a request that has to queue behind others. It reports false
// if it cannot, and the limits must then be asked.
func (p *Pass) peekLine(ctx context.Context, looking engine.Query, line line) bool {
	e := p.asker.Engine
	looking.Kind = store.KindPeek
	v, err := e.Decide(ctx, looking)
	queued := !v.Allowed && v.Outcome() == engine.Queued
	behind := line.resultOf(&v)
	if err != nil || !v.Known || !queued && (!v.Allowed || behind == nil) {
		v.Release()
		return false
	}
	p.Verdict = v
	if by := v.Refuser(); !queued || by != nil && behind != nil && by.Rule.KeyParts() == 0 && behind.Rule.KeyParts() > 0 {
		p.join(behind) // otherwise it waits for the limit that refuses it, unless that one has no key
	}
	e.ReportTake(ctx, p.query, p.Verdict)
	return true
}

// join makes p a refusal by a limit that has room, but whose queue has others.
func (p *Pass) join(behind *engine.Result) {
	d := &behind.Decision
	d.Allowed, d.Reason, d.Remaining, d.RetryAfter = false, headgate.ReasonLimited, 0, max(d.ResetAfter, time.Second)
	p.behind, p.Allowed, p.Rule, p.Decision, p.Delay = behind, false, behind.Rule, *d, 0
}

// Postpone refunds an allowed request that cannot run now for another reason than its limits, and
// makes p a refusal by a rule that queues, preferably one with a key, as if others waited there. It
// reports false, and does nothing, if there is none.
func (p *Pass) Postpone(ctx context.Context) bool {
	if !p.Allowed || !p.query.Waits || p.asker.Queue == nil || p.asker.Queue() == nil {
		return false
	}
	var by *engine.Result
	results := p.Results()
	for i := range results {
		if r := &results[i]; r.Enforced && r.Rule.OnLimit.Action == rules.Queue && (by == nil || by.Rule.KeyParts() == 0 && r.Rule.KeyParts() > 0) {
			by = r
		}
	}
	if by == nil {
		return false
	}
	p.Leave(ctx)
	p.join(by)
	p.setPolicies(p.at)
	return true
}

// line is the queue that a request has to join, if check is not nil. It is unsure if the
// queue did not say whether anybody waits in it.
type line struct {
	check  *rules.Check
	unsure bool
}

// lineOf returns the queue for whose key other requests wait, or else the first one that
// did not say. Rules with a key come before those without.
func lineOf(ctx context.Context, q *queue.Queue, checks []rules.Check, at int64) (l line) {
	for _, keyed := range []bool{true, false} {
		for i := range checks {
			c := &checks[i]
			if !c.Enforced || !c.Rule.Holds(at) || c.Rule.OnLimit.Action != rules.Queue || c.Rule.KeyParts() > 0 != keyed {
				continue
			}
			waiting, err := q.Waiting(ctx, queue.Line{Scope: c.Rule.Scope, Key: c.Key})
			switch {
			case err != nil && l.check == nil:
				l = line{check: c, unsure: true}
			case err == nil && waiting:
				return line{check: c}
			}
		}
	}
	return l
}

// resultOf returns the result of the line's check in v, or nil if the request need not
// join it. If not even the limit's store answered, on_store_error has said what to do,
// unless it is known that others wait.
func (l line) resultOf(v *engine.Verdict) *engine.Result {
	if l.check == nil {
		return nil
	}
	results := v.Results()
	i := slices.IndexFunc(results, func(r engine.Result) bool { return r.Rule.Scope == l.check.Rule.Scope && r.Key == l.check.Key })
	if i < 0 {
		return nil
	}
	r := &results[i]
	if l.unsure && (r.Decision.Reason == headgate.ReasonFailOpen || r.Decision.Reason == headgate.ReasonFallback) {
		return nil
	}
	return r
}
