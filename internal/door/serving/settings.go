package serving

import (
	"time"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/door"
	"github.com/headgate/headgate/internal/transport/netbound"
	"github.com/headgate/headgate/internal/transport/oneport"
)

// settings are those of the shared port that no door has.
type settings struct {
	// handshake is how long a connection may take until it is known what it
	// speaks; 0 leaves the default.
	handshake time.Duration
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
