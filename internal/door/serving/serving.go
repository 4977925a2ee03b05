// Package serving opens the doors of a process. It divides connections and memory among
// them, limits and encrypts their listeners, serves them, and closes them without losing
// requests. It depends only on a list of doors, not on any particular door.
package serving

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/internal/base/lifetime"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/counts/dispatch"
	"github.com/headgate/headgate/internal/door"
	"github.com/headgate/headgate/internal/request/client"
	"github.com/headgate/headgate/internal/request/token"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/transport/certs"
	"github.com/headgate/headgate/internal/transport/membound"
	"github.com/headgate/headgate/internal/transport/netbound"
	"github.com/headgate/headgate/internal/transport/oneport"
	"github.com/headgate/headgate/internal/transport/overload"
	"github.com/headgate/headgate/internal/transport/unread"
)

// Options configure Doors. Fields are required unless they say otherwise.
type Options struct {
	Config *config.Config
	// List is all doors, in the order in which they are opened.
	List    []door.Door
	Logger  *slog.Logger
	Clock   func() time.Time
	Clients *client.Resolver
	Life    *lifetime.Lifetime // closes the doors at the end
	// OperatorsMayMove opens a door for operators on any free port of this machine if
	// its default port is taken.
	OperatorsMayMove bool
	Descriptors      int                 // limit of file descriptors; 0 asks the system
	Resources        []overload.Resource // to watch besides memory and descriptors; optional
}

// Doors are the doors of one process.
type Doors struct {
	Options
	Local func(netip.Addr) bool // reports whether an address is this machine's own, and so not limited

	kinds    []*kind // all doors
	open     []*openDoor
	port     *oneport.Port // shared by several doors; nil without
	common   door.Common
	failures chan error
	sender   dispatch.Sender // nil if no door sends

	limit    int            // of file descriptors; 0 if unknown
	reserved int            // part of it, for the process and for operators
	parts    map[string]int // parts of limit, by door or claim
	load     *overload.Manager
	unread   *unread.Watch   // of the answers of all doors
	heads    *membound.Bound // of the requests of all doors
}

// kind is a door, open or not, with its settings and resources.
type kind struct {
	door.Door
	set         *config.Door
	certificate *certs.Server          // nil without
	wrong       *token.Failures        // nil if it never asks for a token or password
	room        func() *membound.Bound // nil if callers use no memory
}

// openDoor is a door, its listener and the server behind it.
type openDoor struct {
	*kind
	listener  net.Listener
	bound     *netbound.Listener  // the same as listener; nil if that does not limit connections
	encrypted bool                // with TLS, its own or the shared port's
	over      *netbound.Listener  // of the shared port, if the door is on it
	watched   *netbound.Watched   // innermost layer; nil on the shared port
	clients   *netbound.PerClient // limits each client; nil if none is limited
	server    door.Server         // nil before Open
	done      chan struct{}       // closed when Serve of server has returned; nil before that
}

// New returns the doors, after checking for what would keep them from being opened: a
// configuration with every listener off, two doors at the same address, or a certificate
// that cannot be read, for example. The error is a *config.SourceError.
func New(o Options) (*Doors, error) {
	d := &Doors{Options: o, Local: netip.Addr.IsLoopback, failures: make(chan error, 16), parts: map[string]int{}}
	d.heads = membound.New(membound.Options{Most: d.roomOfADoor(), Client: d.countedClient})
	d.unread = unread.New(unread.Options{Most: d.roomOfADoor(), Short: d.short, Logger: o.Logger})
	closed, keys := true, []string{}
	for _, listed := range o.List {
		k := &kind{Door: listed, set: o.Config.Door(listed.Name)}
		d.kinds = append(d.kinds, k)
		if k.Tokens {
			k.wrong = token.NewFailures(o.Logger.With("door", k.Name), o.Clock)
		}
		if k.Keeps { // made on first use
			k.room = sync.OnceValue(func() *membound.Bound {
				return membound.New(membound.Options{Most: d.roomOfADoor(), Client: d.countedClient})
			})
		}
		if !k.Operators && k.Name != config.DoorShared {
			keys = append(keys, cmp.Or(k.set.Needs, k.set.Key))
		}
		closed = closed && (k.Operators || !k.set.Open())
		if k.set.Open() && k.CheckFiles != nil {
			if err := k.CheckFiles(o.Config); err != nil {
				return nil, err
			}
		}
	}
	if closed {
		last := len(keys) - 1
		return nil, &config.SourceError{
			Source: "configuration", Message: "every listener is off", Hint: "set " + strings.Join(keys[:last], ", ") + " or " + keys[last],
		}
	}
	if err := d.checkAddresses(); err != nil {
		return nil, err
	}
	return d, d.loadCertificates()
}

// Open makes the servers of the doors that listen, which Serve starts. each is what all
// doors get from the process; Open adds what is different for each door.
func (d *Doors) Open(each door.Process, domain func(door string) string) error {
	for _, o := range d.open {
		if o.Name == config.DoorShared {
			o.server = sharedPort{d.port}
			continue
		}
		var err error
		if o.server, err = o.Open(d.given(o, each, domain)); err != nil {
			return err
		}
		if c, ok := o.server.(prometheus.Collector); ok {
			each.Register(c)
		}
		if s, ok := o.server.(dispatch.Sender); ok {
			d.sender = s
		}
	}
	return nil
}

