package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/door"
	"github.com/headgate/headgate/internal/door/admin"
	"github.com/headgate/headgate/internal/door/api"
	"github.com/headgate/headgate/internal/door/grpc"
	"github.com/headgate/headgate/internal/door/proxy"
	"github.com/headgate/headgate/internal/door/resp"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/transport/netbound"
)

// list are the doors that there are, in the order in which they are opened. A new
// one is a line here.
func (a *App) list() []door.Door {
	return slices.Concat([]door.Door{
		api.Door(),
		grpc.Door(),
		resp.Door(),
		a.sharedDoor(), // after those that may be on it
		admin.Door(a.adminOptions),
		proxy.Door(a.options.Backend),
	}, a.options.Doors)
}

// Sections are the settings that doors declare.
func Sections() []config.Section {
	var sections []config.Section
	for _, kind := range new(App).list() {
		if kind.Section.Name != "" {
			sections = append(sections, kind.Section)
		}
	}
	return sections
}

// ListenError says that a door could not be opened.
type ListenError struct {
	// Door is its name, Address where it should have been, by Setting.
	Door, Address, Setting string
	// Other is the setting of another door of this process that has the address,
	// or empty.
	Other string
	Err   error
}

// Error names the door, the address and the reason.
func (e *ListenError) Error() string {
	err := e.Err
	if op, ok := errors.AsType[*net.OpError](err); ok {
		err = op.Err // without "listen tcp" and the address again
	}
	return fmt.Sprintf("cannot open %s on %s: %v", e.Door, e.Address, err)
}

// Unwrap returns the reason.
func (e *ListenError) Unwrap() error { return e.Err }

// openDoor is a door, its listener and the server behind it.
type openDoor struct {
	door.Door
	listener net.Listener
	bound    *netbound.Listener  // listener too, if this bounds it
	over     *netbound.Listener  // that of the shared port which this is behind, if it is
	watched  *netbound.Watched   // what is below it; nil behind a shared port
	clients  *netbound.PerClient // likewise; nil if clients may have any number
	server   door.Server         // nil before it is opened
	done     chan struct{}       // closed when the server has returned; nil before it serves
}

// listen opens the listeners of all doors.
func (a *App) listen(ctx context.Context) error {
	for _, kind := range a.kinds {
		set := a.options.Config.Door(kind.Name)
		if !set.Open() {
			continue
		}
		err := a.open(ctx, kind, set.Address)
		if kind.Reserved && a.options.AdminMayMove && set.Address == set.Default && errors.Is(err, syscall.EADDRINUSE) {
			a.log.Warn("another process has the usual address of the admin door, so it is on a free port", "usual", set.Address)
			err = a.open(ctx, kind, "127.0.0.1:0")
		}
		if err != nil {
			return err
		}
		if kind.Name == config.DoorShared {
			a.openShared(a.doors[len(a.doors)-1])
		}
	}
	return nil
}

func (a *App) open(ctx context.Context, kind door.Door, address string) error {
	l, err := listenAt(ctx, address)
	if err != nil {
		e := &ListenError{Door: kind.Name, Address: address, Setting: a.options.Config.Door(kind.Name).Key, Err: err}
		if errors.Is(err, syscall.EADDRINUSE) {
			e.Other = a.whoseIs(address)
		}
		return e
	}
	d := &openDoor{Door: kind}
	d.listener = a.wrap(d, l)
	a.add(d)
	return nil
}

// whoseIs returns the setting of the open door that is reached at an address, or
// an empty string.
func (a *App) whoseIs(address string) string {
	wanted, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return ""
	}
	for _, d := range a.doors {
		has, ok := d.listener.Addr().(*net.TCPAddr)
		if ok && has.Port == wanted.Port && (has.IP.Equal(wanted.IP) || has.IP.IsUnspecified() || len(wanted.IP) == 0 || wanted.IP.IsUnspecified()) {
			return a.options.Config.Door(d.Name).Key
		}
	}
	return ""
}

// add notes a door, which is closed in the end.
func (a *App) add(d *openDoor) {
	a.doors = append(a.doors, d)
	a.cleanup = append(a.cleanup, func() {
		_ = d.listener.Close() // a server has closed it already
		if d.server == nil {
			return
		}
		if d.done != nil {
			<-d.done
		} else { // after a start that failed
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			_ = d.server.Shutdown(ctx)
		}
		if c, ok := d.server.(io.Closer); ok {
			_ = c.Close()
		}
	})
}

