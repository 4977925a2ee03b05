package engine

import (
	"context"
	"crypto/rand"
	"slices"

	"github.com/headgate/headgate/internal/rules"
)

// HasChargeOn reports whether v has taken from a rule that counts only certain answers,
// and no answer has settled it yet.
func (v *Verdict) HasChargeOn() bool {
	results := v.Results()
	for i := range results {
		if r := &results[i]; r.Rule.ChargeOn() != nil && r.unsettled() && r.Decision.Granted > 0 {
			return true
		}
	}
	return false
}

// SettleAnswer is SettleCosts for a request with a known answer: rules with charge_on
// that do not count it give back what v took. Other rules are not touched. A request
// that is never settled stays charged.
func (e *Engine) SettleAnswer(ctx context.Context, v *Verdict, at int64, answer rules.Answer) error {
	return e.SettleCosts(ctx, v, at, func(c *rules.CostAfter) (int64, CostKnowledge) {
		switch {
		case c.On == nil:
			return 0, CostPending
		case c.On.Counts(answer):
			return 0, CostEstimated
		}
		return 0, CostKnown
	})
}

// CostByAnswer returns what a says of a charge under a rule with charge_on, for
// [Engine.SettleCosts]: the charge stays (CostEstimated), is given back (a known cost of
// 0), or nobody has seen what says so. While a is open, that is CostPending.
func CostByAnswer(c *rules.ChargeOn, a *rules.Answer) (int64, CostKnowledge) {
	switch {
	case c.Counts(*a):
		return 0, CostEstimated
	case !a.LacksCode() || !c.NeedsCode():
		return 0, CostKnown
	case a.Open:
		return 0, CostPending
	}
	return 0, CostAborted
}

// ReportToken returns a token for what v has taken under rules with charge_on, with
// which a caller reports the answer to the request. It is empty if there is nothing to
// report. at is the time of the decision. Call it before Release. An error means that
// no secret is available; the request then stays charged, as it does if nobody reports
// within [DefaultReservation].
func (e *Engine) ReportToken(ctx context.Context, v *Verdict, at int64) (string, error) {
	if !v.Allowed || !v.HasChargeOn() {
		return "", nil
	}
	r := reservation{id: rand.Text(), made: at, until: at + DefaultReservation.Microseconds(), home: e.home}
	results := v.Results()
	for i := range results {
		if d := &results[i]; d.Rule.ChargeOn() != nil && d.Decision.Granted > 0 && d.unsettled() {
			r.parts = append(r.parts, d.reserved())
		}
	}
	local := slices.ContainsFunc(r.parts, func(p reserved) bool { return p.from == fromFallback })
	return e.seal.close(ctx, reportToken, r.append(nil), origin(local))
}

// reserved returns what r has taken, for a token.
func (r *Result) reserved() reserved {
	rule, d := r.Rule, &r.Decision
	at := place{key: r.Key}
	if r.origin() == fromStore {
		at.home = rule.Limit.Rule().Home()
	}
	p := reserved{
		place: at, domain: rule.Domain, rule: rule.Name, algorithm: rule.Limit.Algorithm(), each: r.cost,
		granted: d.Granted, freshIn: d.ResetAfter, countsUntil: d.CountsUntil, member: r.member,
		from: r.origin(), given: rule.GivenText(),
	}
	if share := rule.FairOf(r.share); share != nil { // otherwise its owner has paid nothing
		p.owner, p.weight = share.Of, share.Weight
	}
	return p
}

// Reported is the result of reporting an answer.
type Reported struct {
	Settlement

	Counts bool // a rule counts the answer
}

// Report settles what a request took under rules with charge_on by its answer: the rules
// that do not count it give it back. It counts at most once, however often and wherever
// it is called. at is now, in microseconds since the Unix epoch, and is required. For
// failed calls see [Engine.Commit].
func (e *Engine) Report(ctx context.Context, token string, answer rules.Answer, at int64) (Reported, error) {
	r, err := e.openReservation(ctx, reportToken, token)
	if err != nil {
		return Reported{}, err
	}
	var out Reported
	var given []*rules.Rule
	s := settling{engine: e, reservation: r, at: at, costOf: func(p *reserved, rule *rules.Rule) int64 {
		on := rule.ChargeOn()
		if on != nil && !on.Counts(answer) {
			given = append(given, rule)
			return 0
		}
		out.Counts = true
		return p.granted
	}}
	s.plan()
	out.Settlement, err = s.settle(ctx)
	for _, rule := range given {
		if err == nil && out.Ending == Done && !slices.Contains(out.Lost, rule.Name) {
			e.refunded(rule)
		}
	}
	return out, err
}

// openReservation returns the content of a token of a reservation or a report.
func (e *Engine) openReservation(ctx context.Context, kind tokenKind, token string) (*reservation, error) {
	plain, err := e.seal.open(ctx, kind, token)
	if err != nil {
		return nil, err
	}
	r, ok := readReservation(plain)
	if !ok {
		return nil, ErrBadToken
	}
	return r, nil
}
