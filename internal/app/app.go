// Package app wires all packages into one process and runs it: New, Start, Reload,
// Stop. Tests run it in process.
package app

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/internal/base/lifetime"
	"github.com/headgate/headgate/internal/base/steady"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/counts/dispatch"
	"github.com/headgate/headgate/internal/counts/storing"
	"github.com/headgate/headgate/internal/counts/trial"
	"github.com/headgate/headgate/internal/decide/admission"
	"github.com/headgate/headgate/internal/decide/control"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/door"
	"github.com/headgate/headgate/internal/door/serving"
	"github.com/headgate/headgate/internal/observe/announce"
	"github.com/headgate/headgate/internal/observe/metrics"
	"github.com/headgate/headgate/internal/observe/telemetry"
	"github.com/headgate/headgate/internal/request/client"
	"github.com/headgate/headgate/internal/request/jwt"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/features"
	"github.com/headgate/headgate/internal/rules/follow"
	"github.com/headgate/headgate/internal/rules/rulefile"
	"github.com/headgate/headgate/internal/rules/xds"
	"github.com/headgate/headgate/internal/transport/overload"
)

// Options configure an App.
type Options struct {
	Config   *config.Config    // the settings. Required.
	BuiltIn  []rulefile.Source // rules in the binary; if set, no files are read or watched
	Version  string            // version of the binary, to be shown
	Logger   *slog.Logger      // receives all log lines. Required.
	LogLevel *slog.LevelVar    // the Logger's level, if it may be changed while the App runs
	// Clock is read once per request. Nil means the clock of package steady.
	Clock func() time.Time
	// System has the clocks to follow if Clock is nil; zero is the machine's.
	System       steady.System
	PollInterval time.Duration       // how often rule files are checked without a report of a change; 0 is 30 s
	Settle       time.Duration       // how long rule files must be unchanged before they are read; 0 is 2 s
	PollOnly     bool                // ignores change reports of the file system
	Backoff      xds.Backoff         // waits between connection attempts to a control plane
	Timeouts     door.Timeouts       // limits on slow callers over HTTP
	AdminMayMove bool                // uses any free port for the admin door if its default is taken
	Descriptors  int                 // limit of file descriptors; 0 is the system's
	Resources    []overload.Resource // limited resources, besides memory and descriptors
	// Backend replaces the proxy's upstream, if not nil: for the quickstart's demo.
	Backend http.Handler
	Doors   []door.Door // doors besides the built-in ones
}

// App is a running Headgate.
type App struct {
	options  Options
	log      *slog.Logger
	clients  *client.Resolver
	verifier *jwt.Verifier // nil without settings for tokens

	// Components that live from Start to Stop.
	life           lifetime.Lifetime
	store          *storing.Store
	engine         *engine.Engine
	unknownDomains *unknownDomains
	control        *control.Manager
	features       features.Workers
	doors          *serving.Doors
	queue          *dispatch.Dispatcher
	trial          *trial.Trial        // nil without a candidate
	warns          *announce.Announcer // nil unless warnings are on
	plane          *xds.Client         // nil if rules come from files
	clock          *steady.Clock       // nil if Options.Clock is set

	// For operators.
	started   time.Time // by Options.Clock
	began     time.Time // on the monotonic clock
	registry  *prometheus.Registry
	metrics   *metrics.Observer
	telemetry *telemetry.Telemetry // nil if nothing is sent
	opened    atomic.Bool          // all that the metrics are about exists
	otlp      *telemetry.Options
	events    *metrics.Stream
	live      *metrics.Live
	keys      *metrics.KeyView

	// Replaced as a whole by every reload.
	state     atomic.Pointer[rulesState]
	reloading sync.Mutex
	seen      [32]byte        // the fingerprint of the files of the last attempt
	asked     []chan struct{} // to read files, of the live rules and the candidate
	tables    rulefile.Tables

	draining atomic.Bool
	stopOnce sync.Once
	stopErr  error
}

// New reads the rules and checks everything that can be checked before a door
// opens. The error is a diagnostic.Problems if a rule file is wrong.
func New(options Options) (_ *App, err error) {
	defer func() { err = options.Config.Locate(err) }()
	if options.PollInterval <= 0 {
		options.PollInterval = 30 * time.Second
	}
	if options.Settle <= 0 {
		options.Settle = follow.DefaultSettle
	}
	if options.LogLevel == nil {
		options.LogLevel = new(slog.LevelVar) // unused
	}
	a := &App{options: options, log: options.Logger}
	if a.options.Clock == nil {
		a.clock = steady.New(a.options.System)
		a.options.Clock = a.clock.Now
	}
	a.registry, a.started = prometheus.NewRegistry(), a.options.Clock()
	a.began = time.Now()
	if err = a.prepare(); err != nil {
		return nil, err
	}
	a.otlp = a.telemetryOptions()
	if options.Config.EarlyWarning.On {
		a.warns = announce.New(options.Config.EarlyWarning.Policy)
	}
	if a.followsPlane() {
		none := new(rules.Ruleset)
		domains, err := a.doors.Domains(none)
		a.state.Store(&rulesState{Reading: follow.Reading{Rules: none}, domains: domains, waiting: true})
		return a, err
	}
	a.seen = a.fingerprint()
	rs, err := a.load()
	if err != nil {
		return nil, err
	}
	domains, err := a.doors.Domains(rs)
	if err != nil {
		return nil, err
	}
	a.warn(rs)
	a.state.Store(&rulesState{Reading: follow.Reading{Rules: rs, LoadedAt: a.options.Clock(), Succeeded: 1}, domains: domains})
	return a, nil
}

