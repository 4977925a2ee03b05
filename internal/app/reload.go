package app

import (
	"errors"
	"time"

	"github.com/headgate/headgate/internal/base/diagnostic"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/follow"
	"github.com/headgate/headgate/internal/rules/rulefile"
	"github.com/headgate/headgate/internal/rules/xds"
	"github.com/headgate/headgate/internal/transport/certs"
)

// rulesState holds the active rules and the result of the last reload. It is never
// changed, only replaced.
type rulesState struct {
	follow.Reading

	domains map[string]string // by door, for callers that name none
	waiting bool              // for the first rules from a control plane

	before, held *rules.Ruleset // the previous rules, and those refused by the guard; nil if none
	rolledBack   bool
}

// load reads the rules, from files or from the binary.
func (a *App) load() (*rules.Ruleset, error) {
	if len(a.options.BuiltIn) == 0 {
		files := a.liveFiles()
		return files.Options.Load(files.Paths...)
	}
	rs, diagnostics := rulefile.Parse(a.options.BuiltIn...)
	if rs == nil {
		return nil, diagnostic.Problems(diagnostics)
	}
	return rs, nil
}

// renew reads certificates again, and the rules and the candidate as soon as nobody is
// writing their files. After an error the old ones stay in use. Counts survive. With a
// control plane, rules are not read.
func (a *App) renew() {
	a.doors.Reload()
	for _, asked := range a.asked {
		select {
		case asked <- struct{}{}:
		default: // asked already
		}
	}
	switch {
	case a.plane != nil:
		a.log.Info("nothing to reload: rules come from the control plane")
	case len(a.options.BuiltIn) > 0:
		a.reloadIfChanged(follow.Occasion{Asked: true})
	}
}

// Reload does at once what SIGHUP asks for, also while files are being written, and
// returns why the rules stay as they are.
func (a *App) Reload() error {
	a.doors.Reload()
	if a.trial != nil {
		a.trial.Reload()
	}
	if a.plane != nil {
		return nil
	}
	a.reloading.Lock()
	defer a.reloading.Unlock()
	return a.reload(follow.Occasion{Asked: true})
}

// reload reads the rule files. a.reloading must be held.
func (a *App) reload(o follow.Occasion) error {
	now := a.fingerprint()
	rs, err := a.load()
	if err == nil {
		err = a.vanished(rs)
	}
	if err == nil && (o.Changing || a.fingerprint() != now) {
		if err := a.inPart(rs); err != nil {
			return a.keepRules(err, nil) // read again, as a.seen stays
		}
	}
	a.seen = now
	return a.swap(rs, err)
}

// vanished returns an error if all rule files are gone. An unmounted volume looks
// like an empty folder, and a control plane that was just restarted may have no
// rules yet: neither may remove all limits.
func (a *App) vanished(rs *rules.Ruleset) error {
	if rs.Stats().Files > 0 || a.state.Load().Rules.Stats().Files == 0 {
		return nil
	}
	if a.plane != nil {
		return &config.SourceError{
			Source: "rules", Message: "the control plane no longer has any resources",
			Hint: "to remove all limits, send a resource without descriptors",
		}
	}
	return &config.SourceError{
		Source: "rules", Message: "no rule files are left",
		Hint: "to remove all limits, keep a file with a domain and \"limits: []\"",
	}
}

// swap activates rs, unless err is set or the guard refuses it. a.reloading must be
// held.
func (a *App) swap(rs *rules.Ruleset, err error) error {
	if err == nil {
		err = a.guardRules(rs)
	}
	if _, held := errors.AsType[*shrunkError](err); held {
		return a.keepRules(err, rs)
	}
	return a.enforce(rs, err)
}

// keepRules keeps the active rules and logs why. held are rules that an operator
// may still accept, or nil.
func (a *App) keepRules(err error, held *rules.Ruleset) error {
	next := *a.state.Load()
	next.FailedAt, next.Failure, next.held = a.options.Clock(), err, held
	next.Failed++
	a.state.Store(&next)
	a.log.Error("rules not reloaded: the previous rules stay active", "err", follow.FirstOf(err))
	return err
}

