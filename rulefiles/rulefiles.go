package rulefiles

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/decide/admission"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/request/client"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/follow"
	"github.com/headgate/headgate/internal/rules/rulefile"
	"github.com/headgate/headgate/store"
)

// poll is the interval for checking files where the file system reports no changes.
const poll = 30 * time.Second

// Rules are the rules of some files. Make them with [Open]. They are safe for
// concurrent use.
type Rules struct {
	settings

	files   follow.Files
	engine  *engine.Engine
	working working
	clients *client.Resolver
	limiter *headgate.Limiter
	asker   admission.Asker
	told    atomic.Int64 // when a failing store was last logged, in seconds

	reading sync.Mutex // held while rules are read
	seen    [32]byte   // fingerprint of the files last read
	stop    func(wait func(done <-chan struct{}))
}

// Open reads the rules from files, and from all .yaml and .yml files in folders, as
// the server does, and follows them until [Rules.Close]. Counts are kept in store,
// which the caller closes.
//
// The error lists every mistake in the files, one per line with its place. It is also
// an error if there are no rules, so that no service starts unlimited by mistake.
func Open(store store.Store, paths []string, options ...Option) (*Rules, error) {
	r := &Rules{settings: settings{log: slog.Default()}}
	for _, o := range options {
		o(&r.settings)
	}
	if n := len(r.secret); n > 0 && n < rules.MinKeySecret {
		return nil, fmt.Errorf("rulefiles: the key secret has %d bytes, and needs at least %d: openssl rand -hex 32 makes one", n, rules.MinKeySecret)
	}
	var clock []headgate.Option
	if r.clock != nil {
		clock = append(clock, headgate.WithClock(r.clock))
	}
	r.limiter = headgate.New(store, clock...)
	var err error
	if err = r.limiter.Validate(); err != nil {
		return nil, fmt.Errorf("rulefiles: %w", err)
	}
	if r.clients, err = client.New(client.Config{TrustedProxies: r.trusted}); err != nil {
		return nil, fmt.Errorf("rulefiles: %w", err)
	}
	r.files = follow.Files{Paths: slices.Clone(paths), Options: rulefile.Options{NoTokens: true, KeySecret: r.secret, Tables: new(rulefile.Tables)}}
	r.seen = r.files.Fingerprint()
	rs, err := r.load()
	if err != nil {
		return nil, err
	}
	var own []engine.Option
	if r.fallback != nil {
		own = append(own, engine.WithFallback(r.fallback))
	}
	r.engine = engine.New(store, rs, append(own, r.openFeatures(store))...)
	r.asker = admission.Asker{
		Engine: r.engine, Clients: r.clients, Clock: r.limiter.Caller().Now, Logger: r.log, Failed: r.report, Patience: time.Second,
		Wait: func(ctx context.Context, d time.Duration, _ bool) error { return r.limiter.Caller().Sleep(ctx, d) },
	}
	r.startFeatures(rs)
	r.stop = follow.Start(follow.Options{Files: r.files, Changed: r.changed, Settle: follow.DefaultSettle, Poll: poll, Log: r.log})
	return r, nil
}

// load reads the files and logs warnings about them.
func (r *Rules) load() (*rules.Ruleset, error) {
	rs, err := r.files.Options.Load(r.files.Paths...)
	if err != nil {
		return nil, err
	}
	switch domains := rs.Domains(); {
	case len(domains) == 0:
		// A volume that is not mounted looks like an empty folder.
		return nil, errors.New(`rulefiles: no rules found: for no limits, use a file with a domain and "limits: []"`)
	case r.domain == "" && len(domains) > 1:
		return nil, fmt.Errorf("rulefiles: the rules have several domains, %q: choose one with WithDomain", domains)
	case r.domain == "":
		r.domain = domains[0] // on Open; fixed from then on
	case !slices.Contains(domains, r.domain):
		return nil, fmt.Errorf("rulefiles: no rules for the domain %q, only for %q", r.domain, domains)
	}
	for _, d := range rs.Warnings() {
		r.log.Warn("rule warning", "at", d.Position(), "message", d.Message, "hint", d.Hint)
	}
	return rs, nil
}

