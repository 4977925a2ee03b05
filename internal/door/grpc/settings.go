package grpc

import (
	"time"

	"github.com/headgate/headgate/internal/config"
)

// DefaultAddress is where the door listens if nobody says otherwise.
const DefaultAddress = "127.0.0.1:8081"

// Settings are those that no other door has. What is 0 has its default.
type Settings struct {
	// MaxMessage is the size of the largest request in bytes, MaxStreams how many
	// requests a connection may have in flight.
	MaxMessage, MaxStreams int64
	// MaxConnectionAge is after how long a connection is asked to close;
	// MaxConnectionAgeGrace is how long it then may take.
	MaxConnectionAge, MaxConnectionAgeGrace time.Duration
	// HandshakeTimeout is how long a connection may take to be set up,
	// IdleTimeout how long it may be without a request; negative for ever.
	HandshakeTimeout, IdleTimeout time.Duration
	// KeepaliveMin is how often a client may ask whether we are there; those
	// that ask more often are sent away.
	KeepaliveMin time.Duration
}

// section declares the settings.
func section() config.Section {
	return config.Section{
		Name: name, Default: DefaultAddress, Sockets: true, Shares: true,
		Own: func() any { return new(Settings) },
		Settings: []config.Setting{
			config.Count("grpc.max_streams", func(s *Settings) *int64 { return &s.MaxStreams }, 1_000_000),
			config.Period("grpc.handshake_timeout", func(s *Settings) *time.Duration { return &s.HandshakeTimeout }),
			config.Period("grpc.idle_timeout", func(s *Settings) *time.Duration { return &s.IdleTimeout }),
			config.Period("grpc.keepalive_min", func(s *Settings) *time.Duration { return &s.KeepaliveMin }),
			config.MessageSize("grpc.max_message", func(s *Settings) *int64 { return &s.MaxMessage }),
			config.Duration("grpc.max_connection_age", func(s *Settings) *time.Duration { return &s.MaxConnectionAge }, time.Second),
			config.Duration("grpc.max_connection_age_grace", func(s *Settings) *time.Duration { return &s.MaxConnectionAgeGrace }, time.Second),
		},
	}
}