// given returns the door.Process of a door.
func (d *Doors) given(o *openDoor, p door.Process, domain func(door string) string) *door.Process {
	p.Name, p.Settings, p.Config, p.Clock, p.Logger, p.Clients, p.Dialect = o.Name, o.set, d.Config, d.Clock, d.Logger, d.Clients, d.Config.Headers
	p.Domain = func() string { return domain(o.Name) }
	p.Failures, p.TLS, p.Bound, p.Over = o.wrong, o.encryption(), o.bound, o.over
	p.Unread, p.Terms, p.Heads = d.unread, d.terms(o.kind), d.heads
	p.Part = func(name string) int { return d.parts[name] }
	p.Sheds, p.Room, p.MaxRoom, p.Counted, p.Common = d.Sheds, o.room, d.roomOfADoor(), d.countedClient, &d.common
	return &p
}

// Serve serves all doors in the background.
func (d *Doors) Serve() {
	for _, o := range d.open {
		d.Logger.Info("listening", "door", o.Name, "address", o.listener.Addr().String(), "tls", o.encrypted)
		o.done = make(chan struct{})
		go func() {
			defer close(o.done)
			if err := o.server.Serve(o.listener); err != nil {
				d.failures <- fmt.Errorf("%s: %w", o.Name, err)
			}
		}()
	}
}

// Failed returns a channel that receives the error of a door that stops on its own.
func (d *Doors) Failed() <-chan error { return d.failures }

// add adds an open door, and closes it at the end of d.Life.
func (d *Doors) add(o *openDoor) {
	d.open = append(d.open, o)
	d.Life.OnEnd(func() {
		_ = o.listener.Close() // a server has closed it already
		if o.server == nil {
			return
		}
		if o.done != nil {
			<-o.done
		} else { // after a start that failed
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			_ = o.server.Shutdown(ctx)
		}
		if c, ok := o.server.(io.Closer); ok {
			_ = c.Close()
		}
	})
}

// Addresses calls f with the name and the address of each door that listens.
func (d *Doors) Addresses(f func(door, address string)) {
	for _, o := range d.open {
		f(o.Name, o.listener.Addr().String())
	}
}

// SetServing tells callers that watch the health of the process whether it is healthy.
func (d *Doors) SetServing(yes bool) {
	for _, o := range d.open {
		if t, ok := o.server.(door.HealthTeller); ok {
			t.SetServing(yes)
		}
	}
}

// Domains returns the domains, by door, of the doors whose callers name none.
func (d *Doors) Domains(rs *rules.Ruleset) (map[string]string, error) {
	domains := map[string]string{}
	for _, k := range d.kinds {
		if k.Domain == nil || !k.set.Open() {
			continue
		}
		var err error
		if domains[k.Name], err = k.Domain(d.Config, rs); err != nil {
			return nil, err
		}
	}
	return domains, nil
}

// Sends reports whether a door that will be opened sends queued requests.
func (d *Doors) Sends() bool {
	return slices.ContainsFunc(d.kinds, func(k *kind) bool { return k.Sends && k.set.Open() })
}

// Sender returns what sends queued requests, or nil if that is not open.
func (d *Doors) Sender() dispatch.Sender { return d.sender }

// Close closes all doors concurrently, without losing requests that can be answered.
// First all doors stop accepting connections. Then each asks its clients to close
// theirs, and closes idle ones.
func (d *Doors) Close(ctx context.Context) error {
	_ = d.each(func(o *openDoor) error { o.drain(ctx); return nil })
	return d.each(func(o *openDoor) error {
		if err := o.server.Shutdown(ctx); err != nil {
			return fmt.Errorf("%s: some requests were cut off: %w", o.Name, err)
		}
		return nil
	})
}

// each calls f for all doors concurrently.
func (d *Doors) each(f func(*openDoor) error) error {
	errs := make([]error, len(d.open))
	var wg sync.WaitGroup
	for i, o := range d.open {
		wg.Go(func() { errs[i] = f(o) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// drain stops accepting connections, except those that clients have already made.
func (o *openDoor) drain(ctx context.Context) {
	if o.watched != nil {
		o.watched.Drain(ctx)
	}
	if s, ok := o.server.(door.Drainer); ok {
		s.Drain(ctx)
	}
}

// loadCertificates reads the certificates of the doors, so that errors are found before
// a door is opened. The error is a *config.SourceError.
func (d *Doors) loadCertificates() error {
	for _, k := range d.kinds {
		t := &k.set.TLS
		if !t.Enabled() || !k.set.Open() {
			continue
		}
		var err error
		k.certificate, err = certs.Load(
			certs.Files{Cert: t.Cert, Key: t.Key, ClientCA: t.ClientCA, ClientNames: t.ClientNames},
			certs.Options{Protocols: k.ALPN, MinVersion: t.MinVersion, Logger: d.Logger.With("door", k.Name)},
		)
		if err != nil {
			return door.CertificateError(k.Name+".tls", err)
		}
	}
	return nil
}

// encryption returns the TLS configuration of a door, or nil.
func (k *kind) encryption() *tls.Config {
	if k.certificate == nil {
		return nil
	}
	return netbound.Greeting(k.certificate.Config())
}

// Reload reads all certificates and other files of the doors again. Errors are logged,
// and the old files stay in use.
func (d *Doors) Reload() {
	for _, k := range d.kinds {
		if k.certificate != nil {
			_ = k.certificate.Reload()
		}
	}
	for _, o := range d.open {
		if r, ok := o.server.(door.Reloader); ok {
			r.Reload()
		}
	}
}

// Shared returns the port that several doors share. In the list it comes after the doors
// that may be on it.
func Shared() door.Door {
	const name = config.DoorShared
	return door.Door{
		ALPN: oneport.Protocols(), Policy: netbound.ByRead,
		Section: config.Section{
			Name: name, Means: "[one port for several doors](run/configuration.md#one-port-for-several-protocols)", Public: true,
		},
	}
}
