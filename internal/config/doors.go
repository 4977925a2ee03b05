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

// DoorShared is the name of the port that several doors share.
const DoorShared = "shared"

// UnixPrefix starts the address of a unix socket.
const UnixPrefix = "unix:"

// SplitAddress returns the network and address to listen on.
func SplitAddress(address string) (network, rest string) {
	if socket, ok := strings.CutPrefix(address, UnixPrefix); ok {
		return "unix", socket
	}
	return "tcp", address
}

// IsLoopback reports whether host:port can be reached from this machine only.
func IsLoopback(hostPort string) bool {
	host, _, err := net.SplitHostPort(hostPort)
	return err == nil && isLoopbackHost(host)
}

func isLoopbackHost(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.Unmap().IsLoopback()
}

// Section declares the settings of a door: those that all doors have, and its own.
type Section struct {
	// Name is the door's name. Its address is listen.NAME, its other settings are
	// NAME.tls, NAME.max_connections and so on.
	Name string
	// Key is the setting of its address, if not listen.NAME. Sockets allows unix:PATH.
	Key     string
	Sockets bool
	Default string // default address; Off closes it
	Means   string // what the door is for, as in [Setting.Means]
	// Needs is a setting without which the door is closed, and Has reports whether it
	// is set. Empty if there is none.
	Needs  string
	Has    func(own any) bool
	Shares bool // the door may be on the shared port, if it has no address
	// OverHTTP adds the limits of HTTP doors. OnlyHTTP says that requests have no other
	// attributes than those of HTTP.
	OverHTTP, OnlyHTTP bool
	// Public says that the door is meant for untrusted clients, Operators that it takes
	// no requests to be limited.
	Public, Operators bool
	// Own returns a struct with the defaults of its own settings, Settings their keys.
	Own      func() any
	Settings []Setting
	// Asks is the key of the setting that authenticates callers, and Asked reports
	// whether it is set. Empty if there is none.
	Asks  string
	Asked func(*Config) bool
	Guard *Guarded // requires authentication if other machines can reach the door; nil if not required
	// Check finds conflicting settings. Settle is called if there are none: it adapts
	// the reading of rules, and warns. Both may be nil.
	Check  func(*Config) Errors
	Settle func(*Config)
}

// Guarded has the words of the error about a door that other machines can reach
// without authentication.
type Guarded struct {
	// Secret is what authenticates callers, such as a password, and Use what others
	// could do without it, such as "use the Redis protocol".
	Secret, Use  string
	Certificates bool // client certificates are enough
}

// Door has the settings of a door and its address.
type Door struct {
	Section
	// Address is host:port, unix:PATH or Off; empty for a door on the shared port.
	Address string
	TLS     TLS
	HTTP    HTTP // limits; a door that is not over HTTP has only those of connections

	own any
}

// HTTP has the limits of a door over HTTP. 0 is the door's default.
type HTTP struct {
	// MaxConnections limits open connections, MaxPerClient those of one client
	// (negative: no limit), MaxStreams the in-flight requests of an HTTP/2 connection.
	MaxConnections, MaxPerClient, MaxStreams int64
	MaxHeader                                int64 // maximum size of a request's header, in bytes
	// HeaderTimeout limits reading the header, ReadTimeout the whole request,
	// WriteTimeout the time from there to the end of the answer, and IdleTimeout the
	// time until the next request.
	HeaderTimeout, ReadTimeout, WriteTimeout, IdleTimeout time.Duration
	// StallTimeout is how long a client may take nothing of an answer that waits for it; 0
	// is the default, and below 0 forever.
	StallTimeout time.Duration
}

// Open reports whether the door opens at its own address.
func (d *Door) Open() bool {
	return d.Address != "" && d.Address != Off && (d.Has == nil || d.Has(d.own))
}

// asks reports whether callers of a door must authenticate.
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

// Own returns the settings of type T that a door has declared.
func Own[T any](c *Config) *T {
	for _, d := range c.doors {
		if own, ok := d.own.(*T); ok {
			return own
		}
	}
	return nil
}

// settings returns the general settings and those of the doors.
func (c *Config) settings() []Setting {
	all := settings()
	for _, d := range c.doors {
		own := func(c *Config) *Door { return c.Door(d.Name) }
		parse, values := address, "host:port, `off`"
		if d.Sockets {
			parse, values = addressOrSocket, "host:port, `unix:PATH`, `off`"
		}
		all = append(all, Setting{key: d.Key, rules: true, values: values, set: func(c *Config, v []string) (err error) {
			own(c).Address, err = parse(v[0])
			return err
		}}.Means(cmp.Or(d.Default, "none"), d.Means))
		all = append(append(all, tlsSettings(d.Name)...), boundSettings(d)...)
		all = append(all, d.Settings...)
	}
	return all
}

