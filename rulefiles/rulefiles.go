package rulefiles

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/request/client"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/follow"
	"github.com/headgate/headgate/internal/rules/rulefile"
)

// poll is how often files are looked at where the file system reports nothing.
const poll = 30 * time.Second

// Rules are the rules of some files. Make them with [Open]. They are safe for use by
// any number of goroutines.
type Rules struct {
	settings

	files   follow.Files
	engine  *engine.Engine
	clients *client.Resolver
	limiter *headgate.Limiter // whose clock it goes by
	told    atomic.Int64      // when the log was told of a failing store, in seconds

	reading sync.Mutex // held while rules are read
	seen    [32]byte   // the fingerprint of the files that were read last
	stop    func(wait func(done <-chan struct{}))
}

// Open reads the rules of files, and of folders and the folders in them all that end
// in .yaml or .yml, as the server does, and follows them until [Rules.Close]. Counts
// are kept in store, which stays the caller's to close.
//
// The error tells every mistake in the files, each in a line with its place. No rules
// at all are an error too: a service without limits should not start by mistake.
func Open(store headgate.Store, paths []string, options ...Option) (*Rules, error) {
	r := &Rules{settings: settings{log: slog.Default()}}
	for _, o := range options {
		o(&r.settings)
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
	r.files = follow.Files{Paths: slices.Clone(paths), Options: rulefile.Options{NoTokens: true, KeySecret: r.secret}}
	r.seen = r.files.Fingerprint()
	rs, err := r.load()
	if err != nil {
		return nil, err
	}
	var own []engine.Option
	if r.fallback != nil {
		own = append(own, engine.WithFallback(r.fallback))
	}
	r.engine = engine.New(store, rs, own...)
	r.stop = follow.Start(follow.Options{Files: r.files, Changed: r.changed, Settle: follow.DefaultSettle, Poll: poll, Log: r.log})
	return r, nil
}

// load reads the files, and says what is odd about them.
func (r *Rules) load() (*rules.Ruleset, error) {
	rs, err := r.files.Options.Load(r.files.Paths...)
	if err != nil {
		return nil, err
	}
	switch domains := rs.Domains(); {
	case len(domains) == 0:
		// A volume that is not mounted looks like an empty folder, which is no
		// reason to lift all limits.
		return nil, errors.New(`rulefiles: no rules found: for no limits, use a file with a domain and "limits: []"`)
	case r.domain == "" && len(domains) > 1:
		return nil, fmt.Errorf("rulefiles: the rules have several domains, %q: choose one with WithDomain", domains)
	case r.domain == "":
		r.domain = domains[0] // when they are opened, and from then on
	case !slices.Contains(domains, r.domain):
		return nil, fmt.Errorf("rulefiles: no rules for the domain %q, only for %q", r.domain, domains)
	}
	for _, d := range rs.Warnings() {
		r.log.Warn("rule warning", "at", d.Position(), "message", d.Message, "hint", d.Hint)
	}
	return rs, nil
}

// changed reloads if the files are not those of the last attempt.
func (r *Rules) changed() {
	r.reading.Lock()
	defer r.reading.Unlock()
	if now := r.files.Fingerprint(); now != r.seen {
		r.seen = now
		_ = r.reload() // which has logged it
	}
}

// Reload reads the files again now, as is done when they have changed. After an error
// the old rules are in force. Counts survive, of rules that keep their names.
func (r *Rules) Reload() error {
	r.reading.Lock()
	defer r.reading.Unlock()
	r.seen = r.files.Fingerprint()
	return r.reload()
}

// reload needs r.reading to be held.
func (r *Rules) reload() error {
	rs, err := r.load()
	if err != nil {
		r.log.Error("rules not reloaded: the previous rules stay active", "err", err)
		return err
	}
	r.engine.SetRules(rs)
	stats := rs.Stats()
	r.log.Info("rules reloaded", "rules", stats.Rules, "files", stats.Files)
	return nil
}

// Close stops following the files. The rules in force can be asked on. It is called
// once, and waits for files that are just being read.
func (r *Rules) Close() error {
	r.stop(func(done <-chan struct{}) { <-done })
	return nil
}

// Option configures [Open].
type Option func(*settings)

type settings struct {
	domain   string
	secret   rules.KeySecret
	trusted  []netip.Prefix
	fallback headgate.Store
	log      *slog.Logger
	clock    func() time.Time
}

// WithDomain sets whose rules apply. It is needed if the files have several domains.
func WithDomain(name string) Option { return func(s *settings) { s.domain = name } }

// WithTrustedProxies says which networks are proxies, whose word about the client is
// believed: the client_ip of a request is else the address that it comes from. See
// docs/client-ip.md.
func WithTrustedProxies(networks ...netip.Prefix) Option {
	return func(s *settings) { s.trusted = networks }
}

// WithFallback makes store, usually store/memory, answer for rules with
// on_store_error: local while the other store cannot. Without it they let pass.
func WithFallback(store headgate.Store) Option { return func(s *settings) { s.fallback = store } }

// WithKeySecret is the secret of hashed parts of keys. Processes that count together
// need the same one.
func WithKeySecret(secret string) Option {
	return func(s *settings) { s.secret = rules.KeySecret(secret) }
}

// WithLogger sets who is told of rules that were reloaded, or not and why, of what is
// odd about them, and once a minute of a store that cannot answer; slog.Default
// without it.
func WithLogger(log *slog.Logger) Option { return func(s *settings) { s.log = log } }

// WithClock sets the clock that stamps requests and by which they wait; see
// headgate.WithClock. Files are watched on the real clock.
func WithClock(now func() time.Time) Option { return func(s *settings) { s.clock = now } }
