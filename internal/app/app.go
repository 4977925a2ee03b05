// Package app wires everything into one process and runs it: New, Start,
// Reload, Stop. It is the only package that sees every other, and a test can
// run it in process.
package app

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/base/steady"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/decide/control"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/door"
	"github.com/headgate/headgate/internal/request/client"
	"github.com/headgate/headgate/internal/request/jwt"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/follow"
	"github.com/headgate/headgate/internal/rules/rulefile"
	"github.com/headgate/headgate/internal/rules/xds"
	"github.com/headgate/headgate/internal/transport/certs"
	"github.com/headgate/headgate/internal/transport/oneport"
	"github.com/headgate/headgate/internal/transport/overload"
	"github.com/headgate/headgate/store/redis"
)

// Options are what an App is made from.
type Options struct {
	// Config is how to run. Required.
	Config *config.Config
	// BuiltIn are rules that are part of the binary. If there are any, no
	// files are read or watched.
	BuiltIn []rulefile.Source
	// Version is that of the binary, for those who ask.
	Version string
	// Logger hears of everything an operator should know. Required.
	Logger *slog.Logger
	// LogLevel is what the Logger goes by, if that may be changed while the
	// App runs.
	LogLevel *slog.LevelVar
	// Clock is read once per request, and everything else goes by it; nil means
	// one that follows the machine's clocks and never goes back. See System.
	Clock func() time.Time
	// System is what that clock goes by, for tests that set the wall clock; the
	// zero System is the machine's. Clock must be nil.
	System steady.System
	// PollInterval is how often rule files are looked at in case the file
	// system reports no changes; 0 means 30 s.
	PollInterval time.Duration
	// Settle is how long a rule file that is written where it lies has to be
	// quiet before it is read; 0 means 2 s.
	Settle time.Duration
	// PollOnly does without what the file system reports, as if it reported
	// nothing.
	PollOnly bool
	// Backoff is how long to wait before connecting anew to a control plane.
	Backoff xds.Backoff
	// Timeouts bound how slow callers over HTTP may be.
	Timeouts door.Timeouts
	// AdminMayMove opens the admin door on any free port of this machine if its
	// default address is taken.
	AdminMayMove bool
	// Descriptors is how many file descriptors there may be; 0 asks the system.
	Descriptors int
	// Resources are what may run short, besides memory and descriptors.
	Resources []overload.Resource
	// Backend, if not nil, is served by this process itself in place of the
	// proxy's upstream: the demo of the quickstart.
	Backend http.Handler
	// Doors are further doors, besides those that are part of every Headgate.
	Doors []door.Door
}

// App is a running Headgate.
type App struct {
	options  Options
	log      *slog.Logger
	clients  *client.Resolver
	verifier *jwt.Verifier // nil if no token is good

	// Long-lived components: there from Start to Stop.
	store       headgate.Store
	shared      *redis.Store // the store, behind its guards; nil without Redis
	secrets     *redis.Secrets
	storeHealth storeHealth
	engine      *engine.Engine
	control     *control.Manager
	kinds       []door.Door // all that there are
	doors       []*openDoor
	port        *oneport.Port // that several of them share; nil without
	common      door.Common
	plane       *xds.Client // nil if rules come from files
	failures    chan error
	clock       *steady.Clock // nil if the caller gave one of its own

	certificates map[string]*certs.Server // by door
	save         func() error             // the counts, to disk; nil if nobody asked
	snapshots    snapshots
	cleanup      []func() // run last to first

	observation
	queueing
	capacity capacity
	ours     func(netip.Addr) bool // reports whether an address is this machine's own

	candidate   candidateState
	tokenSecret tokenSecret

	// Swapped as a whole on every reload.
	state     atomic.Pointer[rulesState]
	reloading sync.Mutex
	seen      [32]byte // the fingerprint of the files of the last attempt

	draining atomic.Bool
	stopOnce sync.Once
	stopErr  error
}

// New reads the rules and checks everything that can be checked before a door
// is opened. The error is a diagnostic.Problems if a rule file is wrong.
func New(options Options) (_ *App, err error) {
	defer func() { err = options.Config.Locate(err) }()
	if options.PollInterval <= 0 {
		options.PollInterval = 30 * time.Second
	}
	if options.Settle <= 0 {
		options.Settle = follow.DefaultSettle
	}
	if options.LogLevel == nil {
		options.LogLevel = new(slog.LevelVar) // that nobody reads
	}
	a := &App{options: options, log: options.Logger, failures: make(chan error, 16), ours: netip.Addr.IsLoopback}
	a.openClock()
	a.registry, a.started = prometheus.NewRegistry(), a.options.Clock()
	a.began = time.Now()
	if a.clients, err = client.New(client.Config{TrustedProxies: options.Config.TrustedProxies}); err != nil {
		return nil, err
	}
	if a.verifier, err = a.newVerifier(); err != nil {
		return nil, err
	}
	a.kinds = a.list()
	if err := a.checkDoors(); err != nil {
		return nil, err
	}
	if err := a.loadCertificates(); err != nil {
		return nil, err
	}
	if a.otlp, err = a.telemetryOptions(); err != nil {
		return nil, err
	}
	if a.followsPlane() {
		if a.plane, err = a.newPlane(); err != nil {
			return nil, err
		}
		none := new(rules.Ruleset)
		domains, err := a.domains(none)
		a.state.Store(&rulesState{reading: reading{rules: none}, domains: domains, waiting: true})
		return a, err
	}
	a.seen = a.fingerprint()
	rs, err := a.load()
	if err != nil {
		return nil, err
	}
	domains, err := a.domains(rs)
	if err != nil {
		return nil, err
	}
	a.warn(rs)
	a.state.Store(&rulesState{reading: reading{rules: rs, loadedAt: a.options.Clock(), succeeded: 1}, domains: domains})
	return a, nil
}

