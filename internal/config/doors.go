package config

import (
	"fmt"
	"slices"
	"strings"
)

// Door is what every door has set, and where it listens.
type Door struct {
	// Name is that of the door and of its section.
	Name string
	// Address is host:port, unix:PATH or Off; empty if it has none of its own.
	// Default is that where nobody sets one, Key its setting, and Needs another
	// without which the door is closed.
	Address, Default, Key, Needs string
	// Asks is the setting by which callers have to say who they are, Asked that it
	// is set; empty if there is none.
	Asks  string
	Asked bool

	TLS TLS
	// HTTP are the bounds; of a door that is not over HTTP only those of its
	// connections are set.
	HTTP HTTP

	shares bool    // may be on the shared port
	public bool    // is made to be reached by everybody
	at     *string // where the address is kept
}

// Open reports whether it is to be opened at an address of its own.
func (d *Door) Open() bool { return d.Address != "" && d.Address != Off }

// Door returns what the door of that name has set; a closed door if there is none.
func (c *Config) Door(name string) Door {
	for _, d := range c.doors() {
		if d.Name == name {
			return d
		}
	}
	return Door{Name: name}
}

// doors returns all, as they are set now.
func (c *Config) doors() []Door {
	connections := func(most, perClient int64) HTTP { return HTTP{MaxConnections: most, MaxPerClient: perClient} }
	all := []Door{
		{
			Name: DoorAPI, at: &c.Listen.API, Default: DefaultAPI, TLS: c.API.TLS, HTTP: c.API.HTTP, shares: true,
			Asks: "api.token", Asked: len(c.API.Tokens) > 0,
		},
		{
			Name: DoorGRPC, at: &c.Listen.GRPC, Default: DefaultGRPC, TLS: c.GRPC.TLS, shares: true,
			HTTP: connections(c.GRPC.MaxConnections, c.GRPC.MaxPerClient),
		},
		{
			Name: DoorRESP, at: &c.Listen.RESP, Default: DefaultRESP, TLS: c.RESP.TLS, shares: true,
			HTTP: connections(c.RESP.MaxConnections, c.RESP.MaxPerClient), Asks: "resp.password", Asked: c.RESP.Password != "",
		},
		{
			Name: DoorProxy, at: &c.Proxy.Listen, Default: DefaultProxy, TLS: c.Proxy.TLS, HTTP: c.Proxy.HTTP, public: true,
			Key: "proxy.listen", Needs: "proxy.upstream",
		},
		{
			Name: DoorAdmin, at: &c.Listen.Admin, Default: DefaultAdmin, TLS: c.Admin.TLS, HTTP: c.Admin.HTTP,
			Asks: "admin.token", Asked: c.Admin.Token != "",
		},
		{
			Name: DoorShared, at: &c.Listen.Shared, TLS: c.Shared.TLS, public: true,
			HTTP: connections(c.Shared.MaxConnections, c.Shared.MaxPerClient),
		},
	}
	for _, s := range c.sections {
		d := s.door
		d.at = &s.door.Address
		if s.Asks != "" {
			d.Asks, d.Asked = s.Asks, s.Asked(s.own)
		}
		all = append(all, d)
	}
	for i := range all {
		d := &all[i]
		d.Address = *d.at
		if d.Name == DoorProxy && !c.Proxy.Open() {
			d.Address = Off
		}
		if d.Key == "" {
			d.Key = "listen." + d.Name
		}
	}
	return all
}

// Section is what a door declares of its settings: those that all doors have,
// below its name, and its own.
type Section struct {
	// Name is that of the door. Its address is listen.NAME, its other settings are
	// NAME.tls, NAME.max_connections and so on.
	Name string
	// Address is where it listens if nobody says otherwise; Off closes it.
	Address string
	// Shares lets it be on the shared port, if it has no address of its own.
	Shares bool
	// HTTP has it bounded as doors over HTTP are.
	HTTP bool
	// Own returns a struct for its own settings, with their defaults, and Settings
	// are the keys that set them.
	Own      func() any
	Settings []Setting
	// Asks is the key of these by which callers have to say who they are, and Asked
	// reports whether it is set. Empty if there is none.
	Asks  string
	Asked func(own any) bool
}

// section is a Section and what is set of it.
type section struct {
	Section
	door Door
	own  any
}

// declare adds the settings of doors.
func (c *Config) declare(doors []Section) {
	for _, d := range doors {
		s := &section{Section: d, door: Door{Name: d.Name, Default: d.Address, shares: d.Shares}}
		if !d.Shares { // else see placeDoors
			s.door.Address = d.Address
		}
		if d.Own != nil {
			s.own = d.Own()
		}
		c.sections = append(c.sections, s)
	}
}

