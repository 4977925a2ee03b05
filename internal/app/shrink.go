package app

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/rules"
)

// shrunkError is the error that the guard refused a reload.
type shrunkError struct{ lost lostRules }

func (e *shrunkError) Error() string {
	return fmt.Sprintf("%s; reload.guard refused the reload (to apply it anyway: headgate rules accept)", &e.lost)
}

// lostRules describes what a reload removes.
type lostRules struct {
	domains   []string
	rules, of int
	example   string            // one of the rules
	shrunk    []rules.Shrinkage // lists and tables
}

func (l *lostRules) String() string {
	var parts []string
	if l.rules > 0 {
		parts = append(parts, fmt.Sprintf("%d of %d rules are gone, such as %s", l.rules, l.of, l.example))
	}
	if len(l.domains) > 0 {
		parts = append(parts, fmt.Sprintf("%d domains are gone, such as %q", len(l.domains), l.domains[0]))
	}
	if len(l.shrunk) > 0 {
		parts = append(parts, l.shrunk[0].String())
	}
	if more := len(l.shrunk) - 1; more > 0 {
		parts = append(parts, fmt.Sprintf("%d more lists or tables are shorter", more))
	}
	return strings.Join(parts, ", and ")
}

// cutOff reports whether a list or table is probably cut off. Unlike a rule that is gone,
// that is seldom on purpose, and nobody reviews it.
func (l *lostRules) cutOff() bool {
	return slices.ContainsFunc(l.shrunk, func(s rules.Shrinkage) bool { return !s.Gone })
}

// lostFrom compares rules by domain and name.
func lostFrom(before, after *rules.Ruleset) (l lostRules) {
	stay := map[[2]string]bool{}
	for _, r := range after.Rules() {
		stay[[2]string{r.Domain, r.Name}] = true
	}
	for _, r := range before.Rules() {
		l.of++
		if stay[[2]string{r.Domain, r.Name}] {
			continue
		}
		if l.rules++; l.rules == 1 {
			l.example = fmt.Sprintf("%q of %s", r.Name, r.Domain)
		}
	}
	domains := after.Domains()
	for _, d := range before.Domains() {
		if !slices.Contains(domains, d) {
			l.domains = append(l.domains, d)
		}
	}
	return l
}

// guardRules warns, or returns an error if so configured, if rs lacks a domain or
// more than a share of the active rules. A file that was cut off between two rules
// is valid, and just has fewer. It also returns an error if a list or a table has lost
// more than that share of its entries: a warning would come after all that was blocked
// has passed.
func (a *App) guardRules(rs *rules.Ruleset) error {
	state, c := a.state.Load(), &a.options.Config.Reload
	if state.waiting || c.Guard == config.GuardOff {
		return nil
	}
	lost := lostFrom(state.Rules, rs)
	lost.shrunk = rules.Shrunk(state.Rules, rs, c.Share())
	many := len(lost.domains) > 0 || int64(lost.rules)*100 > c.Share()*int64(lost.of)
	if !many && len(lost.shrunk) == 0 {
		return nil
	}
	if c.Guard == config.GuardRefuse || lost.cutOff() {
		return &shrunkError{lost}
	}
	a.log.Warn("reload removes rules", "lost", lost.String(), "hint", "to restore them: headgate rules rollback")
	return nil
}

// inPart returns an error if rs, whose files are still changing, lacks anything that the
// active rules have: it may be a part of what is being written.
func (a *App) inPart(rs *rules.Ruleset) error {
	state := a.state.Load()
	if state.waiting {
		return nil
	}
	lost := lostFrom(state.Rules, rs)
	lost.shrunk = rules.Shrunk(state.Rules, rs, 0)
	if lost.rules == 0 && len(lost.domains) == 0 && len(lost.shrunk) == 0 {
		return nil
	}
	return fmt.Errorf("%s, and files are still changing; they are read again when they have been quiet", &lost)
}

// rollBack activates the previous rules again; a second call undoes it. Unchanged
// files are not read again unless a reload is requested.
func (a *App) rollBack() error {
	a.reloading.Lock()
	defer a.reloading.Unlock()
	before, back := a.state.Load().before, !a.state.Load().rolledBack
	if before == nil {
		return errors.New("no earlier rules to roll back to: nothing has been reloaded yet")
	}
	if err := a.enforce(before, nil); err != nil {
		return err
	}
	next := *a.state.Load()
	next.rolledBack = back
	a.state.Store(&next)
	a.log.Warn("rules rolled back by an operator until the files change", "rules", next.Rules.Stats().Rules)
	return nil
}

// acceptRules activates the rules that the guard refused last.
func (a *App) acceptRules() error {
	a.reloading.Lock()
	defer a.reloading.Unlock()
	held := a.state.Load().held
	if held == nil {
		return errors.New("no refused reload to accept")
	}
	a.log.Warn("refused reload accepted by an operator")
	err := a.enforce(held, nil)
	if err == nil && a.plane != nil {
		a.plane.Overrule()
	}
	return err
}
