package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/base/diagnostic"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/door"
	"github.com/headgate/headgate/internal/door/admin"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/rulefile"
)

// reading says which rules have been read, the live ones or a candidate's, and
// how that went.
type reading struct {
	rules    *rules.Ruleset // nil if there have been none that are right
	loadedAt time.Time
	failedAt time.Time // of the last failure
	failure  error     // nil if the last attempt went well

	succeeded, failed uint64
}

// told is what the admin door says of it.
func (r *reading) told(source string) admin.Loaded {
	return admin.Loaded{Source: source, Rules: r.rules, At: r.loadedAt, Succeeded: r.succeeded, Failed: r.failed, Problem: firstOf(r.failure)}
}

// rulesState is which rules are in force and how the last reload went. It is
// never changed, only replaced.
type rulesState struct {
	reading

	domains map[string]string // of doors whose callers name none
	waiting bool              // for the first rules of a control plane

	// before is what was in force before these, held what the guard keeps from
	// being; nil if there is none.
	before, held *rules.Ruleset
	rolledBack   bool
}

// load reads the rules, from files or from the binary.
func (a *App) load() (*rules.Ruleset, error) {
	if len(a.options.BuiltIn) == 0 {
		return a.options.Config.RuleOptions.Load(a.options.Config.Rules...)
	}
	rs, diagnostics := rulefile.Parse(a.options.BuiltIn...)
	if rs == nil {
		return nil, diagnostic.Problems(diagnostics)
	}
	return rs, nil
}

// Reload reads the rule files again and puts them in force. Everything that
// can fail comes before the one pointer that is swapped, so after an error the
// running rules are what they were. Counts survive.
//
// Certificates and the candidate are read again too; one that is wrong leaves
// the old one in use.
//
// Rules of a control plane come by themselves; for them it does nothing.
func (a *App) Reload() error {
	a.reloadCertificates()
	a.reloadCandidate()
	if a.plane != nil {
		a.log.Info("nothing to reload, rules come from the control plane")
		return nil
	}
	a.reloading.Lock()
	defer a.reloading.Unlock()
	a.seen = a.fingerprint()
	return a.reload()
}

// reload needs a.reloading to be held.
func (a *App) reload() error {
	rs, err := a.load()
	if err == nil {
		err = a.vanished(rs)
	}
	return a.swap(rs, err)
}

// vanished is the error that there are no rule files any more. A volume that
// is not mounted looks like an empty folder, and a control plane that has just
// been restarted may have nothing yet, which is no reason to lift all limits.
func (a *App) vanished(rs *rules.Ruleset) error {
	if rs.Stats().Files > 0 || a.state.Load().rules.Stats().Files == 0 {
		return nil
	}
	if a.plane != nil {
		return &config.SourceError{
			Source: "rules", Message: "the control plane has no resources any more",
			Hint: "to lift all limits, send one without descriptors",
		}
	}
	return &config.SourceError{
		Source: "rules", Message: "there are no rule files any more",
		Hint: "to lift all limits, leave a file with a domain and \"limits: []\"",
	}
}

// swap puts rs in force, unless err says what is wrong with it. It needs
// a.reloading to be held.
func (a *App) swap(rs *rules.Ruleset, err error) error {
	if err == nil {
		err = a.guardRules(rs)
	}
	if _, held := errors.AsType[*shrunkError](err); held {
		return a.keepRules(err, rs)
	}
	return a.enforce(rs, err)
}

// keepRules leaves the rules in force as they are and says why. held are those
// that somebody may still accept.
func (a *App) keepRules(err error, held *rules.Ruleset) error {
	next := *a.state.Load()
	next.failedAt, next.failure, next.held = a.options.Clock(), err, held
	next.failed++
	a.state.Store(&next)
	a.log.Error("rules not reloaded, the old ones stay in force", "err", firstOf(err))
	return err
}

// enforce puts rs in force, however much smaller it is. It needs a.reloading to
// be held.
func (a *App) enforce(rs *rules.Ruleset, err error) error {
	var domains map[string]string
	if err == nil {
		domains, err = a.domains(rs)
	}
	if err == nil && a.engine != nil {
		err = a.openQueue(rs)
	}
	if err != nil {
		return a.keepRules(err, nil)
	}
	a.warn(rs)
	next := *a.state.Load()
	if !next.waiting {
		next.before = next.rules
	}
	next.rules, next.domains, next.waiting, next.held, next.rolledBack = rs, domains, false, nil, false
	next.loadedAt, next.failure = a.options.Clock(), nil
	next.succeeded++
	a.state.Store(&next)
	if a.engine != nil {
		a.metrics.SetRules(rs, a.options.Clock())
		if a.control != nil {
			a.control.SetRules(rs)
		}
		a.engine.SetRules(rs)
		a.startQueue()
		a.compareAnew()
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
	if rs.HasConcurrent() {
		a.log.Info("rules with concurrency do not apply to requests over gRPC, /json and /v1/auth: nobody says there when a request has ended")
	}
	a.warnOfPlainDigests(rs)
}

// warnOfPlainDigests warns, once a reading, of keys that are hashed without a
// secret.
func (a *App) warnOfPlainDigests(rs *rules.Ruleset) {
	if a.options.Config.RuleOptions.KeySecret != "" {
		return
	}
	for _, r := range rs.Rules() {
		if r.HashesKey() {
			a.log.Warn("keys are hashed without a secret: who sees a digest can try values against it",
				"rule", r.Name, "domain", r.Domain, "at", r.Position(), "hint", "set keys.secret_file")
			return
		}
	}
}

// firstOf returns err in one line: the first problem and how many more. Of nil
// that is empty.
func firstOf(err error) string {
	if err == nil {
		return ""
	}
	var problems diagnostic.Problems
	if !errors.As(err, &problems) || len(problems) == 0 {
		return err.Error()
	}
	var first *diagnostic.Diagnostic
	more := -1
	for i := range problems {
		if problems[i].Severity == diagnostic.SeverityError {
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
func (a *App) readiness(ctx context.Context) door.Readiness {
	state := a.state.Load()
	stats := state.rules.Stats()
	r := door.Readiness{
		Draining: a.draining.Load(),
		Store:    a.askStore(ctx),

		StoreMayFail: a.options.Config.Store.Kind == config.InRedis,
		Rules: door.RulesState{
			Domains: stats.Domains, Rules: stats.Rules, Files: stats.Files, LoadedAt: state.loadedAt,
			Waiting: state.waiting, Succeeded: state.succeeded, Failed: state.failed,
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
	if err := a.storeHealth.trouble(); err != nil {
		return err // a question that writes nothing would be answered
	}
	_, err := a.store.Take(ctx, headgate.Op{Scope: "readyz", Limit: headgate.PerSecond(1), Cost: 1, Kind: headgate.Peek})
	return err
}
