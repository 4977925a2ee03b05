package door

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/observe/telemetry"
	"github.com/headgate/headgate/internal/queue"
	"github.com/headgate/headgate/internal/request/client"
	"github.com/headgate/headgate/internal/request/token"
	"github.com/headgate/headgate/internal/transport/membound"
	"github.com/headgate/headgate/internal/transport/netbound"
	"github.com/headgate/headgate/internal/transport/overload"
)

// Process is what a door gets from the process.
type Process struct {
	// Name is the door's own, Settings what it has like all others, and Config
	// all there is.
	Name     string
	Settings *config.Door
	Config   *config.Config
	// Version is that of the binary.
	Version string
	// Clock is read once per request.
	Clock func() time.Time
	// Logger hears of what callers cannot be told.
	Logger *slog.Logger
	// Timeouts are those of the process, stronger than the configuration; what is
	// 0 is left to it.
	Timeouts Timeouts

	// Engine decides; Store keeps the counts of what has no rules.
	Engine *engine.Engine
	Store  headgate.Store
	// Clients says who a client is, Tokens who it says it is; nil if no token is
	// good.
	Clients *client.Resolver
	Tokens  client.Tokens
	// Domain returns what Door.Domain said of the rules in force.
	Domain func() string
	// Ready says how the process is.
	Ready func(context.Context) Readiness
	// Queue returns the queue, or nil as long as there is none.
	Queue func() *queue.Queue
	// Telemetry traces; nil does nothing.
	Telemetry *telemetry.Telemetry
	// Failures counts wrong tokens; nil at a door that does not ask.
	Failures *token.Failures

	// TLS encrypts the door; nil if it is not, or the shared port is.
	TLS *tls.Config
	// Bound is the listener, if that bounds its connections; Over that of the
	// shared port, if the door is behind it.
	Bound, Over *netbound.Listener
	// Part returns how many file descriptors a door has, or what is claimed by
	// that name; 0 behind the shared port.
	Part func(name string) int
	// Sheds reports whether some load is to be refused now.
	Sheds func(overload.Load) bool
	// Room bounds what callers keep in memory together. MaxRoom is how many bytes
	// that are, for doors which bound it themselves.
	Room    func() *membound.Bound
	MaxRoom int64
	// Counted returns the network that counts as one client with an address, and
	// false for who is not bounded: a trusted proxy and this machine.
	Counted func(netip.Addr) (netip.Prefix, bool)
	// Register adds metrics of what several doors have in common.
	Register func(...prometheus.Collector)
	// Common is what Once keeps; it is the same for all doors.
	Common *Common
}

// Common is what doors of one process have in common. The zero Common has
// nothing.
type Common struct {
	mu   sync.Mutex
	made map[any]any // by the pointer type of it
}

// Once returns what doors have in common: the first that asks for a T builds it.
func Once[T any](p *Process, build func() T) T {
	p.Common.mu.Lock()
	defer p.Common.mu.Unlock()
	key := any((*T)(nil))
	if made, ok := p.Common.made[key].(T); ok {
		return made
	}
	made := build()
	if p.Common.made == nil {
		p.Common.made = map[any]any{}
	}
	p.Common.made[key] = made
	return made
}

// TooBusy reports whether there are to be no more connections than there are.
func (p *Process) TooBusy() bool { return p.Sheds(overload.Connection) }

// Busy reports whether requests are to be refused.
func (p *Process) Busy() bool { return p.Sheds(overload.Request) }

// APITokens are those of the API, which asks for them over HTTP and gRPC.
func (p *Process) APITokens() *token.Set {
	tokens := make([]string, len(p.Config.Tokens))
	for i, s := range p.Config.Tokens {
		tokens[i] = string(s)
	}
	return token.New(tokens...)
}
