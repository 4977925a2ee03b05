package redis

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate/internal/base/enum"
	"github.com/headgate/headgate/internal/transport/rightserver"
)

// Mode is the topology of the servers.
type Mode uint8

const (
	// Standalone is one server, or one address that leads to one.
	Standalone Mode = iota
	// Sentinel is a primary that sentinels watch and replace.
	Sentinel
	// Cluster is a Redis Cluster.
	Cluster
)

// String returns the name used in the process file: standalone, sentinel or
// cluster.
func (m Mode) String() string { return enum.Name(m, "mode", "standalone", "sentinel", "cluster") }

// ParseMode is the inverse of [Mode.String]; it reports false for other names.
func ParseMode(name string) (Mode, bool) { return enum.Parse(name, Cluster) }

const (
	// DefaultTimeout is the timeout of a call unless Options set it.
	DefaultTimeout = 100 * time.Millisecond
	// DefaultPrefix is the prefix of every key unless Options set it.
	DefaultPrefix = "hg"
	// DefaultAddress is used if Options contain no address.
	DefaultAddress = "127.0.0.1:6379"
	// longestPrefix limits Options.Prefix, in bytes.
	longestPrefix = 64
)

// Options says where the servers are and how to use them. The zero value is a
// server on 127.0.0.1:6379.
type Options struct {
	// Addresses are host:port of the server, of the sentinels, or of some nodes of the
	// cluster.
	Addresses                          []string
	Mode                               Mode        // the topology of the servers
	MasterName                         string      // the sentinels' name for the primary
	Username, Password                 string      // of the ACL user; or only Password
	SentinelUsername, SentinelPassword string      // used for the sentinels
	DB                                 int         // the database number; a cluster only has 0
	TLS                                *tls.Config // if not nil, encrypts the connections, including those to sentinels
	// Login, if set, is asked before each connection for the user and the password to use
	// instead of Username and Password, which may change.
	Login func() (username, password string, err error)
	// CurrentTLS, if set, is asked before each connection for what to use instead of TLS,
	// which must be set too.
	CurrentTLS func() *tls.Config
	// Prefix is the prefix of every key. Processes with the same prefix share counts.
	// It must not contain braces. The default is DefaultPrefix.
	Prefix string
	// Timeout limits every call, in addition to its context; the default is
	// DefaultTimeout. If this process had no CPU when the time was over, a call waits
	// as long again as it was late, at most 25 ms, for an answer that may have arrived
	// in time.
	Timeout time.Duration
	// StrictAtomic makes AllOrNothing return store.ErrCrossSlot if the keys are not all
	// in one slot, instead of taking and undoing.
	StrictAtomic bool
	// CallerTime makes Op.At the time of an op if it is not 0. It is for tests and for
	// replaying logs; its keys expire an hour after their last use.
	CallerTime bool
	// KeyTimes records when keys are created and changed, for Store.KeyTimes. Each key
	// then takes a second Redis key, and each change two more commands in its script.
	// All processes with the same prefix should set it: what others change is not
	// recorded.
	KeyTimes bool
	// Clock chooses the calendar windows to send; the server's clock picks one of them.
	// The default is time.Now.
	Clock func() time.Time
	// Client, if set, may change the client's settings before it connects.
	Client func(*rueidis.ClientOption)

	logins *rightserver.Logins // set by validate
}