// Own returns the settings of its own that a door has declared as a *T.
func Own[T any](c *Config, door string) *T {
	own, _ := c.section(door).own.(*T)
	return own
}

func (c *Config) section(door string) *section {
	i := slices.IndexFunc(c.sections, func(s *section) bool { return s.Name == door })
	return c.sections[i]
}

// settings are those that there are always, and those that doors declare.
func (c *Config) settings() []Setting {
	all := settings()
	for _, s := range c.sections {
		all = append(all, one("listen."+s.Name, func(c *Config, v string) (err error) {
			c.section(s.Name).door.Address, err = address(v)
			return err
		}))
		all = append(all, tlsSettings(s.Name, func(c *Config) *TLS { return &c.section(s.Name).door.TLS })...)
		bounds := func(c *Config) *HTTP { return &c.section(s.Name).door.HTTP }
		if s.HTTP {
			all = append(all, httpSettings(s.Name, bounds)...)
		} else {
			all = append(all, connectionSettings(s.Name, bounds)...)
		}
		all = append(all, s.Settings...)
	}
	return all
}

// OnShared reports whether a door is on the shared port: there is one, the door
// may be there, as the API, gRPC and the Redis protocol, and has no address of its
// own.
func (c *Config) OnShared(name string) bool {
	if c.Listen.Shared == "" || c.Listen.Shared == Off {
		return false
	}
	d := c.Door(name)
	return d.shares && d.Address == ""
}

// placeDoors gives those doors their default address that have none and are not
// on the shared port.
func (c *Config) placeDoors() {
	if c.Listen.Shared != "" && c.Listen.Shared != Off {
		return
	}
	for _, d := range c.doors() {
		if d.shares && *d.at == "" {
			*d.at = d.Default
		}
	}
}

// doorNames are the doors as proxy_protocol names them.
func (c *Config) doorNames() []string {
	names := []string{DoorAPI, DoorGRPC, DoorRESP, DoorAdmin, DoorProxy, DoorShared}
	for _, s := range c.sections {
		names = append(names, s.Name)
	}
	return names
}

// checkTLS finds TLS that is not whole, or that would have no effect.
func (c *Config) checkTLS() (errs Errors) {
	for _, d := range c.doors() {
		if err := d.TLS.check(d.Name); err != nil {
			errs = append(errs, err)
		} else if d.TLS.Enabled() && c.OnShared(d.Name) {
			errs = append(errs, &SourceError{
				Source: d.Name + ".tls", Message: "this door is on the shared port, which has its own certificate",
				Hint: "set shared.tls, or give the door an address of its own: listen." + d.Name,
			})
		}
	}
	for _, door := range c.ProxyProtocol.Doors {
		if c.OnShared(door) {
			errs = append(errs, &SourceError{
				Source: "proxy_protocol", Message: fmt.Sprintf("the door %s is on the shared port, whose connections begin alike for all", door),
				Hint: "name shared in its place",
			})
		}
	}
	return errs
}

// Exposure is what an operator should know about a door that other machines can
// reach.
type Exposure struct {
	// Door is its name, Why what is wrong, and Hint what helps.
	Door, Why, Hint string
	// Anybody is set if that is that nobody is asked.
	Anybody bool
}

// Exposed returns the doors that other machines can reach without TLS, or where
// nobody is asked who he is.
func (c *Config) Exposed() []Exposure {
	var all []Exposure
	for _, d := range c.doors() {
		where := d.Name
		if c.OnShared(d.Name) {
			where, d.Address, d.TLS = DoorShared, c.Listen.Shared, c.Shared.TLS
		}
		if d.public || !d.Open() || IsLoopback(d.Address) || strings.HasPrefix(d.Address, unixPrefix) {
			continue
		}
		if !d.Asked && d.TLS.ClientCA == "" {
			hint := "set " + where + ".tls.client_ca"
			if d.Asks != "" {
				hint = "set " + d.Asks + " or " + where + ".tls.client_ca"
			}
			all = append(all, Exposure{Door: d.Name, Why: "everybody who reaches " + d.Address + " may use it", Hint: hint, Anybody: true})
		}
		if !d.TLS.Enabled() {
			all = append(all, Exposure{Door: d.Name, Why: "it is not encrypted on " + d.Address, Hint: "set " + where + ".tls.cert and .key"})
		}
	}
	return all
}

// onlyProxy reports whether all requests come by the reverse proxy, so that none
// has other attributes than HTTP requests have.
func (c *Config) onlyProxy() bool {
	return c.Proxy.Open() && !slices.ContainsFunc(c.doors(), func(d Door) bool {
		return d.Name != DoorProxy && d.Name != DoorAdmin && d.Open()
	})
}
