package admin

import (
	"time"

	"github.com/headgate/headgate/internal/answer"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/door"
	"github.com/headgate/headgate/internal/observe/metrics"
	"github.com/headgate/headgate/internal/transport/netbound"
)

const name = "admin"

// Door returns the door for operators. It calls offer when it is opened.
func Door(offer func(*door.Process) Options) door.Door {
	return door.Door{
		Section: section(), ALPN: []string{"h2", "http/1.1"}, Tokens: true, Keeps: true, Policy: netbound.ByStateThenRead,
		Open: func(p *door.Process) (door.Server, error) {
			h, err := New(offer(p))
			if err != nil {
				return nil, err
			}
			// Profiles take long to write.
			return door.NewHTTP(p, door.HTTPOptions{Handler: answer.Lingering(h), Write: 2 * time.Minute, Room: p.Room()})
		},
	}
}

// DefaultAddress is the default listening address of the door.
const DefaultAddress = "127.0.0.1:6070"

// Settings are the settings of this door only.
type Settings struct {
	Token config.Secret // required from callers; empty means none
	Pprof bool          // serves the profiler
	Keys  Keys          // how operators see the keys of callers
}

// Keys says how operators see the keys of callers.
type Keys string

// The values of Keys. Empty means AutoKeys.
const (
	// AutoKeys is PlainKeys if the door can only be reached from this machine, else
	// HashedKeys. In the log, keys are hashed.
	AutoKeys   Keys = "auto"
	PlainKeys  Keys = "plain"  // shows keys as they are
	HashedKeys Keys = "hashed" // shows only hashes, which distinguish keys
)

// section declares the settings.
func section() config.Section {
	return config.Section{
		Name: name, Means: "[admin door](reference/admin.md): metrics, dashboard, operators", Default: DefaultAddress, OverHTTP: true, Operators: true,
		Own: func() any { return &Settings{Keys: AutoKeys} },
		Settings: append(config.Token("admin.token", func(s *Settings) *config.Secret { return &s.Token }),
			config.Flag("admin.pprof", func(s *Settings) *bool { return &s.Pprof }).Means("`false`", "serve `/debug/pprof/`"),
			config.Word("admin.keys", func(s *Settings) *Keys { return &s.Keys }, AutoKeys, PlainKeys, HashedKeys).Means("`auto`", "how [keys](watch/top.md#keys) of callers are shown; `auto`: plain on loopback"),
		),
		Asks: "admin.token", Asked: func(c *config.Config) bool { return config.Own[Settings](c).Token != "" },
		Guard: &config.Guarded{Secret: "token", Use: "use the admin door"},
	}
}

// KeyView returns how operators see keys.
func KeyView(c *config.Config) *metrics.KeyView {
	keys := config.Own[Settings](c).Keys
	hashes := keys == HashedKeys || keys != PlainKeys && !config.IsLoopback(c.Door(name).Address)
	return &metrics.KeyView{Hashes: hashes, LogHashes: keys != PlainKeys}
}
