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

// maxMetricRules is the largest metrics.max_rules: a million series or so.
const maxMetricRules = 100_000

// observeSettings are the keys of what operators see.
func observeSettings() []Setting {
	return []Setting{
		One("overload.memory", func(c *Config, v string) (err error) {
			if c.Overload.Memory, err = size(v); err == nil && c.Overload.Memory < leastMemory {
				return fmt.Errorf("%s is less than 16MiB", v)
			}
			return err
		}),
		Count("metrics.max_rules", func(c *Config) *int64 { return &c.Metrics.MaxRules }, maxMetricRules),
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