// prepare makes what needs no rules, from the settings and the files that they name.
func (a *App) prepare() (err error) {
	o := &a.options
	if a.clients, err = client.New(client.Config{TrustedProxies: o.Config.TrustedProxies, Ignored: a.tellOfIgnored}); err != nil {
		return err
	}
	if a.verifier, err = a.newVerifier(); err != nil {
		return err
	}
	if a.doors, err = serving.New(serving.Options{
		Config: o.Config, List: a.list(), Logger: a.log, Clock: o.Clock, Clients: a.clients, Life: &a.life,
		OperatorsMayMove: o.AdminMayMove, Descriptors: o.Descriptors, Resources: o.Resources,
	}); err == nil && a.followsPlane() {
		a.plane, err = a.newPlane()
	}
	return err
}

// Check returns why an App would not start with these settings and rules, as far as that shows
// before a door is opened. The rules are nil if they are not known.
func Check(c *config.Config, rs *rules.Ruleset) config.Errors {
	if errs := c.Conflicts(); len(errs) > 0 {
		return errs
	}
	a := &App{options: Options{Config: c, Clock: time.Now}, log: slog.New(slog.DiscardHandler)}
	err := a.prepare()
	if err == nil && rs != nil && !a.followsPlane() {
		_, err = a.doors.Domains(rs)
	}
	if err != nil {
		return config.Errors{c.Locate(err)}
	}
	return nil
}

// Start opens the doors and serves. It listens first, so that an address that is
// taken fails before anything else happens, with a *serving.ListenError. After an
// error there is nothing to stop.
func (a *App) Start(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			a.life.End()
			err = a.options.Config.Locate(err)
		}
	}()
	a.warnOfConfig()
	if err := a.doors.Listen(ctx); err != nil {
		return err
	}
	if err := a.openEngine(ctx); err != nil {
		return err
	}
	if a.control, err = a.store.Control(control.Options{
		Engine: a.engine, Clock: a.options.Clock, Logger: a.log,
	}); err != nil {
		return err
	}
	a.startFeatures()
	a.doors.Watch(a.opened.Load)
	a.openLive()
	a.watchClock()
	if a.verifier != nil {
		a.life.OnEnd(a.verifier.Close)
		a.verifier.Start(ctx)
	}
	a.queue = dispatch.New(dispatch.Options{
		Config: a.options.Config, File: a.store.FileFor("queue"), Engine: a.engine, Sends: a.doors.Sends, Sender: a.doors.Sender,
		Clock: a.options.Clock, Logger: a.log, Life: &a.life,
	})
	if err := a.queue.Open(a.state.Load().Rules); err != nil {
		return err
	}
	a.startWarnings()
	a.registry.MustRegister(a.selfCollector())
	if err := a.doors.Open(a.process(), func(door string) string { return a.state.Load().domains[door] }); err != nil {
		return err
	}
	a.queue.Attach()
	a.watch()
	a.doors.Serve()
	a.opened.Store(true)
	if a.plane != nil {
		a.doors.SetServing(false) // until there are rules
		a.life.Go(a.plane.Run)
		a.log.Info("waiting for rules from the control plane", "address", a.options.Config.XDS.Address)
		return nil
	}
	a.queue.Start()
	stats := a.state.Load().Rules.Stats()
	a.log.Info("rules loaded", "rules", stats.Rules, "domains", stats.Domains, "files", stats.Files)
	a.warnOfNone(stats, "pass --rules, or put rule files into ./rules")
	if c := &a.options.Config.Store; cmp.Or(c.Kind, config.InMemory) == config.InMemory && c.Memory.Snapshot == "" {
		a.log.Info("counts are kept in memory: a restart forgets them", "hint", "store.memory.snapshot keeps them in a file, a Redis for many servers")
	}
	return nil
}

