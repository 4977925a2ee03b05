package config

import (
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

// defaultLost is the default of MaxLost.
const defaultLost = 50

// Share returns MaxLost, or its default.
func (r *Reload) Share() int64 {
	if r.MaxLost == 0 {
		return defaultLost
	}
	return r.MaxLost
}

// Guard is what happens to rules that lack a domain or many rules.
type Guard uint8

// The ways.
const (
	// GuardWarn puts them in force with a warning.
	GuardWarn Guard = iota
	// GuardRefuse leaves the old ones in force until somebody accepts them.
	GuardRefuse
	// GuardOff puts them in force.
	GuardOff
)

// String returns the name that the configuration uses.
func (g Guard) String() string {
	switch g {
	case GuardWarn:
		return "warn"
	case GuardRefuse:
		return "refuse"
	case GuardOff:
		return Off
	}
	return fmt.Sprintf("guard(%d)", uint8(g))
}

func parseGuard(v string) (Guard, bool) {
	for _, g := range []Guard{GuardWarn, GuardRefuse, GuardOff} {
		if g.String() == v {
			return g, true
		}
	}
	return 0, false
}

func reloadSettings() []setting {
	return []setting{
		one("reload.guard", func(c *Config, v string) (err error) {
			c.Reload.Guard, err = choice(v, parseGuard, "warn", "refuse", "off")
			return err
		}),
		one("reload.max_lost", func(c *Config, v string) error {
			n, err := wholeNumber(strings.TrimSuffix(v, "%"), 100)
			if err != nil || !strings.HasSuffix(v, "%") {
				return fmt.Errorf("%q is not a share from 1%% to 100%%", v)
			}
			c.Reload.MaxLost = n
			return nil
		}),
	}
}
