package config

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/base/nearest"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/door/answer"
	"github.com/headgate/headgate/internal/request/reading"
)

// Setting is one key, for doors that declare their own; see [One] and its like.
type Setting = setting

// setting is one key, wherever its value comes from.
type setting struct {
	// key is its path in the file, such as store.memory.max_keys.
	key string
	// list takes several values: a sequence in the file, elsewhere separated
	// by commas.
	list bool
	// pairs makes the values name=value, which in the file may be a mapping.
	pairs bool
	// path holds names of files, which in the file are relative to it.
	path bool
	// set takes the values; one, unless it is a list.
	set func(c *Config, values []string) error
}

// variable returns the setting's name in the environment.
func (s *setting) variable() string {
	return "HEADGATE_" + strings.ToUpper(strings.ReplaceAll(s.key, ".", "_"))
}

// apply sets a value that came from outside of the file.
func (s *setting) apply(c *Config, source, value string) error {
	values := []string{value}
	if s.list {
		values = values[:0]
		for part := range strings.SplitSeq(value, ",") {
			if part = strings.TrimSpace(part); part != "" {
				values = append(values, part)
			}
		}
	}
	c.forget(s.key)
	if err := s.set(c, values); err != nil {
		return sourceError(source, err)
	}
	return nil
}

// hinted is an error that knows what to do about it.
type hinted struct{ message, hint string }

func (e *hinted) Error() string { return e.message }

func sourceError(source string, err error) error {
	if h, ok := errors.AsType[*hinted](err); ok {
		return &SourceError{Source: source, Message: h.message, Hint: h.hint}
	}
	return &SourceError{Source: source, Message: err.Error()}
}

// setRules sets which files are rules. Siblings are those of the rules before.
func setRules(c *Config, v []string) error {
	c.Rules, c.RuleOptions.Siblings = v, false
	return nil
}

// settings are all there are, in the order of the documentation.
func settings() []setting {
	return slices.Concat(storeSettings(), []setting{
		{key: "rules", list: true, path: true, set: setRules},
		one("listen.api", func(c *Config, v string) (err error) { c.Listen.API, err = address(v); return err }),
		one("listen.grpc", func(c *Config, v string) (err error) { c.Listen.GRPC, err = addressOrSocket(v); return err }),
		one("listen.admin", func(c *Config, v string) (err error) { c.Listen.Admin, err = address(v); return err }),
		one("proxy.listen", func(c *Config, v string) (err error) { c.Proxy.Listen, err = address(v); return err }),
		one("proxy.domain", func(c *Config, v string) error { c.Proxy.Domain = v; return nil }),
		count("proxy.max_upstream_connections", func(c *Config) *int64 { return &c.Proxy.MaxUpstream }, 1_000_000),
		one("proxy.paths", func(c *Config, v string) (err error) {
			c.Proxy.Paths, err = choice(v, reading.ParsePolicy, "forward", "clean", "refuse")
			return err
		}),
		one("proxy.max_waiting", func(c *Config, v string) (err error) {
			c.Proxy.MaxWaiting, err = wholeNumber(v, 1_000_000)
			return err
		}),
		one("proxy.body_timeout", func(c *Config, v string) (err error) {
			if c.Proxy.BodyTimeout = -1; v != Off {
				c.Proxy.BodyTimeout, err = duration(v, 100*time.Millisecond)
			}
			return err
		}),
		one("proxy.upstream", func(c *Config, v string) (err error) { c.Proxy.Upstream, err = upstream(v); return err }),
		{key: "trusted_proxies", list: true, set: func(c *Config, v []string) (err error) {
			c.TrustedProxies, err = networks(v)
			return err
		}},
		one("unknown_domain", func(c *Config, v string) (err error) {
			c.UnknownDomain, err = choice(v, engine.ParseUnknownDomain, "allow", "refuse")
			return err
		}),
		one("headers", func(c *Config, v string) (err error) {
			c.Headers, err = choice(v, answer.ParseDialect, dialects()...)
			return err
		}),
		one("decision_time", func(c *Config, v string) (err error) {
			c.DecisionTime, err = boolean(v)
			return err
		}),
		one("log.level", func(c *Config, v string) (err error) {
			c.Log.Level, err = choice(v, parseLevel, "debug", "info", "warn", "error")
			return err
		}),
		one("log.format", func(c *Config, v string) (err error) {
			c.Log.Format, err = choice(v, parseFormat, "auto", "text", "json")
			return err
		}),
	}, shutdownSettings(), proxySettings(), candidateSettings(), reloadSettings(), respSettings(), identitySettings(), sourceSettings(), queueSettings(), observeSettings(), telemetrySettings(), envoySettings(), doorSettings())
}

// shutdownSettings are the keys of how the process stops.
func shutdownSettings() []setting {
	return []setting{
		one("shutdown_delay", func(c *Config, v string) (err error) {
			c.ShutdownDelay, err = duration(v, 0)
			return err
		}),
		one("shutdown_timeout", func(c *Config, v string) (err error) {
			c.ShutdownTimeout, err = duration(v, 0)
			return err
		}),
		one("shutdown_idle", func(c *Config, v string) (err error) {
			c.ShutdownIdle, err = duration(v, 0)
			return err
		}),
	}
}

