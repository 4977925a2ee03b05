package config

import (
	"fmt"
	"os"
	"strings"
)

// Metrics is what the process tells about itself.
type Metrics struct {
	// MaxRules is how many rules have series of their own at /metrics; 0 leaves
	// the default.
	MaxRules int64
}

// Overload is when the process has too much to do.
type Overload struct {
	// Memory is the soft limit of the runtime in bytes, as GOMEMLIMIT sets it; 0
	// leaves it alone.
	Memory int64
}

// leastMemory is the smallest overload.memory: with less the process cannot run.
const leastMemory = 16 << 20

// Keys says how operators see the keys of callers.
type Keys uint8

// The ways.
const (
	// AutoKeys is PlainKeys if the admin door can be reached from this machine
	// only, else HashedKeys. In the log keys are hashed.
	AutoKeys Keys = iota
	// PlainKeys shows them as they are.
	PlainKeys
	// HashedKeys shows what tells them apart and nothing else.
	HashedKeys
)

// String returns the name that the configuration uses.
func (k Keys) String() string {
	switch k {
	case AutoKeys:
		return "auto"
	case PlainKeys:
		return "plain"
	case HashedKeys:
		return "hashed"
	}
	return fmt.Sprintf("keys(%d)", uint8(k))
}

// HashesKeys reports whether operators see hashes in place of keys.
func (c *Config) HashesKeys() bool {
	return c.Admin.Keys == HashedKeys || c.Admin.Keys == AutoKeys && !IsLoopback(c.Listen.Admin)
}

func parseKeys(v string) (Keys, bool) {
	for _, k := range []Keys{AutoKeys, PlainKeys, HashedKeys} {
		if k.String() == v {
			return k, true
		}
	}
	return 0, false
}

// maxMetricRules is the largest metrics.max_rules: a million series or so.
const maxMetricRules = 100_000

// observeSettings are the keys of what operators see.
func observeSettings() []setting {
	return []setting{
		one("admin.keys", func(c *Config, v string) (err error) {
			c.Admin.Keys, err = choice(v, parseKeys, AutoKeys.String(), PlainKeys.String(), HashedKeys.String())
			return err
		}),
		one("overload.memory", func(c *Config, v string) (err error) {
			if c.Overload.Memory, err = size(v); err == nil && c.Overload.Memory < leastMemory {
				return fmt.Errorf("%s is less than 16MiB", v)
			}
			return err
		}),
		one("metrics.max_rules", func(c *Config, v string) (err error) {
			c.Metrics.MaxRules, err = wholeNumber(v, maxMetricRules)
			return err
		}),
	}
}

// APIToken returns a token of the HTTP API, for those who ask it: the first if
// there are several.
func APIToken() string {
	first, _, _ := strings.Cut(os.Getenv("HEADGATE_API_TOKEN"), ",")
	return strings.TrimSpace(first)
}

// AdminAddress returns where an admin door is, for those who ask one, if the
// environment says so.
func AdminAddress() string { return os.Getenv("HEADGATE_ADDRESS") }

// AdminToken returns the token of an admin door, for those who ask one.
func AdminToken() string { return os.Getenv("HEADGATE_ADMIN_TOKEN") }
