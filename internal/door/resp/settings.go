package resp

import (
	"time"

	"github.com/headgate/headgate/internal/config"
)

// DefaultAddress is where the door listens if nobody says otherwise.
const DefaultAddress = "127.0.0.1:6380"

// Settings are those that no other door has.
type Settings struct {
	// Password is what AUTH must give; empty for no question.
	Password config.Secret
	// IdleTimeout is how long a connection may be silent between commands; 0
	// for as long as it likes.
	IdleTimeout time.Duration
}

// section declares the settings.
func section() config.Section {
	return config.Section{
		Name: name, Default: DefaultAddress, Shares: true,
		Own: func() any { return new(Settings) },
		Settings: []config.Setting{
			config.Text("resp.password", func(s *Settings) *config.Secret { return &s.Password }),
			config.SecretFile("resp.password_file", func(s *Settings, v string) error { s.Password = config.Secret(v); return nil }),
			config.Duration("resp.idle_timeout", func(s *Settings) *time.Duration { return &s.IdleTimeout }, 0),
		},
		Asks: "resp.password", Asked: func(c *config.Config) bool { return config.Own[Settings](c).Password != "" },
		Guard: &config.Guarded{Secret: "password", Use: "speak the Redis protocol", Certificates: true},
	}
}
