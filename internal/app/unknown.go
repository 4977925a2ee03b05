package app

import (
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"

	"github.com/headgate/headgate/internal/base/clip"
	"github.com/headgate/headgate/internal/base/nearest"
	"github.com/headgate/headgate/internal/decide/engine"
)

// unknownDomains logs each domain without rules that requests name, once: a misspelt domain
// limits nothing, and the caller sees it only in the reason.
type unknownDomains struct {
	log     *slog.Logger
	unknown engine.UnknownDomain
	known   func() []string // the domains that have rules

	mu     sync.Mutex
	logged []string
}

// maxUnknownDomains limits how many domains are logged, because callers choose the names.
const maxUnknownDomains = 16

// seen logs a domain, unless it was logged before, or too many were, or there are no rules,
// which is logged when they are loaded.
func (s *unknownDomains) seen(domain string) {
	s.mu.Lock()
	known := s.known()
	tells := len(known) > 0 && len(s.logged) < maxUnknownDomains && !slices.Contains(s.logged, domain)
	if tells {
		s.logged = append(s.logged, domain)
	}
	s.mu.Unlock()
	if !tells {
		return
	}
	answer, hint := "allowed", "unknown_domain: refuse refuses such requests"
	if s.unknown == engine.UnknownDomainRefuse {
		answer, hint = "refused", "check the caller's domain"
	}
	if near := nearest.Word(domain, known); near != "" {
		hint = fmt.Sprintf("did you mean %q? %s", near, hint)
	}
	s.log.Warn("a request names a domain without rules", "domain", clip.Text(domain, 64), "answer", answer, "hint", hint)
}

// tellOfIgnored logs that a header field with the client's address was ignored. Behind a
// load balancer that is not trusted, all clients share one count.
func (a *App) tellOfIgnored(peer netip.Addr) {
	a.log.Info("X-Forwarded-For or Forwarded is ignored: its sender is not a trusted proxy", "sender", peer.String(),
		"hint", fmt.Sprintf("if it is your proxy: trusted_proxies: [%s]", peer))
}
