package config

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// DoorShared is the name of the port that several doors share. Others have only
// theirs in the list of doors.
const DoorShared = "shared"

// UnixPrefix begins the address of a unix socket.
const UnixPrefix = "unix:"

// SplitAddress returns the network and the address to listen on.
func SplitAddress(address string) (network, rest string) {
	if socket, ok := strings.CutPrefix(address, UnixPrefix); ok {
		return "unix", socket
	}
	return "tcp", address
}

// IsLoopback reports whether what listens at host:port is reached from this
// machine only.
func IsLoopback(hostPort string) bool {
	host, _, err := net.SplitHostPort(hostPort)
	return err == nil && isLoopbackHost(host)
}

func isLoopbackHost(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.Unmap().IsLoopback()
}

// Section is what a door declares of its settings: those that all doors have,
// below its name, and its own.
type Section struct {
	// Name is that of the door. Its address is listen.NAME, its other settings are
	// NAME.tls, NAME.max_connections and so on.
	Name string
	// Key is the setting of its address, if not listen.NAME. Sockets says that the
	// address may be unix:PATH.
	Key     string
	Sockets bool
	Default string // where it listens if nobody says otherwise; Off closes it
	// Needs is another setting without which it is closed, and Has reports whether
	// that is set. Empty if there is none.
	Needs  string
	Has    func(own any) bool
	Shares bool // lets it be on the shared port, if it has no address of its own
	// OverHTTP has it bounded as doors over HTTP are, and OnlyHTTP says that callers
	// have no attributes but those of HTTP requests.
	OverHTTP, OnlyHTTP bool
	// Public says that it is made to be reached by everybody, Operators that no
	// request comes by it.
	Public, Operators bool
	// Own returns a struct for its own settings, with their defaults, and Settings
	// are the keys that set them.
	Own      func() any
	Settings []Setting
	// Asks is the key of a setting by which callers have to say who they are, and
	// Asked reports whether it is set. Empty if there is none.
	Asks  string
	Asked func(*Config) bool
	Guard *Guarded // keeps it from being reached by others if nobody is asked; nil for a door that may be
	// Check finds settings that make no sense together. Settle comes when there are
	// none: it says what doors know of requests, and warns. Both may be nil.
	Check  func(*Config) Errors
	Settle func(*Config)
}

// Guarded is what is told to operators who open a door to others, where nobody is
// asked.
type Guarded struct {
	// Secret is what callers would be asked for, such as a password, and Use what
	// others could do, such as "use the Redis protocol".
	Secret, Use  string
	Certificates bool // those of clients would do
}

// Door is what a door has set, and where it listens.
type Door struct {
	Section
	// Address is host:port, unix:PATH or Off; empty if it has none of its own.
	Address string
	TLS     TLS
	HTTP    HTTP // the bounds; of a door that is not over HTTP only those of its connections are set

	own any
}

// HTTP bounds what callers of a door over HTTP may do. What is 0 has the
// default of the door.
type HTTP struct {
	// MaxConnections is how many may be open at once, MaxPerClient how many of
	// one client (negative: any number), MaxStreams how many requests one of
	// HTTP/2 may have in flight.
	MaxConnections, MaxPerClient, MaxStreams int64
	MaxHeader                                int64 // how large the header of a request may be, in bytes
	// HeaderTimeout is how long the header may take, ReadTimeout the whole
	// request, WriteTimeout everything from there to the end of the answer,
	// and IdleTimeout the time until the next request.
	HeaderTimeout, ReadTimeout, WriteTimeout, IdleTimeout time.Duration
}

// Open reports whether it is to be opened at an address of its own.
func (d *Door) Open() bool {
	return d.Address != "" && d.Address != Off && (d.Has == nil || d.Has(d.own))
}

// asks reports whether callers of a door have to say who they are.
func (c *Config) asks(d *Door) bool { return d.Asked != nil && d.Asked(c) }

