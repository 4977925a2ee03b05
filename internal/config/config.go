// Package config reads the settings of the process: from flags, the
// environment (HEADGATE_…), a YAML file and defaults, in that order. It is the
// only package that reads the environment.
//
// The keys are in docs/configuration.md.
package config

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/base/diagnostic"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/door/answer"
	"github.com/headgate/headgate/internal/rules/rulefile"
	"github.com/headgate/headgate/internal/rules/yamltext"
)

// Off closes a door when it stands in place of an address.
const Off = "off"

// DefaultFile is the file that is read if it is there and no other is named.
const DefaultFile = "headgate.yaml"

// DefaultRules is the folder whose rules are used if it is there and no other
// rules are named.
const DefaultRules = "rules"

// Config is how the process is to run. It is complete: what nobody set has its
// default.
type Config struct {
	// File is the file that was read, or empty; see [Config.Locate] for what it
	// says where.
	File    string
	places  map[string]place
	doors   []*Door
	Ignored []Ignored // variables of envoyproxy/ratelimit that are set and change nothing
	// RulesFrom is where rules come from; RuleOptions how they are read. They
	// hold the secret that parts of keys are hashed with, which is not to be
	// shown.
	RulesFrom   Origin
	RuleOptions rulefile.Options
	// Rules are files and folders of rules, XDS the control plane: one of the
	// two is used.
	Rules     []string
	XDS       XDS
	Candidate Candidate // rules that are tried beside these
	Reload    Reload    // what is done about rules that disappear
	Store     Store     // where counts are kept
	// Tokens are those of which callers of the API have to know one, over HTTP and
	// gRPC; with none nobody is asked.
	Tokens         []Secret
	Envoy          Envoy                // what Envoy's rate limit service does
	Queue          Queue                // where requests are kept that are sent later
	TrustedProxies []netip.Prefix       // the peers whose word about the client is believed
	ProxyProtocol  ProxyProtocol        // where the PROXY protocol is spoken
	JWT            JWT                  // says which tokens are good
	UnknownDomain  engine.UnknownDomain // what happens to requests in a domain without rules
	Headers        answer.Dialect       // the dialect of the header fields
	DecisionTime   bool                 // has the proxy and forward-auth tell when they decided
	Overload       Overload             // when the process has too much to do
	// Log is how the process logs, Metrics what it tells about itself.
	Log       Log
	Metrics   Metrics
	Telemetry Telemetry      // what it sends about itself
	Warnings  []*SourceError // about settings that work, but hardly as they were meant
	// ShutdownDelay is how long a stopping process goes on as before while
	// /readyz says no, so that load balancers have time to look away.
	ShutdownDelay   time.Duration
	ShutdownTimeout time.Duration // how long a stopping process waits for requests
	// ShutdownIdle is how long a connection over HTTP/1 has to be idle before a
	// stopping process closes it; 0 for no time.
	ShutdownIdle time.Duration
}

// Store is where counts are kept.
type Store struct {
	// Kind is which of the two is used.
	Kind   Kind
	Memory Memory
	Redis  Redis
}

// Memory is the embedded store.
type Memory struct {
	MaxKeys, MaxBytes int64 // bound it; 0 leaves the store's default
	// Snapshot is the file that counts are saved to and restored from; empty
	// for none.
	Snapshot         string
	SnapshotInterval time.Duration // how often, besides at the end
}

// Log is how the process logs.
type Log struct {
	Level  slog.Level
	Format Format
}

// Format is the form of log lines.
type Format string

// The formats. Empty is Auto.
const (
	// Auto is TextLines on a terminal and JSON elsewhere.
	Auto      Format = "auto"
	TextLines Format = "text"
	JSON      Format = "json"
)

// Sources say where settings come from.
type Sources struct {
	// File is the file to read. If empty, it is the one that HEADGATE_CONFIG
	// names, or DefaultFile if that is there.
	File   string
	NoFile bool // reads no file at all
	// Flags are settings by their key, such as listen.api. They win over all
	// others.
	Flags     map[string]string
	FlagNames map[string]string // the flags of settings, by key, that are not named after it
	Doors     []Section         // the settings that doors declare themselves
	// EnvoyEnvironment understands the variables of envoyproxy/ratelimit too,
	// as the variable [EnvoyEnvironment] does.
	EnvoyEnvironment bool
	Environment      func(name string) (string, bool) // finds a variable. Nil means that of the process.
	// Environ lists all variables as name=value. Nil means those of the process,
	// or none if Environment is not nil.
	Environ func() []string
}

// Errors are all that is wrong with the settings, source by source.
type Errors []error

// Error returns one line for each.
func (e Errors) Error() string { return errors.Join(e...).Error() }

// Unwrap returns them.
func (e Errors) Unwrap() []error { return e }

// add adds err, if it is one.
func (e *Errors) add(err error) {
	if err != nil {
		*e = append(*e, err)
	}
}

// note adds a *SourceError.
func (e *Errors) note(source, message, hint string) {
	*e = append(*e, &SourceError{Source: source, Message: message, Hint: hint})
}

