package engine

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/soft"
	"github.com/headgate/headgate/store"
)

// settling is a reservation that is being settled.
type settling struct {
	*reservation

	engine   *Engine
	at       int64
	costOf   func(*reserved, *rules.Rule) int64 // the real cost under a rule
	out      Settlement
	accounts []*account
}

// account is what a reservation took from one key in one store. It is in one slot, and
// is settled separately.
type account struct {
	place
	from   origin
	took   bool          // something was taken
	debt   time.Duration // debt of what was taken and of the charges
	ops    []store.Op    // the differences
	gate   []store.Op    // succeeds only the first time
	closed bool
}

// plan determines the charges and refunds.
func (s *settling) plan() {
	rs, x := s.engine.Rules(), s.engine.exceptions.Load()
	for i := range s.parts {
		p := &s.parts[i]
		rule := rs.Rule(p.domain, p.rule)
		if rule != nil {
			rule = rule.ForKey(p.key).WithGiven(p.given)
		}
		foreign := p.from == fromFallback && (s.home != s.engine.home || s.engine.fallback == nil)
		counts := rule != nil && p.countsIn(rule)
		if foreign || !counts {
			s.out.Lost = append(s.out.Lost, p.rule)
			if foreign {
				continue
			}
		}
		a := s.account(p)
		a.took = a.took || p.granted > 0
		if !counts || rule.Limit.Rule().Unlimited {
			continue
		}
		_, rule = x.of(rule, p.key, x.orNow(s.at))
		a.debt = max(a.debt, debtOf(rule.Limit, p.granted))
		if op, ok := s.difference(p, rule); ok {
			a.ops = append(a.ops, op)
			a.debt = max(a.debt, debtOf(headgate.LimitOf(op.Rule), op.Cost))
		}
	}
	// Nothing was taken and there is no difference, so there is nothing to do.
	s.accounts = slices.DeleteFunc(s.accounts, func(a *account) bool { return !a.took && len(a.ops) == 0 })
	// The first account must not depend on the cost.
	slices.SortStableFunc(s.accounts, func(a, b *account) int { return cmp.Compare(nothing(a), nothing(b)) })
	for _, a := range s.accounts {
		a.gate = s.mark(a.place, a.debt, s.at)
	}
}

// countsIn reports whether rule still counts what p took, where it was taken: a rule that
// has since been given another home counts the requests of others there.
func (p *reserved) countsIn(rule *rules.Rule) bool {
	return rule.Limit.Algorithm() == p.algorithm && (p.from == fromFallback || rule.Limit.Rule().Home() == p.home)
}

// nothing orders accounts from which nothing was taken last.
func nothing(a *account) int {
	if a.took {
		return 0
	}
	return 1
}

// account returns the account of p, which it adds if needed.
func (s *settling) account(p *reserved) *account {
	for _, a := range s.accounts {
		if a.place == p.place && a.from == p.from {
			return a
		}
	}
	a := &account{place: p.place, from: p.from}
	s.accounts = append(s.accounts, a)
	return a
}

// difference returns the op that changes what p took to the cost of the request.
func (s *settling) difference(p *reserved, rule *rules.Rule) (store.Op, bool) {
	op := store.Op{Key: p.key, Scope: rule.StoreScope(), Rule: rule.Limit.Rule(), At: s.at, CountsUntil: p.countsUntil, Member: p.member, Share: rule.ShareOf(p.owner, p.weight)}
	if p.from == fromFallback {
		op.Rule = localLimit(rule).Rule()
	}
	op, ok := corrected(op, s.costOf(p, rule), p.granted, p.freshIn, elapsed(s.made, s.at))
	switch {
	case op.Kind == store.KindCharge && rule.OnLimit.Action == rules.Pass:
		op.Kind = store.KindTakeUpTo // the debt ends where that of requests does
		op.Rule = soft.Widened(op.Rule)
	case op.Kind == store.KindCharge && !op.Rule.CountRefused: // a take that does not fit would count
		op.Kind = store.KindTake // for now; see alone
	}
	return op, ok
}

// settle settles all accounts: together if the store can do that and every account
// passes, otherwise separately. The caller that passes the gate of the first account
// settles them all; no other caller does.
func (s *settling) settle(ctx context.Context) (Settlement, error) {
	if s.at >= s.until {
		s.out.Ending = Expired
		return s.out, nil
	}
	if len(s.accounts) > 1 {
		switch done, err := s.together(ctx); {
		case err != nil:
			return s.out, unavailable(err)
		case done:
			return s.out, nil
		}
	}
	var errs []error
	for i, a := range s.accounts {
		if err := s.alone(ctx, a); err != nil {
			errs = append(errs, unavailable(err))
		}
		if i == 0 && (len(errs) > 0 || a.closed) {
			break // already settled, or perhaps not yet
		}
	}
	if len(s.accounts) > 0 && s.accounts[0].closed {
		s.out.Ending = Settled
	}
	return s.out, errors.Join(errs...)
}

// together settles all accounts in one store call. It returns false if that is
// impossible: they are in several stores or slots, one has been settled, or a difference
// does not fit.
func (s *settling) together(ctx context.Context) (bool, error) {
	var ops []store.Op
	for _, a := range s.accounts {
		if a.from != s.accounts[0].from {
			return false, nil
		}
		ops = append(ops, a.gate...)
	}
	for _, a := range s.accounts {
		ops = append(ops, a.ops...)
	}
	out := make([]store.Decision, len(ops))
	switch err := store.ExecuteAll(ctx, s.engine.storeFrom(s.accounts[0].from), ops, out, store.AllOrNothing); {
	case errors.Is(err, store.ErrCrossSlot):
		return false, nil
	case err != nil:
		return false, err
	case !allAllowed(out):
		return false, nil
	}
	return true, nil
}

// alone passes the gate of one account and applies its differences. If one of these is
// refused, the gate's answers are those of a Peek.
func (s *settling) alone(ctx context.Context, a *account) error {
	db := s.engine.storeFrom(a.from)
	ops := append(slices.Clip(a.gate), a.ops...)
	out := make([]store.Decision, len(ops))
	if err := store.ExecuteAll(ctx, db, ops, out, store.AllOrNothing); err != nil {
		return err
	}
	if !allAllowed(out) {
		if a.closed = !out[0].Allowed; a.closed {
			return nil
		}
		// A difference that does not fit becomes a debt.
		if err := store.ExecuteAll(ctx, db, a.gate, out[:len(a.gate)], store.AllOrNothing); err != nil {
			return err
		}
		if a.closed = !out[0].Allowed; a.closed {
			return nil
		}
		return s.charge(ctx, db, a.ops)
	}
	return nil
}

// charge executes ops separately, into debt if needed.
func (s *settling) charge(ctx context.Context, db store.Store, ops []store.Op) error {
	for i := range ops {
		if ops[i].Kind == store.KindTake {
			ops[i].Kind = store.KindCharge
		}
	}
	out := make([]store.Decision, len(ops))
	if err := store.ExecuteAll(ctx, db, ops, out, store.Independent); err != nil {
		return err
	}
	s.out.InDebt = s.out.InDebt || !allAllowed(out)
	return nil
}

// storeFrom returns the store from which something was taken.
func (e *Engine) storeFrom(from origin) store.Store {
	if from == fromFallback {
		return e.fallback
	}
	return e.store
}

func allAllowed(out []store.Decision) bool {
	return !slices.ContainsFunc(out, func(d store.Decision) bool { return !d.Allowed })
}