// validate sets defaults and returns an error for invalid options.
func (o *Options) validate() error {
	if len(o.Addresses) == 0 {
		o.Addresses = []string{DefaultAddress}
	}
	o.Prefix, o.Timeout = cmp.Or(o.Prefix, DefaultPrefix), cmp.Or(o.Timeout, DefaultTimeout)
	if o.Clock == nil {
		o.Clock = time.Now //nolint:forbidigo // the default of what a caller may inject
	}
	if o.logins == nil {
		o.logins = rightserver.NewLogins(o.Login, time.Now) //nolint:forbidigo // waiting for a server
	}
	for _, address := range o.Addresses {
		if _, _, err := net.SplitHostPort(address); err != nil {
			if strings.Contains(address, "@") { // it is preceded by a password
				return errors.New("redis: an address contains a user name or password: want host:port, or use a URL")
			}
			return fmt.Errorf("redis: address %q: want host:port", address)
		}
	}
	switch {
	case o.Mode > Cluster:
		return fmt.Errorf("redis: unknown mode %d", o.Mode)
	case o.Mode == Standalone && len(o.Addresses) != 1:
		return errors.New("redis: mode standalone takes one address; for several use sentinel or cluster")
	case o.Mode == Sentinel && o.MasterName == "":
		return errors.New("redis: mode sentinel needs the name of the primary (master_name)")
	case o.Mode != Sentinel && o.MasterName != "":
		return errors.New("redis: only mode sentinel has a master_name")
	case o.Mode == Cluster && o.DB != 0:
		return errors.New("redis: a cluster only has database 0")
	case o.DB < 0:
		return errors.New("redis: the database number must not be negative")
	case o.Timeout < 0:
		return errors.New("redis: the timeout must not be negative")
	case len(o.Prefix) > longestPrefix || strings.ContainsAny(o.Prefix, "{}"):
		return fmt.Errorf("redis: the prefix must be at most %d bytes long, without braces", longestPrefix)
	}
	return nil
}

const (
	// ringScale gives a connection's queue 2^ringScale slots.
	ringScale = 12
	// stallTimeout is how long a connection may be silent while a PING is pending
	// before it is closed and replaced.
	stallTimeout = time.Second
)

// clientOption returns the settings of the client.
func (o *Options) clientOption(d *dialer) rueidis.ClientOption {
	c := rueidis.ClientOption{
		InitAddress:  o.Addresses,
		Username:     o.Username,
		Password:     o.Password,
		SelectDB:     o.DB,
		TLSConfig:    o.TLS,
		DialCtxFn:    o.logins.Dial(o.dialWith(d.dial)),
		DisableCache: true,
		// Commands that write are sent once; DisableRetry would also end redirections of a
		// cluster.
		DisableRetry:      false,
		RingScaleEachConn: ringScale,
		ConnWriteTimeout:  max(stallTimeout, 4*o.Timeout),
		ForceSingleClient: o.Mode == Standalone,
		ClientName:        "headgate",
	}
	c.Dialer.Timeout = max(stallTimeout, o.Timeout)
	c.Dialer.KeepAlive = stallTimeout
	if o.Mode == Sentinel {
		c.Sentinel = rueidis.SentinelOption{
			MasterSet: o.MasterName, TLSConfig: o.TLS,
			Username: o.SentinelUsername, Password: o.SentinelPassword,
			Dialer: c.Dialer,
		}
	}
	o.follow(&c)
	if o.Client != nil {
		o.Client(&c)
	}
	return c
}

// dialWith returns dial with the current TLS.
func (o *Options) dialWith(dial rightserver.DialFunc) rightserver.DialFunc {
	if o.CurrentTLS == nil {
		return dial
	}
	now := o.CurrentTLS
	return func(ctx context.Context, address string, nd *net.Dialer, _ *tls.Config) (net.Conn, error) {
		return dial(ctx, address, nd, now())
	}
}

// follow makes the client ask Login.
func (o *Options) follow(c *rueidis.ClientOption) {
	if o.Login == nil {
		return
	}
	login := o.Login
	c.AuthCredentialsFn = func(rueidis.AuthCredentialsContext) (rueidis.AuthCredentials, error) {
		username, password, err := login()
		return rueidis.AuthCredentials{Username: username, Password: password}, err
	}
}

// Follow gives a client that others make the current login and TLS.
func (o *Options) Follow(c *rueidis.ClientOption) {
	if o.CurrentTLS != nil {
		c.DialCtxFn = o.dialWith(func(ctx context.Context, address string, nd *net.Dialer, config *tls.Config) (net.Conn, error) {
			return (&tls.Dialer{NetDialer: nd, Config: config}).DialContext(ctx, "tcp", address)
		})
	}
	o.follow(c)
}
