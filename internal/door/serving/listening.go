package serving

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"syscall"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/door"
	"github.com/headgate/headgate/internal/transport/netbound"
	"github.com/headgate/headgate/internal/transport/oneport"
	"github.com/headgate/headgate/internal/transport/proxyproto"
)

// Listen opens the listeners of all doors. The error is a *ListenError.
func (d *Doors) Listen(ctx context.Context) error {
	d.divide()
	for _, k := range d.kinds {
		if !k.set.Open() {
			continue
		}
		err := d.listen(ctx, k, k.set.Address)
		if k.Operators && d.OperatorsMayMove && k.set.Address == k.set.Default && errors.Is(err, syscall.EADDRINUSE) {
			d.Logger.Warn("default admin address is in use, using a free port", "usual", k.set.Address)
			err = d.listen(ctx, k, "127.0.0.1:0")
		}
		if err != nil {
			return err
		}
		if k.Name == config.DoorShared {
			d.openShared(d.open[len(d.open)-1])
		}
	}
	return nil
}

func (d *Doors) listen(ctx context.Context, k *kind, address string) error {
	l, err := listenAt(ctx, address)
	if err != nil {
		e := &ListenError{Door: k.Name, Address: address, Setting: k.set.Key, Err: err}
		if errors.Is(err, syscall.EADDRINUSE) {
			e.Other = d.whoseIs(address)
		}
		return e
	}
	o := &openDoor{kind: k, encrypted: k.certificate != nil}
	o.listener = d.wrap(o, l)
	d.add(o)
	return nil
}

// whoseIs returns the setting of the open door that is reached at an address, or
// an empty string.
func (d *Doors) whoseIs(address string) string {
	wanted, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return ""
	}
	for _, o := range d.open {
		has, ok := o.listener.Addr().(*net.TCPAddr)
		if ok && has.Port == wanted.Port && (has.IP.Equal(wanted.IP) || has.IP.IsUnspecified() || len(wanted.IP) == 0 || wanted.IP.IsUnspecified()) {
			return o.set.Key
		}
	}
	return ""
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

// wrap puts around the listener of a door what lies between the network and the
// protocol. From the outside in: the PROXY protocol, which says who is at the other
// end; the bound on the connections of one client; that on all; and then, at the
// server of the door, TLS.
func (d *Doors) wrap(o *openDoor, l net.Listener) net.Listener {
	log := d.Logger.With("door", o.Name)
	o.watched = netbound.Watch(l, log)
	l = d.boundsClients(o, d.namesClients(o.Name, o.watched))
	if o.Counts {
		return l
	}
	bounds := netbound.Options{Max: d.parts[o.Name], Logger: log, Policy: o.Policy}
	if !o.Operators {
		bounds.Busy = d.tooBusy
	}
	o.bound = netbound.New(l, bounds)
	return o.bound
}

// namesClients puts the PROXY protocol around the listener of a door, if the door
// is to speak it.
func (d *Doors) namesClients(name string, l net.Listener) net.Listener {
	c := &d.Config.ProxyProtocol
	if !slices.Contains(c.Doors, name) {
		return l
	}
	var told door.Seldom
	return proxyproto.NewListener(l, proxyproto.Options{
		Trusts: d.Clients.TrustsAddr, Untrusted: c.Untrusted,
		Refused: func(peer net.Addr, err error) {
			if !told.Passes(d.Clock()) {
				d.Logger.Debug("connection refused", "door", name, "peer", peer.String(), "err", err)
				return
			}
			d.Logger.Warn("connection refused; further ones within a minute are logged at debug level",
				"door", name, "peer", peer.String(), "err", err)
		},
	})
}

// boundsClients puts around the listener of a door the bound on the connections of
// a single client, unless there is none: what is configured, else half of what
// there is room for.
func (d *Doors) boundsClients(o *openDoor, l net.Listener) net.Listener {
	most := int(o.set.HTTP.MaxPerClient)
	switch {
	case most < 0:
		return l
	case most == 0:
		most = max(d.parts[o.Name]/2, 1)
	}
	log := d.Logger.With("door", o.Name)
	var told door.Seldom
	o.clients = netbound.NewPerClient(l, netbound.PerClientOptions{
		Max: most, Client: d.countedClient,
		Refused: func(client netip.Prefix) {
			if told.Passes(d.Clock()) {
				log.Warn("too many connections from one client, further ones are closed", "client", client.String(), "max", most,
					"refused", o.clients.Refused(), "hint", "if many clients share this address, for example behind a load balancer, "+
						"add it to trusted_proxies or raise "+o.Name+".max_connections_per_client")
			}
		},
	})
	return o.clients
}

// countedClient returns what counts as one client with addr. Trusted proxies have
// the connections of many clients, and this machine those of its own programs:
// neither is bounded.
func (d *Doors) countedClient(addr netip.Addr) (netip.Prefix, bool) {
	if d.Local(addr) || d.Clients.TrustsAddr(addr) {
		return netip.Prefix{}, false
	}
	return d.Clients.Network(addr), true
}

// openShared adds the doors that are behind the port.
func (d *Doors) openShared(root *openDoor) {
	d.port = oneport.New(root.listener, oneport.Options{TLS: root.encryption(), Timeout: config.Own[settings](d.Config).handshake})
	for _, k := range d.kinds {
		if d.Config.OnShared(k.Name) {
			d.add(&openDoor{kind: k, listener: d.port.Listener(k.Speaks), over: root.bound, encrypted: root.encrypted})
		}
	}
}

// sharedPort tells the connections of the port apart.
type sharedPort struct{ port *oneport.Port }

// Serve implements [door.Server].
func (s sharedPort) Serve(net.Listener) error { return s.port.Serve() }

// Drain implements [door.Drainer].
func (s sharedPort) Drain(ctx context.Context) { s.port.Drain(ctx) }

// Shutdown implements [door.Server].
func (s sharedPort) Shutdown(context.Context) error { return s.port.Close() }

// ListenError says that a door could not be opened.
type ListenError struct {
	Door, Address, Setting string // Door is its name, Address where it should have been, by Setting
	Other                  string // the setting of another door of this process that has the address, or empty
	Err                    error
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

// Hint says what to do about it.
func (e *ListenError) Hint() string {
	var errno syscall.Errno
	if !errors.As(e.Err, &errno) {
		return "use host:port, such as 127.0.0.1:8080"
	}
	switch errno {
	case syscall.EADDRINUSE:
		if e.Other != "" {
			return fmt.Sprintf("%s and %s are the same address: give each its own, or use listen.shared to serve the API, gRPC and the Redis protocol on one port", e.Other, e.Setting)
		}
		return "another process is using this address: stop it or choose another address"
	case syscall.EACCES, syscall.EPERM:
		return "ports below 1024 require CAP_NET_BIND_SERVICE: choose a higher port"
	case syscall.EADDRNOTAVAIL:
		return "this machine does not have that address"
	}
	return ""
}