// listenAt listens at host:port or unix:PATH. A socket that a process left
// behind without closing it is in nobody's way.
func listenAt(ctx context.Context, address string) (net.Listener, error) {
	var lc net.ListenConfig
	network, address := config.SplitAddress(address)
	l, err := lc.Listen(ctx, network, address)
	if network != "unix" || !errors.Is(err, syscall.EADDRINUSE) {
		return l, err
	}
	var dialer net.Dialer
	if c, dialErr := dialer.DialContext(ctx, network, address); dialErr == nil {
		_ = c.Close()
		return nil, err // somebody answers there
	}
	if info, statErr := os.Lstat(address); statErr != nil || info.Mode()&os.ModeSocket == 0 {
		return nil, err
	}
	if removeErr := os.Remove(address); removeErr != nil {
		return nil, removeErr
	}
	return lc.Listen(ctx, network, address)
}

// openServers makes what serves the doors.
func (a *App) openServers() error {
	for _, d := range a.doors {
		var err error
		if d.server, err = d.Open(a.given(d)); err != nil {
			return err
		}
		if c, ok := d.server.(prometheus.Collector); ok {
			a.register(c)
		}
		if s, ok := d.server.(door.QueueSender); ok {
			a.sender = s
		}
	}
	return nil
}

// serve answers at all doors in the background.
func (a *App) serve() {
	for _, d := range a.doors {
		a.log.Info("listening", "door", d.Name, "address", d.listener.Addr().String(), "tls", a.isEncrypted(d.Name))
		d.done = make(chan struct{})
		go func() {
			defer close(d.done)
			if err := d.server.Serve(d.listener); err != nil {
				a.failures <- fmt.Errorf("%s: %w", d.Name, err)
			}
		}()
	}
}

// given is what a door gets from the App.
func (a *App) given(d *openDoor) *door.Process {
	return &door.Process{
		Name: d.Name, Settings: a.options.Config.Door(d.Name), Config: a.options.Config, Version: a.options.Version,
		Clock: a.options.Clock, Logger: a.log, Timeouts: a.options.Timeouts,
		Engine: a.engine, Store: a.store, Clients: a.clients, Tokens: a.tokens(),
		Domain: func() string { return a.state.Load().domains[d.Name] },
		Ready:  a.readiness, Queue: a.queue.Load, Telemetry: a.telemetry, Failures: a.capacity.wrong[d.Name],
		TLS: a.tlsOf(d.Name), Bound: d.bound, Over: d.over, Part: func(name string) int { return a.capacity.parts[name] },
		Sheds: a.sheds, Room: a.capacity.rooms[d.Name], MaxRoom: a.roomOfADoor(),
		Register: a.register, Common: &a.common,
	}
}

// setServing tells those who watch whether the process is well.
func (a *App) setServing(yes bool) {
	for _, d := range a.doors {
		if t, ok := d.server.(door.HealthTeller); ok {
			t.SetServing(yes)
		}
	}
}

// sayUnhealthy tells those who watch that the process drains, or has no rules
// yet.
func (a *App) sayUnhealthy() { a.setServing(false) }

// sayHealthy takes that back, unless the process drains.
func (a *App) sayHealthy() {
	a.setServing(true)
	if a.draining.Load() { // perhaps since just now
		a.setServing(false)
	}
}

// checkDoors finds out whether any door is to be opened for callers, and what
// would keep one from it.
func (a *App) checkDoors() error {
	closed, keys := true, []string{}
	for _, kind := range a.kinds {
		set := a.options.Config.Door(kind.Name)
		if !kind.Reserved && kind.Name != config.DoorShared {
			keys = append(keys, cmp.Or(set.Needs, set.Key))
		}
		closed = closed && (kind.Reserved || !set.Open())
		if set.Open() && kind.Check != nil {
			if err := kind.Check(a.options.Config); err != nil {
				return err
			}
		}
	}
	if closed {
		last := len(keys) - 1
		return &config.SourceError{
			Source: "configuration", Message: "every door is closed", Hint: "set " + strings.Join(keys[:last], ", ") + " or " + keys[last],
		}
	}
	return nil
}

// domains returns the domains whose rules doors go by whose callers name none.
func (a *App) domains(rs *rules.Ruleset) (map[string]string, error) {
	domains := map[string]string{}
	for _, kind := range a.kinds {
		if set := a.options.Config.Door(kind.Name); kind.Domain == nil || !set.Open() {
			continue
		}
		var err error
		if domains[kind.Name], err = kind.Domain(a.options.Config, rs); err != nil {
			return nil, err
		}
	}
	return domains, nil
}

// sends reports whether a door that is to be opened sends what is queued.
func (a *App) sends() bool {
	return slices.ContainsFunc(a.kinds, func(kind door.Door) bool {
		set := a.options.Config.Door(kind.Name)
		return kind.Sends && set.Open()
	})
}
