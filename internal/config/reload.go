package config

import (
	"cmp"
	"fmt"
	"strings"
)

// Reload says what is done about rules that disappear with a reload.
type Reload struct {
	Guard Guard
	// MaxLost is the share of the rules, in percent, that may disappear without
	// a word; 0 leaves the default.
	MaxLost int64
}

// Share returns MaxLost, or its default.
func (r *Reload) Share() int64 { return cmp.Or(r.MaxLost, 50) }

// Guard is what happens to rules that lack a domain or many rules.
type Guard string

// The ways. Empty is GuardWarn.
const (
	// GuardWarn puts them in force with a warning.
	GuardWarn Guard = "warn"
	// GuardRefuse leaves the old ones in force until somebody accepts them.
	GuardRefuse Guard = "refuse"
	// GuardOff puts them in force.
	GuardOff Guard = Off
)

func reloadSettings() []Setting {
	return []Setting{
		Word("reload.guard", func(c *Config) *Guard { return &c.Reload.Guard }, GuardWarn, GuardRefuse, GuardOff),
		parsed("reload.max_lost", func(c *Config) *int64 { return &c.Reload.MaxLost }, func(v string) (int64, error) {
			n, err := wholeNumber(strings.TrimSuffix(v, "%"), 1, 100)
			if err != nil || !strings.HasSuffix(v, "%") {
				return 0, fmt.Errorf("%q is not a share from 1%% to 100%%", v)
			}
			return n, nil
		}),
	}
}