// Closed returns a Config without defaults whose doors are all closed.
func Closed(doors []Section) *Config {
	c := &Config{}
	for _, s := range doors {
		d := &Door{Section: s}
		d.Key = cmp.Or(d.Key, "listen."+s.Name)
		if s.Own != nil {
			d.own = s.Own()
		}
		c.doors = append(c.doors, d)
	}
	return c
}

// Door returns the settings of the door of that name; a closed door if there is
// none.
func (c *Config) Door(name string) *Door {
	for _, d := range c.doors {
		if d.Name == name {
			return d
		}
	}
	return &Door{Section: Section{Name: name}}
}

// Own returns the settings that a door has declared as a *T of its own.
func Own[T any](c *Config) *T {
	for _, d := range c.doors {
		if own, ok := d.own.(*T); ok {
			return own
		}
	}
	return nil
}

// settings are those that there are always, and those of doors.
func (c *Config) settings() []Setting {
	all := settings()
	for _, d := range c.doors {
		own := func(c *Config) *Door { return c.Door(d.Name) }
		parse := address
		if d.Sockets {
			parse = addressOrSocket
		}
		all = append(all, Setting{key: d.Key, rules: true, set: func(c *Config, v []string) (err error) {
			own(c).Address, err = parse(v[0])
			return err
		}})
		all = append(append(all, tlsSettings(d.Name)...), boundSettings(d.Name)...)
		if d.OverHTTP {
			all = append(all, httpSettings(d.Name)...)
		}
		all = append(all, d.Settings...)
	}
	return all
}

// boundSettings are the bounds of the connections of a door.
func boundSettings(door string) []Setting {
	of := func(c *Config) *HTTP { return &c.Door(door).HTTP }
	return []Setting{
		Count(door+".max_connections", func(c *Config) *int64 { return &of(c).MaxConnections }, 1_000_000),
		One(door+".max_connections_per_client", func(c *Config, v string) (err error) {
			if of(c).MaxPerClient = -1; v != Off {
				of(c).MaxPerClient, err = wholeNumber(v, 1, 1_000_000)
			}
			return err
		}),
	}
}

// httpSettings are the bounds of a door over HTTP.
func httpSettings(door string) []Setting {
	of := func(c *Config) *HTTP { return &c.Door(door).HTTP }
	return []Setting{
		Count(door+".max_streams", func(c *Config) *int64 { return &of(c).MaxStreams }, 100_000),
		MessageSize(door+".max_header", func(c *Config) *int64 { return &of(c).MaxHeader }),
		Period(door+".header_timeout", func(c *Config) *time.Duration { return &of(c).HeaderTimeout }),
		Period(door+".read_timeout", func(c *Config) *time.Duration { return &of(c).ReadTimeout }),
		Period(door+".write_timeout", func(c *Config) *time.Duration { return &of(c).WriteTimeout }),
		Period(door+".idle_timeout", func(c *Config) *time.Duration { return &of(c).IdleTimeout }),
	}
}

// OnShared reports whether a door is on the shared port: there is one, the door
// may be there and has no address of its own.
func (c *Config) OnShared(name string) bool {
	d := c.Door(name)
	return c.Door(DoorShared).Open() && d.Shares && d.Address == ""
}

// Reached returns where a door is reached: the door itself, or the shared port that
// it is on.
func (c *Config) Reached(name string) *Door {
	if c.OnShared(name) {
		name = DoorShared
	}
	return c.Door(name)
}

// placeDoors gives those doors their default address that have none and are not
// on the shared port.
func (c *Config) placeDoors() {
	for _, d := range c.doors {
		if !c.OnShared(d.Name) {
			d.Address = cmp.Or(d.Address, d.Default)
		}
	}
}

// doorNames are the doors as proxy_protocol names them.
func (c *Config) doorNames() []string {
	var names []string
	for _, d := range c.doors {
		if d.Name != DoorShared {
			names = append(names, d.Name)
		}
	}
	return append(names, DoorShared)
}

// checkDoors finds doors that nobody may open like that.
func (c *Config) checkDoors() (errs Errors) {
	for _, d := range c.doors {
		errs = append(errs, c.checkGuard(d)...)
		if d.Check != nil {
			errs = append(errs, d.Check(c)...)
		}
	}
	return errs
}

