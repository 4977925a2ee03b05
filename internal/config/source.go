package config

import (
	"cmp"
	"fmt"
	"math"
	"net"
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
type Origin string

// The origins. Empty is FromFiles.
const (
	FromFiles Origin = "files" // reads them from Config.Rules
	FromXDS   Origin = "xds"   // receives them from a control plane
)

// XDS is the control plane that rules come from.
type XDS struct {
	Address, NodeID string // Address is host:port, NodeID who this process says it is
	// TLS encrypts the connection, with these files; those that are empty have
	// their defaults: the system's authorities, no certificate of our own, the
	// host of Address.
	TLS                       bool
	CA, Cert, Key, ServerName string
}

// Secret is text that is not to be shown, and does not show itself when it is
// printed or logged.
type Secret = rules.KeySecret

// minToken is the length of the shortest token.
const minToken = 16

// ParseToken checks that a token is long enough.
func ParseToken(v string) (Secret, error) {
	if len(v) < minToken {
		return "", &hinted{fmt.Sprintf("the token is shorter than %d characters", minToken), "generate a random one: openssl rand -hex 24"}
	}
	return Secret(v), nil
}

// Candidate is rules that are tried beside the live ones.
type Candidate struct {
	Rules   []string // its files and folders; none if there is no candidate
	MaxKeys int64    // bounds the memory of its counts; 0 leaves the store's default
}

// candidateSettings are its keys. The candidate may be just its files.
func candidateSettings() []Setting {
	files := func(c *Config, v []string) error { c.Candidate.Rules = v; return nil }
	return []Setting{
		{key: "candidate", list: true, path: true, set: files},
		{key: "candidate.rules", list: true, path: true, set: files},
		Count("candidate.max_keys", func(c *Config) *int64 { return &c.Candidate.MaxKeys }, math.MaxInt32),
	}
}

// Reload says what is done about rules that disappear with a reload.
type Reload struct {
	Guard   Guard
	MaxLost int64 // the share of the rules, in percent, that may disappear without a word; 0 leaves the default
}

// Share returns MaxLost, or its default.
func (r *Reload) Share() int64 { return cmp.Or(r.MaxLost, 50) }

// Guard is what happens to rules that lack a domain or many rules.
type Guard string

// The ways. Empty is GuardWarn.
const (
	GuardWarn   Guard = "warn"   // puts them in force with a warning
	GuardRefuse Guard = "refuse" // leaves the old ones in force until somebody accepts them
	GuardOff    Guard = Off      // puts them in force
)

func reloadSettings() []Setting {
	return []Setting{
		Word("reload.guard", func(c *Config) *Guard { return &c.Reload.Guard }, GuardWarn, GuardRefuse, GuardOff),
		parsed("reload.max_lost", func(c *Config) *int64 { return &c.Reload.MaxLost }, func(v string) (int64, error) {
			n, err := wholeNumber(strings.TrimSuffix(v, "%"), 1, 100)
			if err != nil || !strings.HasSuffix(v, "%") {
				return 0, fmt.Errorf("%q is not a percentage from 1%% to 100%%", v)
			}
			return n, nil
		}),
	}
}

// sourceSettings are the keys of where rules come from.
func sourceSettings() []Setting {
	return []Setting{
		Word("rules_from", func(c *Config) *Origin { return &c.RulesFrom }, FromFiles, FromXDS),
		Flag("merge_domains", func(c *Config) *bool { return &c.RuleOptions.MergeDomains }),
		Flag("rules_siblings", func(c *Config) *bool { return &c.RuleOptions.Siblings }),
		Flag("ignore_dot_files", func(c *Config) *bool { return &c.RuleOptions.IgnoreDotFiles }),
		Choice("compat", func(c *Config) *rules.Compat { return &c.RuleOptions.Compat }, rules.ParseCompat, rules.CompatNone.String(), rules.CompatEnvoy.String()),
		parsed("xds.address", func(x *XDS) *string { return &x.Address }, remote),
		Text("xds.node_id", func(x *XDS) *string { return &x.NodeID }),
		Flag("xds.tls", func(x *XDS) *bool { return &x.TLS }),
		Path("xds.tls_ca", func(x *XDS) *string { return &x.CA }),
		Path("xds.tls_cert", func(x *XDS) *string { return &x.Cert }),
		Path("xds.tls_key", func(x *XDS) *string { return &x.Key }),
		Text("xds.tls_server_name", func(x *XDS) *string { return &x.ServerName }),
	}
}

// remote checks the host:port of somebody else.
func remote(v string) (string, error) {
	const hint = "write host:port, such as " + DefaultControlPlane
	host, port, err := net.SplitHostPort(v)
	if err != nil || host == "" || port == "" || port == "0" || strings.Contains(v, "@") {
		return "", &hinted{fmt.Sprintf("%s is not an address to connect to", Shown(v)), hint}
	}
	if _, err := address(net.JoinHostPort(host, port)); err != nil {
		return "", err
	}
	return v, nil
}

// checkTogether finds settings that make no sense beside each other.
func (c *Config) checkTogether() (errs Errors) {
	if c.RulesFrom == FromXDS && len(c.Rules) > 0 {
		errs.note("rules_from", "rules come from the control plane, but \"rules\" lists files too", "remove one of the two")
	}
	errs.add(c.Telemetry.OTLP.check())
	return append(append(append(errs, c.checkDoors()...), c.checkIdentity()...), c.checkTLS()...)
}

// RuleOptions are how rules are read.
type RuleOptions = rulefile.Options

// LoadRules returns the rule files and folders that a configuration file names, or
// the environment in its place.
func LoadRules(from Sources) ([]string, error) {
	c := defaults(from.Doors)
	if err := c.readFile(from.File); err != nil {
		return nil, err
	}
	for _, s := range c.settings() {
		if value, _ := from.lookup()(s.variable()); s.key == "rules" && value != "" {
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
	c := defaults(from.Doors)
	environment := from.lookup()
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
		switch {
		case s.key == "compat", s.key == "merge_domains", s.key == "ignore_dot_files":
		case s.rules && from.File != "": // else it is not known which doors there will be, nor what they know of requests
		default:
			continue
		}
		note := func(source, value string) {
			if value != "" {
				errs.add(s.apply(c, source, value))
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
		c.settleDoors()
		c.warnOfProxies()
		c.locateWarnings()
	}
	return c.RuleOptions, c.Warnings, nil
}
