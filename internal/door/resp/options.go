package resp

import (
	"cmp"
	"crypto/tls"
	"net"
	"time"

	"github.com/headgate/headgate/internal/decide/admission"
	"github.com/headgate/headgate/internal/request/token"
	"github.com/headgate/headgate/internal/transport/membound"
	"github.com/headgate/headgate/store"
)

// DefaultMaxBulk is the default of Options.MaxBulk.
const DefaultMaxBulk = 64 << 10

// Options configures a [Server]. Zero limits mean the defaults.
type Options struct {
	// Asker decides the HG commands. Without a Clock, the store's clock is used.
	admission.Asker
	Store   store.Store // keeps the counts of CL.THROTTLE, in a separate scope; required
	Version string      // Headgate's version, for HELLO and INFO

	Password string      // for AUTH; empty for none
	TLS      *tls.Config // encrypts connections if not nil

	MaxConnections int                   // open at once
	Failures       *token.Failures       // counts wrong passwords; nil for none
	Misled         func(remote net.Addr) // called for each connection that speaks HTTP, which is closed; may be nil
	// Full, if not nil, reports whether the process can take no more connections: a
	// new one then replaces an idle one. The first [netbound.Spare] are always
	// accepted. Busy, if not nil, reports whether commands that decide must be refused.
	Full, Busy func() bool
	// MaxArgs limits the arguments of a command, MaxBulk the bytes of an argument and
	// MaxCommand the bytes of a command. A command that exceeds them is refused; the
	// connection stays open.
	MaxArgs, MaxBulk, MaxCommand int
	// Buffers limits the memory of all commands larger than 16 KiB that are still
	// arriving; nil means 64 MiB. When it is used up, the command that has taken the
	// most for the longest is refused.
	Buffers *membound.Bound
	// ReadTimeout limits the time for a command to arrive, for a client to give the
	// password and for a TLS handshake; WriteTimeout the time for a client to read its
	// answers. Connections that take longer are closed.
	ReadTimeout, WriteTimeout time.Duration
	// IdleTimeout is how long a connection may be idle between commands, as connections
	// of a pool are; 0 means no limit.
	IdleTimeout time.Duration
}

func (o *Options) complete() {
	o.MaxConnections = cmp.Or(o.MaxConnections, 10_000)
	o.MaxArgs = cmp.Or(o.MaxArgs, 16_384)
	o.MaxBulk = cmp.Or(o.MaxBulk, DefaultMaxBulk)
	o.MaxCommand = cmp.Or(o.MaxCommand, 1<<20)
	if o.Buffers == nil {
		o.Buffers = membound.New(membound.Options{Most: 64 << 20})
	}
	o.ReadTimeout = cmp.Or(o.ReadTimeout, 10*time.Second)
	o.WriteTimeout = cmp.Or(o.WriteTimeout, 10*time.Second)
	o.Version = cmp.Or(o.Version, "0.0.0")
}