// Start opens the doors and begins to serve. The addresses come first, so that
// one that is taken stops everything before anything has happened; the error
// is then a *ListenError. After an error there is nothing to stop.
func (a *App) Start(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			a.release()
			err = a.options.Config.Locate(err)
		}
	}()
	a.warnOfConfig()
	a.divide()
	if err := a.listen(ctx); err != nil {
		return err
	}
	if err := a.openEngine(ctx); err != nil {
		return err
	}
	if err := a.openControl(); err != nil {
		return err
	}
	a.openOverload()
	a.openRooms()
	a.openLive()
	a.watchClock()
	a.verifyTokens(ctx)
	if err := a.openQueue(a.state.Load().rules); err != nil {
		return err
	}
	if err := a.openServers(); err != nil {
		return err
	}
	a.watch()
	a.serve()
	a.opened.Store(true)
	a.startQueue()
	if a.plane != nil {
		a.sayUnhealthy() // until there are rules
		a.followPlane()
		return nil
	}
	stats := a.state.Load().rules.Stats()
	a.log.Info("rules loaded", "rules", stats.Rules, "domains", stats.Domains, "files", stats.Files)
	a.warnOfNone(stats, "name some with --rules, or put them into ./rules")
	return nil
}

// warnOfConfig says what in the configuration somebody should look at.
func (a *App) warnOfConfig() {
	c := a.options.Config
	for _, exposed := range c.Exposed() {
		a.log.Warn("a door is exposed to other machines", "door", exposed.Door, "why", exposed.Why, "hint", exposed.Hint)
	}
	for _, w := range c.Warnings {
		a.log.Warn("check the configuration", "setting", w.Source, "what", w.Message, "hint", w.Hint)
	}
	for _, variable := range c.Ignored {
		a.log.Warn("a variable of envoyproxy/ratelimit changes nothing", "variable", variable.Variable, "why", variable.Why)
	}
}

// openEngine opens the engine, and what it needs: where counts are kept, and what
// sees its decisions.
func (a *App) openEngine(ctx context.Context) error {
	if err := a.openTelemetry(ctx); err != nil {
		return err
	}
	store, about, err := a.openStore()
	if err != nil {
		return err
	}
	about = append(about, engine.WithUnknownDomain(a.options.Config.UnknownDomain))
	about = append(about, a.openMetrics())
	about = append(about, a.openCandidate()...)
	a.store = a.telemetry.Store(store, a.options.Config.Store.Kind.String())
	a.engine = engine.New(a.store, a.state.Load().rules, about...)
	a.followEngine()
	return nil
}

// warnOfNone says so if there are no rules.
func (a *App) warnOfNone(stats rules.Stats, hint string) {
	if stats.Rules == 0 {
		a.log.Warn("there are no rules: everything is allowed", "hint", hint)
	}
}

// Addr returns the address that a door listens on, such as api or proxy, or an
// empty string if it is closed.
func (a *App) Addr(door string) string {
	for _, d := range a.doors {
		if d.Name == door {
			return d.listener.Addr().String()
		}
	}
	return ""
}

// Failed is told when a door breaks down by itself. The App should then be
// stopped.
func (a *App) Failed() <-chan error { return a.failures }

// Stop drains: /readyz says no, the doors close, requests in flight are
// finished, as long as the configuration allows, and the counts are saved.
// Requests that have not ended by then, and upgraded connections, are cut off.
// The error is about what could not be saved or finished. When ctx is done the
// delay before draining ends.
func (a *App) Stop(ctx context.Context) error {
	a.stopOnce.Do(func() {
		a.draining.Store(true)
		a.log.Info("draining")
		a.sayUnhealthy()
		a.linger(ctx)
		a.endStreams()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), max(a.options.Config.ShutdownTimeout, time.Millisecond))
		defer cancel()
		a.drainQueue()
		err := a.closeDoors(ctx)
		a.stopErr = errors.Join(err, a.closeQueue(ctx), a.saveCounts())
		if a.stopErr == nil { // else something may have been counted after the snapshot
			a.stopErr = a.tokenSecret.save()
		}
		a.flushTelemetry(ctx)
		a.release()
		a.log.Info("stopped")
	})
	return a.stopErr
}

// linger goes on as before for a while, if so configured.
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

// release undoes Start, last to first.
func (a *App) release() {
	for _, f := range slices.Backward(a.cleanup) {
		f()
	}
	a.cleanup = nil
}