// enforce activates rs without asking the guard. a.reloading must be held.
func (a *App) enforce(rs *rules.Ruleset, err error) error {
	var domains map[string]string
	if err == nil {
		domains, err = a.doors.Domains(rs)
	}
	if err == nil && a.engine != nil {
		err = a.queue.Open(rs)
	}
	if err != nil {
		return a.keepRules(err, nil)
	}
	a.warn(rs)
	next := *a.state.Load()
	if !next.waiting {
		next.before = next.Rules
	}
	next.Rules, next.domains, next.waiting, next.held, next.rolledBack = rs, domains, false, nil, false
	next.LoadedAt, next.Failure = a.options.Clock(), nil
	next.Succeeded++
	a.state.Store(&next)
	if a.engine != nil {
		a.metrics.SetRules(rs, a.options.Clock())
		if a.warns != nil {
			a.warns.Observer().SetRules(rs)
		}
		if a.control != nil {
			a.control.SetRules(rs)
		}
		a.queue.Attach()
		a.engine.SetRules(rs)
		a.store.SetRules(rs)
		a.queue.Start()
		a.restartTrial()
	}
	stats := rs.Stats()
	a.log.Info("rules reloaded", "rules", stats.Rules, "domains", stats.Domains, "files", stats.Files)
	return nil
}

// restartTrial starts a new comparison with the candidate, as the live rules have
// changed.
func (a *App) restartTrial() {
	switch {
	case a.trial == nil:
	case a.plane != nil:
		a.trial.Restart(nil)
	default:
		loaded := a.liveFiles().Loaded(a.seen)
		a.trial.Restart(&loaded)
	}
}

// warn logs warnings about the rules, and which tables they have.
func (a *App) warn(rs *rules.Ruleset) {
	for _, t := range rs.Tables() {
		a.log.Info("table read", "file", t.File, "rows", t.Rows.Len(), "limits", len(t.Limits), "bytes", t.Rows.Size(), "took", t.Took.String())
	}
	for _, l := range rs.Lists() {
		if files := l.Files(); len(files) > 0 {
			a.log.Info("list read", "domain", l.Domain, "list", l.Rule().Name, "mode", l.Mode.String(), "files", files, "entries", l.Entries(), "bytes", l.Size(), "took", l.Took.String())
		}
	}
	for _, d := range rs.Warnings() {
		a.log.Warn("rule warning", "at", d.Position(), "message", d.Message, "hint", d.Hint)
	}
	if rs.HasConcurrent() {
		a.log.Info("concurrency rules do not apply to gRPC, /json and /v1/auth, where the end of a request is unknown")
	}
	a.warnOfPlainDigests(rs)
	a.warnOfRegions(rs)
}

// warnOfRegions logs which rules say that regions share their limit, and cannot.
func (a *App) warnOfRegions(rs *rules.Ruleset) {
	here := &a.options.Config.Store.Regions
	for _, r := range rs.Rules() {
		switch rule := r.Limit.Rule(); {
		case rule.Home() != "" && here.Name == "":
			a.log.Warn("this server counts the limit itself instead of its home, because regions.name is not set", "domain", r.Domain, "rule", r.Name, "home", rule.Home())
		case rule.Shared() && len(here.Peers) == 0:
			a.log.Warn("regions do not share this limit, because regions.name and regions.peers are not set", "domain", r.Domain, "rule", r.Name)
		}
	}
}

// warnOfPlainDigests warns once per load if keys are hashed without a secret.
func (a *App) warnOfPlainDigests(rs *rules.Ruleset) {
	if a.options.Config.RuleOptions.KeySecret != "" {
		return
	}
	for _, r := range rs.Rules() {
		if r.HashesKey() {
			a.log.Warn("keys are hashed without a secret: digests can be reversed by guessing",
				"rule", r.Name, "domain", r.Domain, "at", r.Position(), "hint", "set keys.secret_file")
			return
		}
	}
}