// warn adds a warning.
func (c *Config) warn(source, message, hint string) {
	c.Warnings = append(c.Warnings, &SourceError{Source: source, Message: message, Hint: hint})
}

// lookup returns what finds a variable.
func (s *Sources) lookup() func(name string) (string, bool) {
	if s.Environment == nil {
		return os.LookupEnv
	}
	return s.Environment
}

// Load reads the settings. The error is Errors: a [diagnostic.Problems] about the
// file, and a *SourceError for each flag or variable that is wrong.
func Load(from Sources) (*Config, error) {
	c := defaults(from.Doors)
	environment := from.lookup()
	if from.Environment == nil && from.Environ == nil {
		from.Environ = os.Environ
	}
	var errs Errors
	errs.add(c.readAny(from, environment))
	errs = append(errs, c.applyEnvoy(from, environment)...)
	for _, s := range c.settings() {
		if value, ok := environment(s.variable()); ok && value != "" {
			errs.add(s.apply(c, s.variable(), value))
		}
	}
	for _, s := range c.settings() {
		if value, ok := from.Flags[s.key]; ok {
			name := strings.ReplaceAll(s.key, ".", "-")
			if own := from.FlagNames[s.key]; own != "" {
				name = own
			}
			errs.add(s.apply(c, "--"+name, value))
		}
	}
	errs.add(c.Telemetry.OTLP.adoptOTel(environment))
	if len(errs) == 0 {
		c.placeDoors()
		errs = c.checkTogether()
		for i, err := range errs {
			errs[i] = c.Locate(err)
		}
	}
	if len(errs) > 0 {
		return nil, errs
	}
	c.finish()
	c.warnOfVariables(from)
	c.warnOfFile()
	c.settleDoors()
	c.warnOfProxies()
	c.locateWarnings()
	return c, nil
}

func defaults(doors []Section) *Config {
	c := Closed(doors)
	c.XDS = XDS{Address: DefaultControlPlane, NodeID: DefaultNodeID}
	c.Envoy = Envoy{LimitHeader: "RateLimit-Limit", RemainingHeader: "RateLimit-Remaining", ResetHeader: "RateLimit-Reset"}
	c.Queue.StatusPath = DefaultQueueStatus
	c.JWT = JWT{Header: DefaultTokenHeader, Leeway: DefaultLeeway, Refresh: DefaultKeyRefresh, OnInvalid: InvalidAnonymous}
	c.Telemetry.OTLP.Sample = DefaultSample
	c.ShutdownTimeout, c.ShutdownIdle = 10*time.Second, time.Second
	c.Store.Kind, c.Store.Memory.SnapshotInterval, c.Store.Redis.DenyCache = InMemory, time.Minute, DefaultDenyCache
	c.RulesFrom, c.Log.Format = FromFiles, Auto
	return c
}

// finish fills in what depends on the place the process runs in.
func (c *Config) finish() {
	c.Telemetry.OTLP.settle()
	if len(c.Rules) == 0 && c.RulesFrom != FromXDS {
		if info, err := os.Stat(DefaultRules); err == nil && info.IsDir() {
			c.Rules = []string{DefaultRules}
		}
	}
}

// SourceError is a wrong setting.
type SourceError struct {
	Source string // the flag or variable, or the setting's key
	// File, Line and Column are where the configuration file says it, or empty.
	File          string
	Line, Column  int
	Message, Hint string // Message says what is wrong, Hint what to do about it; the hint may be empty
}

// Error returns the message after its source, and where it stands.
func (e *SourceError) Error() string {
	if e.Line > 0 {
		return fmt.Sprintf("%s:%d:%d: %s: %s", e.File, e.Line, e.Column, e.Source, e.Message)
	}
	return e.Source + ": " + e.Message
}

// readAny applies the file that is named, or the one that is just there.
func (c *Config) readAny(from Sources, environment func(string) (string, bool)) error {
	if from.NoFile {
		return nil
	}
	if from.File != "" {
		return c.readFile(from.File)
	}
	if name, _ := environment("HEADGATE_CONFIG"); name != "" {
		return c.readFile(name)
	}
	if err := c.readFile(DefaultFile); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Colourless reports whether the user wants no colour on terminals; see
// no-color.org.
func Colourless() bool { return os.Getenv("NO_COLOR") != "" }

// readFile applies the settings of a file.
func (c *Config) readFile(name string) error {
	src, err := readBounded(name)
	if err != nil {
		return err
	}
	c.File = name
	r := reader{Report: &yamltext.Report{File: name, Secrets: true}, config: c, folder: filepath.Dir(name)}
	r.read(src)
	if problems := r.Sorted(); len(problems) > 0 {
		return diagnostic.Problems(problems)
	}
	return nil
}

// maxFile is the size of the largest file that is read, in bytes.
const maxFile = 1 << 20

func readBounded(name string) ([]byte, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if info.IsDir() || info.Size() > maxFile {
		message := "the file is larger than 1 MiB"
		if info.IsDir() {
			message = "this is a folder; the configuration is one file"
		}
		return nil, diagnostic.Problems{{File: name, Message: message}}
	}
	return os.ReadFile(name)
}
