// Package serving opens the doors of a process: it divides connections and memory among
// them, limits and encrypts their listeners, serves them, and closes them without losing
// requests. It only depends on their list, not on single doors.
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
	"github.com/headgate/headgate/internal/door"
	"github.com/headgate/headgate/internal/request/client"
	"github.com/headgate/headgate/internal/request/token"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/transport/certs"
	"github.com/headgate/headgate/internal/transport/membound"
	"github.com/headgate/headgate/internal/transport/netbound"
	"github.com/headgate/headgate/internal/transport/oneport"
	"github.com/headgate/headgate/internal/transport/overload"
)

// Options are what Doors are made from. Fields are required unless they say otherwise.
type Options struct {
	Config *config.Config
	// List are the doors that there are, in the order in which they are opened.
	List    []door.Door
	Logger  *slog.Logger
	Clock   func() time.Time
	Clients *client.Resolver
	Life    *lifetime.Lifetime // closes the doors at the end
	// OperatorsMayMove: opens a door for operators on any free port of this machine if its default is taken
	OperatorsMayMove bool
	Descriptors      int                 // how many file descriptors there may be; 0 asks the system
	Resources        []overload.Resource // what may run short, besides memory and descriptors; optional
}

// Doors are those of one process.
type Doors struct {
	Options
	Local func(netip.Addr) bool // whether an address is this machine's own, with any number of connections

	kinds    []*kind // all that there are
	open     []*openDoor
	port     *oneport.Port // that several of them share; nil without
	common   door.Common
	failures chan error
	sender   door.QueueSender // nil if no door sends

	limit    int            // of file descriptors; 0 if it is not known
	reserved int            // of those, for the process and for operators
	parts    map[string]int // of the others, by door or claim
	load     *overload.Manager
}

// kind is a door, open or not, and what it has.
type kind struct {
	door.Door
	set         *config.Door
	certificate *certs.Server          // nil if it has none
	wrong       *token.Failures        // nil if it asks nobody
	room        func() *membound.Bound // nil if callers keep nothing
}

// openDoor is a door, its listener and the server behind it.
type openDoor struct {
	*kind
	listener  net.Listener
	bound     *netbound.Listener  // listener too, if this bounds it
	encrypted bool                // callers speak TLS, be it to the port that it shares
	over      *netbound.Listener  // that of the shared port which this is behind, if it is
	watched   *netbound.Watched   // what is below it; nil behind a shared port
	clients   *netbound.PerClient // likewise; nil if clients may have any number
	server    door.Server         // nil before it is opened
	done      chan struct{}       // closed when the server has returned; nil before it serves
}

// New finds out whether any door is to be opened for callers, and what would keep
// one from it, such as a certificate that cannot be read. The error is a
// *config.SourceError.
func New(o Options) (*Doors, error) {
	d := &Doors{Options: o, Local: netip.Addr.IsLoopback, failures: make(chan error, 16), parts: map[string]int{}}
	closed, keys := true, []string{}
	for _, listed := range o.List {
		k := &kind{Door: listed, set: o.Config.Door(listed.Name)}
		d.kinds = append(d.kinds, k)
		if k.Tokens {
			k.wrong = token.NewFailures(o.Logger.With("door", k.Name), o.Clock)
		}
		if k.Keeps { // made when it is asked for
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
	return d, d.loadCertificates()
}

// Open returns what serves the doors that listen; Serve begins. each is told what
// all doors get from the process, and completed with what they get from here.
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
		if s, ok := o.server.(door.QueueSender); ok {
			d.sender = s
		}
	}
	return nil
}

// given is what a door gets.
func (d *Doors) given(o *openDoor, p door.Process, domain func(door string) string) *door.Process {
	p.Name, p.Settings, p.Config, p.Clock, p.Logger, p.Clients, p.Dialect = o.Name, o.set, d.Config, d.Clock, d.Logger, d.Clients, d.Config.Headers
	p.Domain = func() string { return domain(o.Name) }
	p.Failures, p.TLS, p.Bound, p.Over = o.wrong, o.encryption(), o.bound, o.over
	p.Part = func(name string) int { return d.parts[name] }
	p.Sheds, p.Room, p.MaxRoom, p.Counted, p.Common = d.Sheds, o.room, d.roomOfADoor(), d.countedClient, &d.common
	return &p
}

// Serve answers at all doors in the background.
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

// Failed is told when a door breaks down by itself.
func (d *Doors) Failed() <-chan error { return d.failures }

// add notes a door, which is closed in the end.
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

// SetServing tells callers who watch whether the process is well.
func (d *Doors) SetServing(yes bool) {
	for _, o := range d.open {
		if t, ok := o.server.(door.HealthTeller); ok {
			t.SetServing(yes)
		}
	}
}

// Domains returns the domains whose rules doors go by whose callers name none.
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

// Sends reports whether a door that is to be opened sends what is queued; Sender
// returns what does, and nil as long as it is not open.
func (d *Doors) Sends() bool {
	return slices.ContainsFunc(d.kinds, func(k *kind) bool { return k.Sends && k.set.Open() })
}

// Sender returns what sends what is queued; see Sends.
func (d *Doors) Sender() door.QueueSender { return d.sender }

// Close closes all doors at once, so that no request is lost that could be
// answered. First no door accepts more connections than there are already; then
// each asks its clients to close theirs, and closes those that say nothing more.
func (d *Doors) Close(ctx context.Context) error {
	_ = d.each(func(o *openDoor) error { o.drain(ctx); return nil })
	return d.each(func(o *openDoor) error {
		if err := o.server.Shutdown(ctx); err != nil {
			return fmt.Errorf("%s: some requests were cut off: %w", o.Name, err)
		}
		return nil
	})
}

// each calls f for all doors at once.
func (d *Doors) each(f func(*openDoor) error) error {
	errs := make([]error, len(d.open))
	var wg sync.WaitGroup
	for i, o := range d.open {
		wg.Go(func() { errs[i] = f(o) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// drain accepts no more connections but those that clients have made already.
func (o *openDoor) drain(ctx context.Context) {
	if o.watched != nil {
		o.watched.Drain(ctx)
	}
	if s, ok := o.server.(door.Drainer); ok {
		s.Drain(ctx)
	}
}

// loadCertificates reads those of the doors, so that what is wrong is known
// before a door is opened. The error is a *config.SourceError.
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

// encryption returns what encrypts a door, or nil.
func (k *kind) encryption() *tls.Config {
	if k.certificate == nil {
		return nil
	}
	return k.certificate.Config()
}

// Reload reads all certificates now, and what else doors follow. What is wrong has
// been logged, and the old ones stay in use.
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

// settings are those of the shared port that no door has.
type settings struct {
	handshake time.Duration // how long a connection may take until it is known what it speaks; 0 leaves the default
}

// Shared is the port that several doors share. In the list it comes after those
// that may be on it.
func Shared() door.Door {
	const name = config.DoorShared
	return door.Door{
		ALPN: oneport.Protocols(), Policy: netbound.ByRead,
		Section: config.Section{
			Name: name, Public: true, Own: func() any { return new(settings) },
			Settings: []config.Setting{
				config.Period(name+".handshake_timeout", func(s *settings) *time.Duration { return &s.handshake }),
			},
		},
	}
}