// boundSettings returns the limits on a door's connections. A door that is not meant for
// strangers has few: its callers are known, and its defaults suit them.
func boundSettings(d *Door) []Setting {
	door := d.Name
	of := func(c *Config) *HTTP { return &c.Door(door).HTTP }
	all := []Setting{Count(door+".max_connections", func(c *Config) *int64 { return &of(c).MaxConnections }, 1_000_000).Means("10,000; admin 1000; fewer if [file descriptors](run/overload.md) are scarce", "open connections: [limits on connections](run/tls.md#connection-limits)")}
	http := d.OverHTTP && !d.Operators
	if d.Public || http {
		all = append(all, One(door+".max_connections_per_client", func(c *Config, v string) (err error) {
			if of(c).MaxPerClient = -1; v != Off {
				of(c).MaxPerClient, err = wholeNumber(v, 1, 1_000_000)
			}
			return err
		}).As("1 to 1000000, `off`").Means("half of `max_connections`", "open connections of [one client](run/tls.md#connections-per-client)"))
	}
	if http {
		all = append(all, Period(door+".idle_timeout", func(c *Config) *time.Duration { return &of(c).IdleTimeout }).Means("`2m`", "time without a request"))
	}
	if !d.Public || !http {
		return all
	}
	return append(all,
		Count(door+".max_streams", func(c *Config) *int64 { return &of(c).MaxStreams }, 100_000).Means("250", "concurrent requests on an HTTP/2 connection"),
		MessageSize(door+".max_header", func(c *Config) *int64 { return &of(c).MaxHeader }).Means("`64KiB`", "size of a request's header"),
		Period(door+".header_timeout", func(c *Config) *time.Duration { return &of(c).HeaderTimeout }).Means("`10s`", "time for the TLS handshake and the header"),
		Period(door+".read_timeout", func(c *Config) *time.Duration { return &of(c).ReadTimeout }).Means("none", "time for the whole request"),
		Period(door+".write_timeout", func(c *Config) *time.Duration { return &of(c).WriteTimeout }).Means("none", "time from there to the end of the answer"),
		DurationOrOff(door+".stall_timeout", func(c *Config) *time.Duration { return &of(c).StallTimeout }).Means("`1m`", "time in which a client [takes nothing](run/tls.md#clients-that-do-not-read) of an answer"),
	)
}

// OnShared reports whether a door is on the shared port: there is one, the door may
// use it and has no address.
func (c *Config) OnShared(name string) bool {
	d := c.Door(name)
	return c.Door(DoorShared).Open() && d.Shares && d.Address == ""
}

// Reached returns the door itself, or the shared port that it is on.
func (c *Config) Reached(name string) *Door {
	if c.OnShared(name) {
		name = DoorShared
	}
	return c.Door(name)
}

// placeDoors gives doors without an address their default, unless they are on the
// shared port.
func (c *Config) placeDoors() {
	for _, d := range c.doors {
		if !c.OnShared(d.Name) {
			d.Address = cmp.Or(d.Address, d.Default)
		}
	}
}

// doorNames returns the names that proxy_protocol accepts.
func (c *Config) doorNames() []string {
	var names []string
	for _, d := range c.doors {
		if d.Name != DoorShared {
			names = append(names, d.Name)
		}
	}
	return append(names, DoorShared)
}

// checkDoors finds doors that must not open with these settings.
func (c *Config) checkDoors() (errs Errors) {
	for _, d := range c.doors {
		errs = append(append(errs, c.checkGuard(d)...), d.contradictions(c)...)
	}
	return errs
}

// contradictions returns which settings of a door contradict each other.
func (d *Door) contradictions(c *Config) Errors {
	if d.Check == nil {
		return nil
	}
	return d.Check(c)
}

// checkGuard returns an error for a guarded door without authentication that other
// machines can reach, directly or through a load balancer with the PROXY protocol.
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
		errs.addAt(at.Key, fmt.Sprintf("%s is reachable from other machines, but there is no %s", at.Address, d.Guard.Secret), hint+", or listen on "+d.Default)
	}
	if slices.Contains(c.ProxyProtocol.Doors, at.Name) {
		why := fmt.Sprintf("it lets other machines %s, but there is no %s", d.Guard.Use, d.Guard.Secret)
		errs.addAt("proxy_protocol", why, hint+", or remove "+at.Name)
	}
	return errs
}

// checkTLS finds incomplete TLS settings and those without effect.
func (c *Config) checkTLS() (errs Errors) {
	if c.TLS.Enabled() || c.TLS.Key != "" {
		if err := c.TLS.check("tls"); err != nil {
			return Errors{err}
		}
	}
	for _, d := range c.doors {
		if err := d.TLS.check(d.Name + ".tls"); err != nil {
			errs = append(errs, err)
		} else if d.TLS.Enabled() && c.OnShared(d.Name) {
			errs.addAt(d.Name+".tls", "this door is on the shared port, which has its own certificate",
				"set shared.tls, or give the door its own address: listen."+d.Name)
		}
	}
	for _, door := range c.ProxyProtocol.Doors {
		if c.OnShared(door) {
			errs.addAt("proxy_protocol", fmt.Sprintf("the door %s is on the shared port, where all connections start the same way", door), "list shared instead")
		}
	}
	return errs
}

// Exposure is a warning about a door that other machines can reach.
type Exposure struct {
	Door, Why, Hint string // Door is the door's name, Why the problem, Hint the fix
	Anybody         bool   // any client can use the door
}

// Exposed returns the doors that other machines can reach without TLS or without
// authentication.
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
			all = append(all, Exposure{Door: d.Name, Why: "connections to " + at.Address + " are not encrypted", Hint: "set tls.cert and tls.key"})
		}
	}
	return all
}

// settleDoors sets in RuleOptions which attributes requests can have: only those of
// HTTP if all open doors are over HTTP. The proxy and forward-auth know claims only
// if tokens are verified; other callers can always send them.
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
	c.warnOfClosed()
}

// warnOfClosed warns about settings of doors that are closed, because they lack the setting
// that they need.
func (c *Config) warnOfClosed() {
	for _, d := range c.doors {
		if _, given := c.places[d.Name]; given && d.Has != nil && !d.Has(d.own) && d.Address != Off {
			c.warn(d.Name, fmt.Sprintf("the %s does not start without %s", d.Name, d.Needs), "set "+d.Needs)
		}
	}
}
