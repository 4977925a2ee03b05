package config

// Door is what every door has set, and where it listens.
type Door struct {
	// Address is host:port, unix:PATH or Off; empty if it has none of its own.
	// Default is that where nobody sets one, Key its setting, and Needs another
	// without which the door is closed.
	Address, Default, Key, Needs string

	TLS TLS
	// HTTP are the bounds; of a door that is not over HTTP only those of its
	// connections are set.
	HTTP HTTP
}

// Open reports whether it is to be opened at an address of its own.
func (d *Door) Open() bool { return d.Address != "" && d.Address != Off }

// Door returns what the door of that name has set.
func (c *Config) Door(name string) Door {
	switch name {
	case DoorAPI:
		return Door{Address: c.Listen.API, Default: DefaultAPI, Key: "listen.api", TLS: c.API.TLS, HTTP: c.API.HTTP}
	case DoorGRPC:
		return Door{Address: c.Listen.GRPC, Default: DefaultGRPC, Key: "listen.grpc", TLS: c.GRPC.TLS, HTTP: HTTP{MaxConnections: c.GRPC.MaxConnections, MaxPerClient: c.GRPC.MaxPerClient}}
	case DoorRESP:
		return Door{Address: c.Listen.RESP, Default: DefaultRESP, Key: "listen.resp", TLS: c.RESP.TLS, HTTP: HTTP{MaxConnections: c.RESP.MaxConnections, MaxPerClient: c.RESP.MaxPerClient}}
	case DoorAdmin:
		return Door{Address: c.Listen.Admin, Default: DefaultAdmin, Key: "listen.admin", TLS: c.Admin.TLS, HTTP: c.Admin.HTTP}
	case DoorProxy:
		d := Door{Address: c.Proxy.Listen, Default: DefaultProxy, Key: "proxy.listen", Needs: "proxy.upstream", TLS: c.Proxy.TLS, HTTP: c.Proxy.HTTP}
		if !c.Proxy.Open() {
			d.Address = Off
		}
		return d
	case DoorShared:
		return Door{Address: c.Listen.Shared, Key: "listen.shared", TLS: c.Shared.TLS, HTTP: HTTP{MaxConnections: c.Shared.MaxConnections, MaxPerClient: c.Shared.MaxPerClient}}
	}
	return Door{}
}
