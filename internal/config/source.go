package config

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/rulefile"
)

// DefaultControlPlane is the default address of the control plane, that of
// envoyproxy/ratelimit.
const DefaultControlPlane = "127.0.0.1:18000"

// DefaultNodeID is the node ID that this process sends to a control plane.
const DefaultNodeID = "headgate"

// Origin is the source of rules.
type Origin string

// The origins. Empty is FromFiles.
const (
	FromFiles Origin = "files" // reads them from Config.Rules
	FromXDS   Origin = "xds"   // receives them from a control plane
)

// XDS has the settings of the control plane.
type XDS struct {
	Address, NodeID string // Address is host:port, NodeID is sent to the control plane
	// TLS encrypts the connection. Empty files and name mean the system's authorities,
	// no client certificate, and the host of Address.
	TLS                       bool
	CA, Cert, Key, ServerName string
}

// Secret is text that hides itself when it is printed or logged.
type Secret = rules.KeySecret

// minToken is the minimum length of a token.
const minToken = 16

// ParseToken checks that a token is long enough.
func ParseToken(v string) (Secret, error) {
	if len(v) < minToken {
		return "", &hinted{fmt.Sprintf("the token is shorter than %d characters", minToken), "generate a random one: openssl rand -hex 24"}
	}
	return Secret(v), nil
}

// Candidate has rules to compare with the live ones.
type Candidate struct {
	Rules []string // files and folders; empty if there is no candidate
}

// candidateSettings returns the setting of the candidate.
func candidateSettings() []Setting {
	s := List("candidate", func(c *Config, v []string) error { c.Candidate.Rules = v; return nil }).Means("none", "[rules to compare](try/rollout.md) with the live ones")
	s.path, s.values = true, "files and folders"
	return []Setting{s}
}

// Reload says how reloads that remove rules are handled.
type Reload struct {
	Guard   Guard
	MaxLost int64 // share of rules, in percent, that a reload may remove unnoticed; 0 is the default
}

// Share returns MaxLost, or its default.
func (r *Reload) Share() int64 { return cmp.Or(r.MaxLost, 50) }

// Guard says what happens if a reload removes a domain or many rules.
type Guard string

// The values. Empty is GuardWarn.
const (
	GuardWarn   Guard = "warn"   // activates them with a warning
	GuardRefuse Guard = "refuse" // keeps the old rules until an operator accepts the new ones
	GuardOff    Guard = Off      // activates them
)

func reloadSettings() []Setting {
	return []Setting{
		Word("reload.guard", func(c *Config) *Guard { return &c.Reload.Guard }, GuardWarn, GuardRefuse, GuardOff).Means("`warn`", "what happens when a reload [loses a domain or many rules](try/reload.md#when-rules-disappear)"),
		parsed("reload.max_lost", func(c *Config) *int64 { return &c.Reload.MaxLost }, percentage).As("1% to 100%").Means("`50%`", "how many rules a reload may lose before the guard acts; lists and tables that lose more are refused unless the guard is `off`"),
	}
}

// sourceSettings returns the settings of the source of rules.
func sourceSettings() []Setting {
	return []Setting{
		Word("rules_from", func(c *Config) *Origin { return &c.RulesFrom }, FromFiles, FromXDS).Means("`files`", "where rules come from: files, or a [control plane](connect/envoy-rules.md#rules-from-a-control-plane)"),
		Flag("merge_domains", func(c *Config) *bool { return &c.RuleOptions.MergeDomains }).Means("`false`", "let several files add [descriptors](connect/envoy-rules.md) to one domain"),
		Flag("ignore_dot_files", func(c *Config) *bool { return &c.RuleOptions.IgnoreDotFiles }).Means("`false`", "with `compat: envoy`: skip files whose names start with a dot"),
		Choice("compat", func(c *Config) *rules.Compat { return &c.RuleOptions.Compat }, rules.ParseCompat, rules.CompatNone.String(), rules.CompatEnvoy.String()).Means("`none`", "`envoy`: treat descriptors exactly as `envoyproxy/ratelimit` does"),
		parsed("xds.address", func(x *XDS) *string { return &x.Address }, remote).As("host:port").Means("`127.0.0.1:18000`", "host and port of the control plane"),
		Text("xds.node_id", func(x *XDS) *string { return &x.NodeID }).Means("`headgate`", "identifies this process; Envoy Gateway expects `envoy-ratelimit`"),
		Flag("xds.tls", func(x *XDS) *bool { return &x.TLS }).Means("`false`", "encrypt the connection"),
		Path("xds.tls_ca", func(x *XDS) *string { return &x.CA }).Means("the system's", "trusted authorities"),
		Path("xds.tls_cert", func(x *XDS) *string { return &x.Cert }).Means("none", "client certificate, for mutual TLS"),
		Path("xds.tls_key", func(x *XDS) *string { return &x.Key }).Means("none", "its private key"),
		Text("xds.tls_server_name", func(x *XDS) *string { return &x.ServerName }).Means("the host of the address", "expected name in the server's certificate"),
	}
}

// remote checks the host:port of another server.
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

// checkTogether finds settings that conflict.
func (c *Config) checkTogether() (errs Errors) {
	if c.RulesFrom == FromXDS && len(c.Rules) > 0 {
		errs.addAt("rules_from", "rules come from the control plane, but \"rules\" lists files too", "remove one of the two")
	}
	errs = append(errs, c.checkRegions()...)
	return append(append(append(errs, c.checkDoors()...), c.checkIdentity()...), c.checkTLS()...)
}

// RuleOptions say how rules are read.
type RuleOptions = rulefile.Options

// LoadRules returns the rule files and folders of a configuration file, or those of
// the environment, which win. Settings of doors that contradict each other are errors.
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
	c.placeDoors()
	var errs Errors
	for _, d := range c.doors {
		if d.Check != nil {
			errs = append(errs, d.Check(c)...)
		}
	}
	for i, err := range errs {
		errs[i] = c.Locate(err)
	}
	if len(errs) > 0 {
		return nil, errs
	}
	return c.Rules, nil
}

// LoadRuleOptions reads only the settings that affect how rules are read, for commands
// that do not serve. They include the doors that a given configuration file opens.
// Other variables of the environment are ignored, even if wrong. The warnings are
// about the file.
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
		case s.rules && from.File != "": // otherwise the doors and their attributes are not known
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
		for _, err := range c.checkRegionNames() {
			errs.add(c.Locate(err))
		}
		if len(errs) > 0 {
			return RuleOptions{}, nil, errs
		}
		c.warnOfConflicts(from, environment)
		c.settleDoors()
		c.settleRegions()
		c.warnOfProxies()
		c.locateWarnings()
	}
	return c.RuleOptions, c.Warnings, nil
}

// warnOfConflicts warns of settings that conflict, with those of this environment. For a server they
// are errors, unless its own has what is missing, such as a secret.
func (c *Config) warnOfConflicts(from Sources, environment func(string) (string, bool)) {
	served := defaults(from.Doors)
	if served.readFile(from.File) != nil {
		return // which has been told
	}
	for _, s := range served.settings() {
		if value, _ := environment(s.variable()); value != "" {
			_ = s.apply(served, s.variable(), value) // wrong ones are the server's
		}
	}
	served.placeDoors()
	served.inheritTLS()
	for _, err := range served.checkTogether() {
		if e, ok := errors.AsType[*SourceError](err); ok {
			c.warn(e.Source, e.Message+"; no server starts so, unless its environment sets what is missing", e.Hint)
		}
	}
}
