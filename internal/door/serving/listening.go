package serving

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/door"
	"github.com/headgate/headgate/internal/transport/netbound"
	"github.com/headgate/headgate/internal/transport/oneport"
	"github.com/headgate/headgate/internal/transport/proxyproto"
	"github.com/headgate/headgate/internal/transport/unread"
)

// Listen opens the listeners of all doors. The error is a *ListenError.
func (d *Doors) Listen(ctx context.Context) error {
	d.divide()
	for _, k := range d.kinds {
		if !k.set.Open() {
			continue
		}
		err := d.listen(ctx, k, k.set.Address)
		if d.mayMove(k) && errors.Is(err, syscall.EADDRINUSE) {
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
		return &ListenError{Door: k.Name, Address: address, Setting: k.set.Key, Err: err}
	}
	o := &openDoor{kind: k, encrypted: k.certificate != nil}
	o.listener = d.wrap(o, l)
	d.add(o)
	return nil
}

// mayMove reports whether a door opens on another port if its own is taken.
func (d *Doors) mayMove(k *kind) bool {
	return k.Operators && d.OperatorsMayMove && k.set.Address == k.set.Default
}

// checkAddresses finds two doors at the same address, which cannot be opened.
func (d *Doors) checkAddresses() error {
	for i, k := range d.kinds {
		if !k.set.Open() || d.mayMove(k) {
			continue
		}
		for _, other := range d.kinds[:i] {
			if other.set.Open() && overlap(other.set.Address, k.set.Address) {
				return &config.SourceError{
					Source: k.set.Key, Message: fmt.Sprintf("%s is taken by %s", k.set.Address, other.set.Key),
					Hint: "give each its own, or use listen.shared to serve the API, gRPC and the Redis protocol on one port",
				}
			}
		}
	}
	return nil
}

// overlap reports whether no two listeners can have these addresses: their port is the same, and
// their host too, or one is for all hosts. Names of hosts are only compared.
func overlap(a, b string) bool {
	if a == b && strings.HasPrefix(a, config.UnixPrefix) {
		return true
	}
	hostA, portA, errA := net.SplitHostPort(a)
	hostB, portB, errB := net.SplitHostPort(b)
	if errA != nil || errB != nil || portA != portB || portA == "0" {
		return false
	}
	hostA, hostB = ipOf(hostA), ipOf(hostB)
	return hostA == hostB || hostA == everywhere || hostB == everywhere
}

// everywhere stands for all addresses of this machine.
const everywhere = "0.0.0.0"

// ipOf returns a host as an IP address in one spelling, or its name.
func ipOf(host string) string {
	addr, err := netip.ParseAddr(host)
	switch {
	case host == "", err == nil && addr.Unmap().IsUnspecified():
		return everywhere
	case host == "localhost":
		return "127.0.0.1"
	case err == nil:
		return addr.Unmap().String()
	}
	return host
}

// listenAt listens at host:port or unix:PATH. It replaces a socket that a process left
// behind.
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
		return nil, err // it is in use
	}
	if info, statErr := os.Lstat(address); statErr != nil || info.Mode()&os.ModeSocket == 0 {
		return nil, err
	}
	if removeErr := os.Remove(address); removeErr != nil {
		return nil, removeErr
	}
	return lc.Listen(ctx, network, address)
}

// wrap adds the layers between network and protocol to the listener of a door. From the
// outside in: the PROXY protocol, which identifies the client; the limit on connections
// of one client; the limit on all connections. TLS follows, in the door's server.
func (d *Doors) wrap(o *openDoor, l net.Listener) net.Listener {
	log := d.Logger.With("door", o.Name)
	o.watched = netbound.Watch(l, log)
	if !o.Operators {
		if err := o.watched.Yield(); err != nil {
			log.Warn("new connections are accepted even when the process is short of CPU", "err", err)
		}
	}
	l = d.boundsClients(o, d.namesClients(o.Name, o.watched))
	if o.Counts {
		return l
	}
	bounds := netbound.Options{Max: d.parts[o.Name], Logger: log, Policy: o.Policy, Unread: d.unread, Terms: d.terms(o.kind), Heads: d.heads}
	if !o.Operators {
		bounds.Busy = d.tooBusy
	}
	o.bound = netbound.New(l, bounds)
	return o.bound
}

// terms returns what applies to answers that clients do not read. On the shared port that is
// what applies to the door there that has such a setting.
func (d *Doors) terms(k *kind) unread.Terms {
	pause := k.set.HTTP.StallTimeout
	for _, on := range d.kinds {
		if k.Name == config.DoorShared && d.Config.OnShared(on.Name) {
			pause = cmp.Or(pause, on.set.HTTP.StallTimeout)
		}
	}
	return unread.Terms{Pause: pause, Cost: max(k.Answer, leastAnswer)}
}

// namesClients wraps the listener of a door in the PROXY protocol, if it is configured.
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

// boundsClients wraps the listener of a door in the limit on connections of a single
// client, unless that is off. The default is half of the door's connections.
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

// countedClient returns the network that counts as one client with addr. It reports
// false for trusted proxies, which connect for many clients, and for this machine's own
// programs: neither is limited.
func (d *Doors) countedClient(addr netip.Addr) (netip.Prefix, bool) {
	if d.Local(addr) || d.Clients.TrustsAddr(addr) {
		return netip.Prefix{}, false
	}
	return d.Clients.Network(addr), true
}

// openShared adds the doors on the shared port.
func (d *Doors) openShared(root *openDoor) {
	d.port = oneport.New(root.listener, oneport.Options{TLS: root.encryption()})
	for _, k := range d.kinds {
		if d.Config.OnShared(k.Name) {
			d.add(&openDoor{kind: k, listener: d.port.Listener(k.Speaks), over: root.bound, encrypted: root.encrypted})
		}
	}
}

// sharedPort is the server of the shared port. It gives connections to their doors.
type sharedPort struct{ port *oneport.Port }

// Serve implements [door.Server].
func (s sharedPort) Serve(net.Listener) error { return s.port.Serve() }

// Drain implements [door.Drainer].
func (s sharedPort) Drain(ctx context.Context) { s.port.Drain(ctx) }

// Shutdown implements [door.Server].
func (s sharedPort) Shutdown(context.Context) error { return s.port.Close() }

// ListenError reports that a door could not be opened.
type ListenError struct {
	Door, Address, Setting string // the door's name, its address, and the setting of that
	Err                    error
}

// Error returns a message with the door, the address and the reason.
func (e *ListenError) Error() string {
	err := e.Err
	if op, ok := errors.AsType[*net.OpError](err); ok {
		err = op.Err // drops "listen tcp" and the repeated address
	}
	return fmt.Sprintf("cannot open %s on %s: %v", e.Door, e.Address, err)
}

// Unwrap returns the reason.
func (e *ListenError) Unwrap() error { return e.Err }

// Hint returns advice on what to do, or "".
func (e *ListenError) Hint() string {
	var errno syscall.Errno
	if !errors.As(e.Err, &errno) {
		return "use host:port, such as 127.0.0.1:8080"
	}
	switch errno {
	case syscall.EADDRINUSE:
		return "another process is using this address: stop it or choose another address"
	case syscall.EACCES, syscall.EPERM:
		return "ports below 1024 require CAP_NET_BIND_SERVICE: choose a higher port"
	case syscall.EADDRNOTAVAIL:
		return "this machine does not have that address"
	}
	return ""
}
