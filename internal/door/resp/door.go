package resp

import (
	"cmp"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/door"
	"github.com/headgate/headgate/internal/observe/metrics"
	"github.com/headgate/headgate/internal/transport/oneport"
	"github.com/headgate/headgate/store"
)

const name = "resp"

// Door returns the door of the Redis protocol. counts returns, once doors open, the store of
// counts that belong to no rule.
func Door(counts func() store.Store) door.Door {
	return door.Door{
		Section: section(), Speaks: oneport.RESP, Tokens: true, Keeps: true, Counts: true,
		Open: func(p *door.Process) (door.Server, error) { return open(p, counts()), nil },
	}
}

// served is the server of a process with its metrics.
type served struct {
	*Server
	metrics.Asked
	shared bool // behind the shared port, which counts the connections
}

func open(p *door.Process, counts store.Store) *served {
	c := config.Own[Settings](p.Config)
	s := &served{shared: p.Over != nil}
	var told door.Seldom
	s.Server = New(Options{
		Asker: p.Asker, Store: counts, Password: string(c.Password), IdleTimeout: c.IdleTimeout,
		MaxConnections: cmp.Or(p.Part(p.Name), int(p.Settings.HTTP.MaxConnections)),
		Version:        p.Version, TLS: p.TLS, Buffers: p.Room(), Failures: p.Failures, Full: p.TooBusy, Busy: p.Busy,
		// A misconfigured health check, or a web page in a browser.
		Misled: func(remote net.Addr) {
			if told.Passes(p.Clock()) {
				p.Logger.Warn("HTTP request on the Redis protocol port: connection closed (logged once a minute)",
					"door", p.Name, "remote", remote.String(), "closed", s.Stats().Misled)
			}
		},
	})
	s.describe()
	return s
}

// Descriptors implements [door.DescriptorUser].
func (s *served) Descriptors() int64 {
	if s.shared {
		return 0
	}
	return s.Stats().Connections
}

// describe registers the server's metrics.
func (s *served) describe() {
	open := s.Gauge("headgate_resp_connections", "Open Redis protocol connections.")
	ever := s.Counter("headgate_resp_connections_total", "Redis protocol connections, by result: accepted, evicted (closed to make room for another), rejected (no capacity) or http (spoke HTTP and was closed).", "result")
	commands := s.Counter("headgate_resp_commands_total", "Redis protocol commands answered.")
	throttle := s.Counter("headgate_resp_throttle_total", "CL.THROTTLE decisions, by outcome. They do not depend on rules.", "outcome")
	s.Ask(func(out chan<- prometheus.Metric) {
		n := s.Stats()
		open(out, float64(n.Connections))
		ever(out, float64(n.Accepted), "accepted")
		ever(out, float64(n.Evicted), "evicted")
		ever(out, float64(n.Rejected), "rejected")
		ever(out, float64(n.Misled), "http")
		commands(out, float64(n.Commands))
		throttle(out, float64(n.ThrottleAllowed), "allowed")
		throttle(out, float64(n.ThrottleRefused), "refused")
	})
}

// DefaultAddress is where the door listens by default.
const DefaultAddress = "127.0.0.1:6380"

// Settings are the door's own settings.
type Settings struct {
	Password    config.Secret // the password for AUTH; empty for none
	IdleTimeout time.Duration // how long a connection may be idle between commands; 0 for no limit
}

// section declares the settings.
func section() config.Section {
	return config.Section{
		Name: name, Means: "[Redis protocol](connect/redis-protocol.md)", Default: DefaultAddress, Shares: true,
		Own: func() any { return new(Settings) },
		Settings: []config.Setting{
			config.Text("resp.password", func(s *Settings) *config.Secret { return &s.Password }).Means("none", "[password](run/tls.md#tokens-and-passwords) for `AUTH`"),
			config.SecretFile("resp.password_file", func(s *Settings, v string) error { s.Password = config.Secret(v); return nil }).Means("none", "the same in a file"),
			config.Duration("resp.idle_timeout", func(s *Settings) *time.Duration { return &s.IdleTimeout }, 0).Means("never", "time without a command"),
		},
		Asks: "resp.password", Asked: func(c *config.Config) bool { return config.Own[Settings](c).Password != "" },
		Guard: &config.Guarded{Secret: "password", Use: "use the Redis protocol", Certificates: true},
	}
}
