package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/door/httpapi"
	"github.com/headgate/headgate/rules"
)

// rulesState is which rules are in force and how the last reload went. It is
// never changed, only replaced.
type rulesState struct {
	rules    *rules.Ruleset
	domain   string // the proxy's
	loadedAt time.Time
	failedAt time.Time
	failure  error
}

// load reads the rules, from files or from the binary.
func (a *App) load() (*rules.Ruleset, error) {
	if len(a.options.BuiltIn) == 0 {
		return rules.Load(a.options.Config.Rules...)
	}
	rs, diagnostics := rules.Parse(a.options.BuiltIn...)
	if rs == nil {
		return nil, rules.Problems(diagnostics)
	}
	return rs, nil
}

// Reload reads the rule files again and puts them in force. Everything that
// can fail comes before the one pointer that is swapped, so after an error the
// running rules are what they were. Counts survive.
func (a *App) Reload() error {
	a.reloading.Lock()
	defer a.reloading.Unlock()
	a.seen = a.fingerprint()
	return a.reload()
}

// reload needs a.reloading to be held.
func (a *App) reload() error {
	old := a.state.Load()
	rs, err := a.load()
	var domain string
	if err == nil {
		domain, err = a.proxyDomain(rs)
	}
	if err != nil {
		failed := *old
		failed.failedAt, failed.failure = a.options.Clock(), err
		a.state.Store(&failed)
		a.log.Error("rules not reloaded, the old ones stay in force", "err", firstOf(err))
		return err
	}
	a.warn(rs)
	a.state.Store(&rulesState{rules: rs, domain: domain, loadedAt: a.options.Clock()})
	if a.engine != nil {
		a.engine.SetRules(rs)
	}
	stats := rs.Stats()
	a.log.Info("rules reloaded", "rules", stats.Rules, "domains", stats.Domains, "files", stats.Files)
	return nil
}

// warn logs what is odd about the rules.
func (a *App) warn(rs *rules.Ruleset) {
	for _, d := range rs.Warnings() {
		a.log.Warn("odd rule", "at", d.Position(), "message", d.Message, "hint", d.Hint)
	}
}

// firstOf returns err in one line: the first problem and how many more.
func firstOf(err error) string {
	var problems rules.Problems
	if !errors.As(err, &problems) || len(problems) == 0 {
		return err.Error()
	}
	var first *rules.Diagnostic
	more := -1
	for i := range problems {
		if problems[i].Severity == rules.SeverityError {
			if first == nil {
				first = &problems[i]
			}
			more++
		}
	}
	switch {
	case first == nil:
		return err.Error()
	case more > 0:
		return fmt.Sprintf("%s (and %d more; see headgate check)", first, more)
	}
	return first.String()
}

// readiness answers /readyz.
func (a *App) readiness(ctx context.Context) httpapi.Readiness {
	state := a.state.Load()
	stats := state.rules.Stats()
	r := httpapi.Readiness{
		Draining: a.draining.Load(),
		Store:    a.askStore(ctx),

		StoreMayFail: a.options.Config.Store.Kind == config.InRedis,
		Rules: httpapi.RulesState{
			Domains: stats.Domains, Rules: stats.Rules, Files: stats.Files, LoadedAt: state.loadedAt,
		},
	}
	if state.failure != nil {
		r.Rules.FailedAt, r.Rules.Failure = state.failedAt, state.failure.Error()
	}
	return r
}

// askStore finds out whether the store answers, by a question that writes
// nothing.
func (a *App) askStore(ctx context.Context) error {
	_, err := a.store.Take(ctx, headgate.Op{Scope: "readyz", Limit: headgate.PerSecond(1), Cost: 1, Kind: headgate.Peek})
	return err
}
