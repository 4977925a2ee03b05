package config

import (
	"cmp"
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

// Conflicts returns which settings conflict: no server starts with them.
func (c *Config) Conflicts() (errs Errors) {
	if c.RulesFrom == FromXDS && len(c.Rules) > 0 {
		errs.addAt("rules_from", "rules come from the control plane, but \"rules\" lists files too", "remove one of the two")
	}
	errs = append(errs, c.checkRegions()...)
	return c.located(append(append(append(errs, c.checkDoors()...), c.checkIdentity()...), c.checkTLS()...))
}

// RuleOptions say how rules are read.
type RuleOptions = rulefile.Options

// applyEach applies to each setting the value that of returns for it, unless it is empty, and
// returns what is wrong with them.
func (c *Config) applyEach(of func(s *Setting) (source, value string)) (errs Errors) {
	for _, s := range c.settings() {
		if source, value := of(&s); value != "" {
			errs.add(s.apply(c, source, value))
		}
	}
	return errs
}

// variables returns the values of settings in an environment.
func variables(environment func(string) (string, bool)) func(*Setting) (source, value string) {
	return func(s *Setting) (source, value string) {
		value, _ = environment(s.variable())
		return s.variable(), value
	}
}

// only returns the values of the settings that are wanted.
func only(wanted func(*Setting) bool, of func(*Setting) (source, value string)) func(*Setting) (source, value string) {
	return func(s *Setting) (source, value string) {
		if wanted(s) {
			return of(s)
		}
		return "", ""
	}
}

// LoadOffline reads the settings for commands that do not serve. RuleOptions are those of serve;
// without a file they lack the doors and their attributes. Variables of the environment that do not
// affect how rules are read are applied only to a file, and wrong ones are ignored: they are the
// server's. The warnings are about the file. Settings may conflict; see [Config.Conflicts].
func LoadOffline(from Sources) (*Config, error) {
	c := defaults(from.Doors)
	environment := from.lookup()
	if from.File != "" {
		if err := c.readFile(from.File); err != nil {
			return nil, err
		}
	}
	envoy, err := asksForEnvoy(from, environment)
	if err != nil {
		return nil, err
	}
	forRules := func(s *Setting) bool {
		return s.key == "compat" || s.key == "merge_domains" || s.key == "ignore_dot_files" || s.rules && from.File != ""
	}
	var errs Errors
	if envoy {
		errs = c.applyEach(only(forRules, func(s *Setting) (source, value string) {
			source = sourceOf(s.key)
			value, _ = environment(source)
			return source, value
		}))
	}
	errs = append(errs, c.applyEach(only(forRules, variables(environment)))...)
	errs = append(errs, c.applyEach(only(forRules, func(s *Setting) (source, value string) { return "--" + s.key, from.Flags[s.key] }))...)
	if len(errs) > 0 {
		return nil, errs
	}
	if from.File == "" {
		return c, nil
	}
	told := c.Warnings
	_ = c.applyEach(only(func(s *Setting) bool { return !forRules(s) }, variables(environment)))
	c.Warnings = told
	c.placeDoors()
	c.inheritTLS()
	if errs := c.located(c.checkRegionNames()); len(errs) > 0 {
		return nil, errs
	}
	c.settleDoors()
	c.settleRegions()
	c.warnOfProxies()
	c.locateWarnings()
	return c, nil
}

// NamedRules returns the rule files and folders that the settings name. Settings of doors that
// contradict each other are errors.
func (c *Config) NamedRules() ([]string, error) {
	var errs Errors
	for _, d := range c.doors {
		errs = append(errs, d.contradictions(c)...)
	}
	if len(errs) > 0 {
		return nil, c.located(errs)
	}
	return c.Rules, nil
}

// located adds to errors where the settings are in the file.
func (c *Config) located(errs Errors) Errors {
	for i, err := range errs {
		errs[i] = c.Locate(err)
	}
	return errs
}
