package config

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/rulefile"
)

// DefaultControlPlane is where a control plane is looked for, as
// envoyproxy/ratelimit does.
const DefaultControlPlane = "127.0.0.1:18000"

// DefaultNodeID is who this process says it is to a control plane.
const DefaultNodeID = "headgate"

// Origin is where rules come from.
type Origin uint8

// The origins.
const (
	// FromFiles reads them from Config.Rules.
	FromFiles Origin = iota
	// FromXDS receives them from a control plane.
	FromXDS
)

// String returns the name that the configuration uses: files or xds.
func (o Origin) String() string {
	switch o {
	case FromFiles:
		return "files"
	case FromXDS:
		return "xds"
	}
	return fmt.Sprintf("origin(%d)", uint8(o))
}

func parseOrigin(v string) (Origin, bool) {
	for _, o := range []Origin{FromFiles, FromXDS} {
		if o.String() == v {
			return o, true
		}
	}
	return 0, false
}

// XDS is the control plane that rules come from.
type XDS struct {
	// Address is host:port, NodeID who this process says it is.
	Address, NodeID string
	// TLS encrypts the connection, with these files; those that are empty have
	// their defaults: the system's authorities, no certificate of our own, the
	// host of Address.
	TLS                       bool
	CA, Cert, Key, ServerName string
}

// Admin is the admin door.
type Admin struct {
	// Token is what callers have to know; empty for no question.
	Token Secret
	// Pprof opens the profiler.
	Pprof bool
	// Keys says how operators see the keys of callers.
	Keys Keys
	TLS  TLS
	HTTP HTTP
}

// Secret is text that is not to be shown, and does not show itself when it is
// printed or logged.
type Secret string

// String hides the text.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return "[hidden]"
}

// GoString hides the text.
func (s Secret) GoString() string { return s.String() }

// MarshalText hides the text.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// minToken is the length of the shortest token.
const minToken = 16

func token(v string) (Secret, error) {
	if len(v) < minToken {
		return "", &hinted{
			fmt.Sprintf("the token is shorter than %d characters", minToken), "take a random one: openssl rand -hex 24",
		}
	}
	return Secret(v), nil
}

// sourceSettings are the keys of where rules come from, and of the admin door.
func sourceSettings() []setting {
	file := func(key string, field func(*XDS) *string) setting {
		return setting{key: key, path: true, set: func(c *Config, v []string) error { *field(&c.XDS) = v[0]; return nil }}
	}
	text := func(key string, field func(*XDS) *string) setting {
		return one(key, func(c *Config, v string) error { *field(&c.XDS) = v; return nil })
	}
	return []setting{
		one("rules_from", func(c *Config, v string) (err error) {
			c.RulesFrom, err = choice(v, parseOrigin, FromFiles.String(), FromXDS.String())
			return err
		}),
		one("merge_domains", func(c *Config, v string) (err error) { c.RuleOptions.MergeDomains, err = boolean(v); return err }),
		one("rules_siblings", func(c *Config, v string) (err error) { c.RuleOptions.Siblings, err = boolean(v); return err }),
		one("ignore_dot_files", func(c *Config, v string) (err error) { c.RuleOptions.IgnoreDotFiles, err = boolean(v); return err }),
		one("compat", func(c *Config, v string) (err error) {
			c.RuleOptions.Compat, err = choice(v, parseCompat, rules.CompatNone.String(), rules.CompatEnvoy.String())
			return err
		}),
		one("xds.address", func(c *Config, v string) (err error) { c.XDS.Address, err = remote(v); return err }),
		text("xds.node_id", func(x *XDS) *string { return &x.NodeID }),
		one("xds.tls", func(c *Config, v string) (err error) { c.XDS.TLS, err = boolean(v); return err }),
		file("xds.tls_ca", func(x *XDS) *string { return &x.CA }),
		file("xds.tls_cert", func(x *XDS) *string { return &x.Cert }),
		file("xds.tls_key", func(x *XDS) *string { return &x.Key }),
		text("xds.tls_server_name", func(x *XDS) *string { return &x.ServerName }),
		one("admin.token", func(c *Config, v string) (err error) { c.Admin.Token, err = token(v); return err }),
		secretFrom("admin.token_file", func(c *Config, v string) (err error) { c.Admin.Token, err = token(v); return err }),
		one("admin.pprof", func(c *Config, v string) (err error) { c.Admin.Pprof, err = boolean(v); return err }),
	}
}

func parseCompat(v string) (rules.Compat, bool) {
	for _, c := range []rules.Compat{rules.CompatNone, rules.CompatEnvoy} {
		if c.String() == v {
			return c, true
		}
	}
	return 0, false
}

