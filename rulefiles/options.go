package rulefiles

import (
	"log/slog"
	"net/netip"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/rules"
)

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