// changed reloads the files if they differ from the last attempt.
func (r *Rules) changed(follow.Occasion) {
	r.reading.Lock()
	defer r.reading.Unlock()
	if r.files.Changed(r.seen) {
		r.seen = r.files.Fingerprint()
		_ = r.reload(cutOff) // it logs the error
	}
}

// mostLost is the share of a list or a table, in percent, that it may lose when its file
// changes.
const mostLost = 50

// cutOff returns an error if a file of after is probably cut off.
func cutOff(before, after *rules.Ruleset) error {
	for _, lost := range rules.Shrunk(before, after, mostLost) {
		if !lost.Gone {
			return fmt.Errorf("rulefiles: %s: to apply it anyway, call Reload or restart", lost)
		}
	}
	return nil
}

// Reload reads the files now. After an error the old rules stay active. Rules keep
// their counts by name.
//
// Unlike a reload because a file has changed, it accepts a list or a table that has lost
// more than half of its entries.
func (r *Rules) Reload() error {
	r.reading.Lock()
	defer r.reading.Unlock()
	r.seen = r.files.Fingerprint()
	return r.reload(func(_, _ *rules.Ruleset) error { return nil })
}

// reload needs r.reading to be held. guard is asked before the new rules become active.
func (r *Rules) reload(guard func(before, after *rules.Ruleset) error) error {
	rs, err := r.load()
	if err == nil {
		err = guard(r.engine.Rules(), rs)
	}
	if err != nil {
		r.log.Error("rules not reloaded: the previous rules stay active", "err", err)
		return err
	}
	r.engine.SetRules(rs)
	r.startFeatures(rs)
	stats := rs.Stats()
	r.log.Info("rules reloaded", "rules", stats.Rules, "files", stats.Files)
	return nil
}

// Close stops following the files and waits for a running reload. The rules can
// still be used, but no further bans start. Call it once.
func (r *Rules) Close() error {
	r.stop(func(done <-chan struct{}) { <-done })
	r.working.life.End()
	return nil
}

// Option configures [Open].
type Option func(*settings)

type settings struct {
	domain   string
	secret   rules.KeySecret
	trusted  []netip.Prefix
	fallback store.Store
	log      *slog.Logger
	clock    func() time.Time
}

// WithDomain sets the domain. It is required if the files have several.
func WithDomain(name string) Option { return func(s *settings) { s.domain = name } }

// WithTrustedProxies sets the proxies whose header fields about the client are
// trusted. Otherwise client_ip is the peer's address. See docs/rules/client-ip.md.
func WithTrustedProxies(networks ...netip.Prefix) Option {
	return func(s *settings) { s.trusted = networks }
}

// WithFallback sets the store, usually store/memory, for rules with
// on_store_error: local. Without it, they allow requests.
func WithFallback(store store.Store) Option { return func(s *settings) { s.fallback = store } }

// WithKeySecret sets the secret of hashed keys, of at least 32 bytes: a shorter one could be
// found from a key and its digest, and is an error of [Open]. Processes that share counts need
// the same one. Empty means none.
func WithKeySecret(secret string) Option {
	return func(s *settings) { s.secret = rules.KeySecret(secret) }
}

// WithLogger sets the log for reloads, warnings about rules, and store errors (at most
// once a minute). The default, also for nil, is slog.Default.
func WithLogger(log *slog.Logger) Option {
	return func(s *settings) { s.log = cmp.Or(log, s.log) }
}

// WithClock sets the clock for requests and waiting; see headgate.WithClock. Files
// are watched on the real clock.
func WithClock(now func() time.Time) Option { return func(s *settings) { s.clock = now } }