// One is a setting with a single value, which set takes.
func One(key string, set func(c *Config, value string) error) Setting { return one(key, set) }

// one is a setting with a single value.
func one(key string, set func(*Config, string) error) setting {
	return setting{key: key, set: func(c *Config, values []string) error { return set(c, values[0]) }}
}

func choice[T any](v string, parse func(string) (T, bool), words ...string) (T, error) {
	t, ok := parse(v)
	if !ok && strings.ContainsAny(v, ":@") { // a URL, and perhaps a password
		return t, &hinted{"it is not one of " + strings.Join(words, ", "), ""}
	}
	if !ok {
		return t, &hinted{fmt.Sprintf("%q is not one of %s%s", v, strings.Join(words, ", "), nearest.DidYouMean(v, words)), ""}
	}
	return t, nil
}

func dialects() []string {
	var names []string
	for _, d := range answer.Dialects() {
		names = append(names, d.String())
	}
	return names
}

func parseLevel(v string) (slog.Level, bool) {
	switch v {
	case "debug":
		return slog.LevelDebug, true
	case "info":
		return slog.LevelInfo, true
	case "warn":
		return slog.LevelWarn, true
	case "error":
		return slog.LevelError, true
	}
	return 0, false
}

func parseFormat(v string) (Format, bool) {
	for _, f := range []Format{Auto, Text, JSON} {
		if f.String() == v {
			return f, true
		}
	}
	return 0, false
}

func wholeNumber(v string, most int64) (int64, error) { return wholeNumberFrom(v, 1, most) }

func wholeNumberFrom(v string, least, most int64) (int64, error) {
	n, err := strconv.ParseInt(strings.ReplaceAll(v, "_", ""), 10, 64)
	if err != nil || n < least || n > most {
		return 0, fmt.Errorf("%q is not a whole number from %d to %d", v, least, most)
	}
	return n, nil
}

func yesNo(v string) (bool, error) {
	switch v {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, fmt.Errorf("%q is not true or false", v)
}

// size reads a number of bytes such as 512MiB.
func size(v string) (int64, error) {
	digits := strings.TrimRight(v, "KMGTiBkb ")
	unit := strings.TrimSpace(v[len(digits):])
	factor, ok := map[string]int64{
		"": 1, "B": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30,
	}[unit]
	n, err := strconv.ParseInt(strings.ReplaceAll(digits, "_", ""), 10, 64)
	if !ok || err != nil || n < 1 || n > (1<<50)/factor {
		return 0, &hinted{fmt.Sprintf("%q is not a size", v), "write a number of bytes, or one with a unit such as 512MiB"}
	}
	return n * factor, nil
}

func duration(v string, least time.Duration) (time.Duration, error) {
	d, err := time.ParseDuration(v)
	if err != nil {
		return 0, &hinted{fmt.Sprintf("%q is not a duration", v), "write a number with a unit, such as 30s or 5m"}
	}
	if d < least {
		return 0, fmt.Errorf("%s is too short, the least is %s", v, least)
	}
	return d, nil
}

// address checks host:port, or off.
func address(v string) (string, error) {
	if v == Off {
		return Off, nil
	}
	const hint = `write host:port, such as 127.0.0.1:8080 or :8080, or "off"`
	_, port, err := net.SplitHostPort(v)
	if err != nil && strings.Contains(v, "@") { // perhaps behind a password
		return "", &hinted{"it is not an address to listen on", hint}
	}
	if err != nil {
		return "", &hinted{fmt.Sprintf("%q is not an address to listen on", v), hint}
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil {
		return "", &hinted{fmt.Sprintf("%q is not a port from 0 to 65535", port), hint}
	} else if n == 0 && port != "0" {
		return "", &hinted{fmt.Sprintf("%q is not a port from 0 to 65535", port), hint}
	}
	return v, nil
}

// networks reads CIDR networks and single addresses.
func networks(values []string) ([]netip.Prefix, error) {
	out := make([]netip.Prefix, 0, len(values))
	for _, v := range values {
		p, err := netip.ParsePrefix(v)
		if err != nil {
			addr, errAddr := netip.ParseAddr(v)
			if errAddr != nil || addr.Zone() != "" {
				return nil, &hinted{fmt.Sprintf("%q is not a network", v), "write a network such as 10.0.0.0/8, or an address"}
			}
			p = netip.PrefixFrom(addr, addr.BitLen())
		}
		if p.Masked() != p {
			return nil, &hinted{fmt.Sprintf("%q has bits set outside of its prefix", v), "write " + p.Masked().String()}
		}
		if p.Addr().Is4In6() {
			return nil, &hinted{fmt.Sprintf("%q is an IPv4 network in the clothes of IPv6", v), "write it as an IPv4 network"}
		}
		out = append(out, p)
	}
	return out, nil
}

// relativeTo resolves the names of files in a file.
func relativeTo(folder string, names []string) []string {
	out := make([]string, len(names))
	for i, name := range names {
		out[i] = name
		if !filepath.IsAbs(name) && !isURL(name) {
			out[i] = filepath.Join(folder, name)
		}
	}
	return out
}