// process returns what all doors get from the App.
func (a *App) process() door.Process {
	p := door.Process{
		Version: a.options.Version, Timeouts: a.options.Timeouts, Asker: admission.Asker{Engine: a.engine}, Tokens: a.tokens(),
		Ready: a.readiness, Queue: a.queue.Queue, Telemetry: a.telemetry, Register: a.registry.MustRegister, Metrics: a.metrics,
	}
	if a.trial != nil {
		p.Candidate = a.trial.Comparing.Rules
	}
	return p
}

// warnOfConfig logs warnings about the configuration.
func (a *App) warnOfConfig() {
	c := a.options.Config
	for _, exposed := range c.Exposed() {
		a.log.Warn("door is exposed to other machines", "door", exposed.Door, "why", exposed.Why, "hint", exposed.Hint)
	}
	for _, w := range c.Warnings {
		a.log.Warn("configuration warning", "setting", w.Source, "what", w.Message, "hint", w.Hint)
	}
	for _, variable := range c.Ignored {
		a.log.Warn("variable of envoyproxy/ratelimit ignored", "variable", variable.Variable, "why", variable.Why)
	}
}

// openEngine opens the engine with its store and observers.
func (a *App) openEngine(ctx context.Context) error {
	if err := a.openTelemetry(ctx); err != nil {
		return err
	}
	c := a.options.Config
	a.unknownDomains = &unknownDomains{log: a.log, unknown: c.UnknownDomain, known: func() []string { return a.engine.Rules().Domains() }}
	store, about, err := storing.Open(storing.Options{
		Config: &c.Store, Memory: c.Overload.Memory, Clock: a.options.Clock, Elapsed: a.elapsed, Logger: a.log,
		Telemetry: a.telemetry, Register: a.registry.MustRegister, Life: &a.life,
	})
	if err != nil {
		return err
	}
	a.store = store
	a.openMetrics()
	about = append(about, engine.WithUnknownDomain(c.UnknownDomain), engine.OnUnknownDomain(a.unknownDomains.seen), a.openFeatures(),
		engine.WithStart(a.metrics.Start), engine.WithRefunded(a.metrics.Refunded), engine.WithObserver(a.telemetry.Observer(a.metrics)))
	if a.warns != nil {
		a.warns.Observer().SetRules(a.state.Load().Rules)
		about = append(about, engine.WithObserver(a.warns.Observer()))
	}
	if len(c.Candidate.Rules) > 0 {
		a.trial = trial.Open(trial.Options{Config: c, Clock: a.options.Clock, Logger: a.log, Life: &a.life, Warn: a.warn, Live: a.liveFiles().Loaded(a.seen)})
		a.registry.MustRegister(a.trial.Collector())
		about = append(about, engine.WithObserver(a.trial.Comparing))
	}
	a.engine = engine.New(store.Counts, a.state.Load().Rules, about...)
	if a.trial != nil {
		a.trial.Comparing.Follow(a.engine)
	}
	return nil
}

// warnOfNone warns if there are no rules.
func (a *App) warnOfNone(stats rules.Stats, hint string) {
	if stats.Rules == 0 {
		a.log.Warn("no rules: all requests are allowed", "hint", hint)
	}
}

// Addr returns the address of a door, such as api or proxy, or an empty string if
// it is closed.
func (a *App) Addr(door string) (address string) {
	a.doors.Addresses(func(name, at string) {
		if name == door {
			address = at
		}
	})
	return address
}

// Failed receives an error when a door fails. The App should then be stopped.
func (a *App) Failed() <-chan error { return a.doors.Failed() }

// Stop drains: /readyz fails, the doors close, in-flight requests finish within
// the configured time, and counts are saved. Requests that take longer and
// upgraded connections are cut off. The error says what could not be saved or
// finished. The delay before draining ends early when ctx is done.
func (a *App) Stop(ctx context.Context) error {
	a.stopOnce.Do(func() {
		if !a.opened.Load() {
			return // nothing to stop
		}
		a.draining.Store(true)
		a.log.Info("draining")
		a.doors.SetServing(false)
		a.linger(ctx)
		a.live.Close() // otherwise the admin door could not close
		a.events.Close()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), max(a.options.Config.ShutdownTimeout, time.Millisecond))
		defer cancel()
		a.queue.Drain()
		err := a.doors.Close(ctx)
		a.stopErr = errors.Join(err, a.queue.Close(ctx), a.closeWarnings(ctx), a.store.SaveLast())
		if a.stopErr == nil { // otherwise requests may have been counted after the snapshot
			a.stopErr = a.store.SaveSecret()
		}
		a.flushTelemetry(ctx)
		a.life.End()
		a.log.Info("stopped")
	})
	return a.stopErr
}

// linger keeps serving for the configured delay.
func (a *App) linger(ctx context.Context) {
	if a.options.Config.ShutdownDelay <= 0 {
		return
	}
	timer := time.NewTimer(a.options.Config.ShutdownDelay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