// shown quotes a URL or an address for an error, unless it may hold a password.
func shown(v string) string {
	if strings.ContainsAny(v, "@?#") {
		return "it"
	}
	return strconv.Quote(v)
}

// remote checks the host:port of somebody else.
func remote(v string) (string, error) {
	const hint = "write host:port, such as " + DefaultControlPlane
	host, port, err := net.SplitHostPort(v)
	if err != nil || host == "" || port == "" || port == "0" || strings.Contains(v, "@") {
		return "", &hinted{fmt.Sprintf("%s is not an address to connect to", shown(v)), hint}
	}
	if _, err := address(net.JoinHostPort(host, port)); err != nil {
		return "", err
	}
	return v, nil
}

// checkTogether finds settings that make no sense beside each other.
func (c *Config) checkTogether() (errs Errors) {
	if c.RulesFrom == FromXDS && len(c.Rules) > 0 {
		errs = append(errs, &SourceError{
			Source: "rules_from", Message: "with xds, no rules come from files, and there are some in \"rules\"",
			Hint: "leave one of them out",
		})
	}
	if l := c.Listen.Admin; c.Admin.Token == "" && l != "" && l != Off && !IsLoopback(l) {
		errs = append(errs, &SourceError{
			Source: "listen.admin", Message: fmt.Sprintf("%s can be reached from other machines, and there is no token", l),
			Hint: "set HEADGATE_ADMIN_TOKEN or admin.token, or listen on " + DefaultAdmin,
		})
	}
	if err := c.checkRESP(); err != nil {
		errs = append(errs, err)
	}
	if err := c.Telemetry.OTLP.check(); err != nil {
		errs = append(errs, err)
	}
	if err := c.checkUpstream(); err != nil {
		errs = append(errs, err)
	}
	return append(append(errs, c.checkIdentity()...), c.checkDoors()...)
}

// IsLoopback reports whether what listens at host:port is reached from this
// machine only.
func IsLoopback(hostPort string) bool {
	host, _, err := net.SplitHostPort(hostPort)
	if err != nil {
		return false
	}
	if host == "localhost" {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}

// RuleOptions are how rules are read.
type RuleOptions = rulefile.Options

// LoadRules returns the rule files and folders that a configuration file names, or
// the environment in its place.
func LoadRules(from Sources) ([]string, error) {
	c := defaults()
	c.declare(from.Doors)
	if err := c.readFile(from.File); err != nil {
		return nil, err
	}
	environment := from.Environment
	if environment == nil {
		environment = os.LookupEnv
	}
	for _, s := range c.settings() {
		if value, _ := environment(s.variable()); s.key == "rules" && value != "" {
			if err := s.apply(c, s.variable(), value); err != nil {
				return nil, Errors{err}
			}
		}
	}
	return c.Rules, nil
}

// LoadRuleOptions reads only how rules are to be read, as Load does, and which
// doors a configuration file that is given opens, since that has a say in it, for
// commands that read rules and serve nothing. What else the environment says,
// and may have wrong, is no concern of theirs. The warnings are about that file.
func LoadRuleOptions(from Sources) (RuleOptions, []*SourceError, error) {
	c := defaults()
	c.declare(from.Doors)
	environment := from.Environment
	if environment == nil {
		environment = os.LookupEnv
	}
	if from.File != "" {
		if err := c.readFile(from.File); err != nil {
			return RuleOptions{}, nil, err
		}
	}
	envoy, err := asksForEnvoy(from, environment)
	if err != nil {
		return RuleOptions{}, nil, err
	}
	var errs Errors
	for _, s := range c.settings() {
		opens := strings.HasPrefix(s.key, "listen.")
		switch s.key {
		case "proxy.upstream", "proxy.listen", "proxy.underscores", "jwt.keys", "jwt.secret_file", "trusted_proxies":
			opens = true
		}
		switch {
		case s.key == "compat", s.key == "merge_domains", s.key == "ignore_dot_files":
		case opens:
			if from.File == "" {
				continue // which doors there will be is not known, nor what they know of requests
			}
		default:
			continue
		}
		note := func(source, value string) {
			if value == "" {
				return
			}
			if err := s.apply(c, source, value); err != nil {
				errs = append(errs, err)
			}
		}
		if name := sourceOf(s.key); envoy && name != "" {
			value, _ := environment(name)
			note(name, value)
		}
		value, _ := environment(s.variable())
		note(s.variable(), value)
		note("--"+s.key, from.Flags[s.key])
	}
	if len(errs) > 0 {
		return RuleOptions{}, nil, errs
	}
	if from.File != "" {
		c.placeDoors()
		c.settleRequests()
		c.warnOfProxies()
		c.locateWarnings()
	}
	return c.RuleOptions, c.Warnings, nil
}