// checkGuard refuses to open a door to others that asks nobody who he is, since
// only this machine reaches it; and to those whose connections a load balancer
// forwards to it: that is what the header of the PROXY protocol says.
func (c *Config) checkGuard(d *Door) (errs Errors) {
	at := c.Reached(d.Name)
	if d.Guard == nil || !at.Open() || c.asks(d) || d.Guard.Certificates && at.TLS.ClientCA != "" {
		return nil
	}
	hint := "set " + variable(d.Asks) + " or " + d.Asks
	if d.Guard.Certificates {
		hint += ", ask for client certificates with tls.client_ca"
	}
	if !IsLoopback(at.Address) {
		errs.note(at.Key, fmt.Sprintf("%s is reachable from other machines, but there is no %s", at.Address, d.Guard.Secret), hint+", or listen on "+d.Default)
	}
	if slices.Contains(c.ProxyProtocol.Doors, at.Name) {
		why := fmt.Sprintf("it lets other machines %s, but there is no %s", d.Guard.Use, d.Guard.Secret)
		errs.note("proxy_protocol", why, hint+", or remove "+at.Name)
	}
	return errs
}

// checkTLS finds TLS that is not whole, or that would have no effect.
func (c *Config) checkTLS() (errs Errors) {
	for _, d := range c.doors {
		if err := d.TLS.check(d.Name); err != nil {
			errs = append(errs, err)
		} else if d.TLS.Enabled() && c.OnShared(d.Name) {
			errs.note(d.Name+".tls", "this door is on the shared port, which has its own certificate",
				"set shared.tls, or give the door its own address: listen."+d.Name)
		}
	}
	for _, door := range c.ProxyProtocol.Doors {
		if c.OnShared(door) {
			errs.note("proxy_protocol", fmt.Sprintf("the door %s is on the shared port, where all connections start the same way", door), "list shared instead")
		}
	}
	return errs
}

// Exposure is what an operator should know about a door that other machines can
// reach.
type Exposure struct {
	Door, Why, Hint string // Door is its name, Why what is wrong, and Hint what helps
	Anybody         bool   // set if that is that nobody is asked
}

// Exposed returns the doors that other machines can reach without TLS, or where
// nobody is asked who he is.
func (c *Config) Exposed() []Exposure {
	var all []Exposure
	for _, d := range c.doors {
		at := c.Reached(d.Name)
		if d.Public || !at.Open() || IsLoopback(at.Address) || strings.HasPrefix(at.Address, UnixPrefix) {
			continue
		}
		if !c.asks(d) && at.TLS.ClientCA == "" {
			hint := "set " + at.Name + ".tls.client_ca"
			if d.Asks != "" {
				hint = "set " + d.Asks + " or " + at.Name + ".tls.client_ca"
			}
			all = append(all, Exposure{Door: d.Name, Why: "every client that can reach " + at.Address + " can use it", Hint: hint, Anybody: true})
		}
		if !at.TLS.Enabled() {
			all = append(all, Exposure{Door: d.Name, Why: "connections to " + at.Address + " are not encrypted", Hint: "set " + at.Name + ".tls.cert and .key"})
		}
	}
	return all
}

// settleDoors tells those who read rules what the requests at the doors have: only
// what HTTP requests have, if none comes by a door that has more. Claims are known
// to the proxy and to forward-auth, which asks on behalf of a trusted proxy, if
// tokens are verified; to other callers anyway.
func (c *Config) settleDoors() {
	onlyHTTP := slices.ContainsFunc(c.doors, func(d *Door) bool { return d.OnlyHTTP && d.Open() })
	others := slices.ContainsFunc(c.doors, func(d *Door) bool { return !d.OnlyHTTP && !d.Operators && d.Open() })
	c.RuleOptions.OnlyHTTP = onlyHTTP && !others
	c.RuleOptions.NoTokens = !c.JWT.Enabled() && (onlyHTTP || len(c.TrustedProxies) > 0)
	for _, d := range c.doors {
		if d.Settle != nil {
			d.Settle(c)
		}
	}
}
