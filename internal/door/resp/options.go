package resp

import (
	"cmp"
	"crypto/tls"
	"net"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/door/verdict"
	"github.com/headgate/headgate/internal/request/token"
	"github.com/headgate/headgate/internal/transport/membound"
)

// DefaultMaxBulk is the default of Options.MaxBulk.
const DefaultMaxBulk = 64 << 10

// Options are what the door needs, and the bounds of what callers may do. Zero
// values of the bounds mean the defaults.
type Options struct {
	// Asker decides about HG.CHECK and its kin. With no Clock the store's decides.
	verdict.Asker
	Store   headgate.Store // keeps the counts of CL.THROTTLE, in a scope of their own. Required.
	Version string         // that of Headgate, for HELLO and INFO

	Password string      // Password, if there is one, is what AUTH must give
	TLS      *tls.Config // TLS, if not nil, encrypts connections

	MaxConnections int                   // how many may be open at once
	Failures       *token.Failures       // counts wrong passwords; nil for none
	Misled         func(remote net.Addr) // hears of each connection that speaks HTTP, and is closed, if not nil
	// Full, if not nil, reports whether there are not to be more connections than
	// there are, but for the first [netbound.Spare], however much room there is:
	// newcomers then take the places of silent ones. Busy reports whether commands that decide are to be refused.
	Full, Busy func() bool
	// MaxArgs, MaxBulk and MaxCommand are how many arguments a command may
	// have, and how many bytes an argument and the command as a whole. A
	// command that exceeds them is refused; the connection goes on.
	MaxArgs, MaxBulk, MaxCommand int
	// Buffers bounds how many bytes all commands together may take that are
	// larger than 16 KiB and have not yet arrived whole; nil is
	// 64 MiB. Where there is no room, the command that has taken most
	// for long is refused.
	Buffers *membound.Bound
	// ReadTimeout is how long a command may take from its first byte to its
	// last, a client to give the password and a TLS handshake to end;
	// WriteTimeout how long a client may take to read its answers. Connections
	// that take longer are closed.
	ReadTimeout, WriteTimeout time.Duration
	// IdleTimeout: how long a connection may be silent between commands, as in pools; 0 for ever
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
