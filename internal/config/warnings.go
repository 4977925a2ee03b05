package config

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/base/nearest"
)

// ours is the prefix of our variables.
const ours = "HEADGATE_"

// otherVariables returns our variables that are not settings.
func otherVariables() []string {
	return []string{"HEADGATE_CONFIG", EnvoyEnvironment, "HEADGATE_ADDRESS", "HEADGATE_TOKEN"}
}

// judgeVariables warns about unknown variables with our prefix, and returns an error for
// each that was a setting: its file would not have started either.
func (c *Config) judgeVariables(from Sources) (errs Errors) {
	if from.Environ == nil {
		return nil
	}
	known := otherVariables()
	for _, s := range c.settings() {
		known = append(known, s.variable())
	}
	for _, pair := range from.Environ() {
		name, value, _ := strings.Cut(pair, "=")
		// HEADGATE_REQUIRE_ is for our tests.
		if !strings.HasPrefix(name, ours) || slices.Contains(known, name) || strings.HasPrefix(name, "HEADGATE_REQUIRE_") {
			continue
		}
		if instead := insteadOfVariable(name); instead == "" {
			c.warn(name, "unknown variable is ignored"+nearestVariable(name, known), "")
		} else if value != "" { // an empty one counts as unset
			errs.addAt(name, "this is not a setting any more", instead)
		}
	}
	return errs
}

// nearestVariable returns a suggestion for a misspelled variable.
func nearestVariable(name string, known []string) string {
	var rest []string
	for _, k := range known {
		rest = append(rest, strings.TrimPrefix(k, ours))
	}
	short := strings.TrimPrefix(name, ours)
	near := nearest.Word(short, rest)
	if first, second, ok := strings.Cut(short, "_"); ok && slices.Contains(rest, second+"_"+first) {
		near = second + "_" + first // such as PROXY_LISTEN
	}
	for _, k := range rest {
		if near == "" && strings.HasSuffix(k, "_"+short) { // name without sections
			near = k
		}
	}
	if near == "" {
		return ""
	}
	return fmt.Sprintf(", did you mean %s?", ours+strings.ToUpper(near))
}

// warnOfFile warns if every user can write the configuration file.
func (c *Config) warnOfFile() {
	if c.File == "" {
		return
	}
	if info, err := os.Stat(c.File); err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o002 != 0 {
		c.warn(c.File, "every user on this machine can write the configuration", "run chmod o-w or chmod 640")
	}
}

// warnOfProxies warns if all addresses are trusted.
func (c *Config) warnOfProxies() {
	for _, network := range c.TrustedProxies {
		if network.Bits() == 0 {
			c.warn("trusted_proxies", network.String()+" trusts every client to name any address as its own", "list only the proxies in front of headgate")
		}
	}
}