// lastReading is how long the stop waits for rules that are being read.
const lastReading = time.Second

// watch reloads the rules and the candidate when their files change, until the App
// stops.
func (a *App) watch() {
	if len(a.options.BuiltIn) == 0 && a.plane == nil {
		a.watchFiles(a.liveFiles(), a.reloadIfChanged)
	}
	if a.trial != nil {
		a.watchFiles(a.trial.Files(), a.trial.ReloadIfChanged)
	}
}

func (a *App) watchFiles(files follow.Files, changed func(follow.Occasion)) {
	if len(files.Paths) == 0 {
		return
	}
	asked := make(chan struct{}, 1)
	a.asked = append(a.asked, asked)
	stop := follow.Start(follow.Options{
		Files: files, Changed: changed, Asked: asked, Settle: a.options.Settle, Poll: a.options.PollInterval, PollOnly: a.options.PollOnly, Log: a.log,
	})
	a.life.OnEnd(func() { stop(a.awaitReading) })
}

// liveFiles returns the files of the live rules.
func (a *App) liveFiles() follow.Files {
	options := a.options.Config.RuleOptions
	options.Tables = &a.tables
	return follow.Files{Paths: a.options.Config.Rules, Options: options}
}

// fingerprint returns the fingerprint of the live rules' files.
func (a *App) fingerprint() [32]byte { return a.liveFiles().Fingerprint() }

// awaitReading waits until a running load of rules has ended, but not for long: a
// file system may hang, and the counts must still be saved.
func (a *App) awaitReading(done <-chan struct{}) {
	timer := time.NewTimer(lastReading)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		a.log.Warn("stopped waiting for rules that are still being read", "files", a.options.Config.Rules)
	}
}

// reloadIfChanged reloads if the files have changed since the last attempt, failed
// or not, or if somebody asked for it.
func (a *App) reloadIfChanged(o follow.Occasion) {
	a.reloading.Lock()
	defer a.reloading.Unlock()
	if !o.Asked && !a.liveFiles().Changed(a.seen) {
		return
	}
	_ = a.reload(o) // already logged, and shown by /readyz
}

// followsPlane reports whether rules come from a control plane.
func (a *App) followsPlane() bool {
	return a.options.Config.RulesFrom == config.FromXDS && len(a.options.BuiltIn) == 0
}

// newPlane returns the client of the control plane.
func (a *App) newPlane() (*xds.Client, error) {
	c := &a.options.Config.XDS
	o := xds.Options{
		Address: c.Address, NodeID: c.NodeID, Apply: a.applyPlane, Logger: a.log,
		Backoff: a.options.Backoff,
	}
	if c.TLS {
		o.TLS = &certs.ClientFiles{CA: c.CA, Cert: c.Cert, Key: c.Key, ServerName: c.ServerName}
	}
	client, err := xds.New(o)
	if err != nil {
		return nil, &config.SourceError{Source: "xds", Message: err.Error()}
	}
	return client, nil
}

// applyPlane activates a snapshot of the control plane, or changes nothing.
func (a *App) applyPlane(sources []rulefile.Source) error {
	a.reloading.Lock()
	defer a.reloading.Unlock()
	first := a.state.Load().waiting
	rs, diagnostics := a.options.Config.RuleOptions.Parse(sources...)
	var err error
	if rs == nil {
		err = diagnostic.Problems(diagnostics)
	}
	if err == nil {
		err = a.vanished(rs)
	}
	if err := a.swap(rs, err); err != nil {
		return err
	}
	a.warnOfNone(rs.Stats(), "the control plane sent none")
	if first {
		a.doors.SetServing(true)
		if a.draining.Load() { // it may have started just now
			a.doors.SetServing(false)
		}
	}
	return nil
}
