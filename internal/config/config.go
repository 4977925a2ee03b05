// Package config reads the settings of the process from flags, the environment
// (HEADGATE_…), a YAML file and defaults, in that order. It is the only package that
// reads the environment. docs/reference/settings.md lists the keys.
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

	"github.com/headgate/headgate/internal/answer"
	"github.com/headgate/headgate/internal/base/diagnostic"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/observe/warning"
	"github.com/headgate/headgate/internal/rules/inline"
	"github.com/headgate/headgate/internal/rules/rulefile"
	"github.com/headgate/headgate/internal/rules/yamltext"
)

// Off stands for no address and closes a door.
const Off = "off"

// DefaultFile is read if it exists and no other file is named.
const DefaultFile = "headgate.yaml"

// DefaultRules is the folder with rules that is used if it exists and no other rules
// are named.
const DefaultRules = "rules"

// Config has all settings of the process, with defaults filled in.
type Config struct {
	// File is the file that was read, or empty. [Config.Locate] finds settings in it.
	File    string
	places  map[string]place
	doors   []*Door
	Ignored []Ignored // variables of envoyproxy/ratelimit that are set but have no effect
	// RulesFrom is where rules come from, RuleOptions how they are read. RuleOptions
	// contains a secret and must not be shown.
	RulesFrom   Origin
	RuleOptions rulefile.Options
	// Rules are files and folders of rules, XDS is the control plane; one of the two
	// is used.
	Rules     []string
	XDS       XDS
	Candidate Candidate // rules to compare with these
	Reload    Reload    // how reloads that remove rules are handled
	Store     Store     // where counts are kept
	// Tokens are the tokens for the API over HTTP and gRPC. Callers must send one of
	// them, unless there are none.
	Tokens         []Secret
	Inline         inline.Bounds        // what limits callers of the API may send
	Envoy          Envoy                // settings of Envoy's rate limit service
	Queue          Queue                // where queued requests are kept
	TrustedProxies []netip.Prefix       // peers that are trusted to name the client's address
	ProxyProtocol  ProxyProtocol        // doors with the PROXY protocol
	TLS            TLS                  // certificate and minimum version of all doors
	JWT            JWT                  // how tokens are verified
	UnknownDomain  engine.UnknownDomain // the answer to requests in a domain without rules
	Headers        answer.Dialect       // the dialect of the header fields
	DecisionTime   bool                 // adds the time of the decision at the proxy and forward-auth
	Overload       Overload             // when load is shed
	// Log and Metrics configure logs and /metrics.
	Log       Log
	Metrics   Metrics
	Telemetry Telemetry // traces and metrics by OTLP
	// EarlyWarning says what operators are warned of while it begins.
	EarlyWarning EarlyWarning
	Warnings     []*SourceError // about settings that work, but probably not as intended
	// ShutdownDelay is how long a stopping process keeps serving while /readyz fails,
	// so that load balancers stop sending requests.
	ShutdownDelay   time.Duration
	ShutdownTimeout time.Duration // how long a stopping process waits for in-flight requests
	// ShutdownIdle is how long an HTTP/1 connection must be idle before a stopping
	// process closes it.
	ShutdownIdle time.Duration
}

// Store is where counts are kept.
type Store struct {
	// Kind selects one of the two.
	Kind   Kind
	Memory Memory
	Redis  Redis
	// KeyTimes records when keys are created and changed.
	KeyTimes bool
	Regions  Regions // that share limits
}

// Memory is the embedded store.
type Memory struct {
	MaxKeys, MaxBytes int64 // limits; 0 is the store's default
	// Snapshot is the file for saved counts; empty for none.
	Snapshot         string
	SnapshotInterval time.Duration // how often to save, besides on shutdown
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

// Sources are where settings come from.
type Sources struct {
	// File is the file to read. If empty, HEADGATE_CONFIG names it, or it is
	// DefaultFile, if that exists.
	File   string
	NoFile bool // reads no file at all
	// Flags are settings by key, such as listen.api. They win over all other sources.
	Flags     map[string]string
	FlagNames map[string]string // names of flags, by key, if not derived from the key
	Doors     []Section         // settings that doors declare
	// EnvoyEnvironment also reads the variables of envoyproxy/ratelimit, as the
	// variable [EnvoyEnvironment] does.
	EnvoyEnvironment bool
	Environment      func(name string) (string, bool) // looks up a variable; nil uses the process's
	// Environ lists all variables as name=value. Nil uses the process's, or none if
	// Environment is set.
	Environ func() []string
}

// Errors are all errors in the settings, source by source.
type Errors []error

// Error returns one line per error.
func (e Errors) Error() string { return errors.Join(e...).Error() }

// Unwrap returns the errors.
func (e Errors) Unwrap() []error { return e }

// add adds err unless it is nil.
func (e *Errors) add(err error) {
	if err != nil {
		*e = append(*e, err)
	}
}

// addAt adds a *SourceError.
func (e *Errors) addAt(source, message, hint string) {
	*e = append(*e, &SourceError{Source: source, Message: message, Hint: hint})
}

// warn adds a warning.
func (c *Config) warn(source, message, hint string) {
	c.Warnings = append(c.Warnings, &SourceError{Source: source, Message: message, Hint: hint})
}

// lookup returns the function that looks up variables.
func (s *Sources) lookup() func(name string) (string, bool) {
	if s.Environment == nil {
		return os.LookupEnv
	}
	return s.Environment
}

// Load reads the settings. The error is Errors: a [diagnostic.Problems] for the file,
// and a *SourceError for each wrong flag or variable.
func Load(from Sources) (*Config, error) {
	c := defaults(from.Doors)
	environment := from.lookup()
	if from.Environment == nil && from.Environ == nil {
		from.Environ = os.Environ
	}
	var errs Errors
	errs.add(c.readAny(from, environment))
	errs = append(errs, c.applyEnvoy(from, environment)...)
	errs = append(errs, c.applyEach(variables(environment))...)
	for _, s := range c.settings() {
		if value, ok := from.Flags[s.key]; ok {
			name := strings.ReplaceAll(s.key, ".", "-")
			if own := from.FlagNames[s.key]; own != "" {
				name = own
			}
			errs.add(s.apply(c, "--"+name, value))
		}
	}
	errs = append(errs, c.judgeVariables(from)...)
	errs.add(c.Telemetry.adoptOTel(environment))
	if len(errs) == 0 {
		c.placeDoors()
		c.inheritTLS()
		errs = c.Conflicts()
	}
	if len(errs) > 0 {
		return nil, errs
	}
	c.finish()
	c.warnOfFile()
	c.settleDoors()
	c.settleRegions()
	c.warnOfProxies()
	c.warnOfInline()
	c.locateWarnings()
	return c, nil
}

func defaults(doors []Section) *Config {
	c := Closed(doors)
	c.XDS = XDS{Address: DefaultControlPlane, NodeID: DefaultNodeID}
	c.Envoy = Envoy{LimitHeader: "RateLimit-Limit", RemainingHeader: "RateLimit-Remaining", ResetHeader: "RateLimit-Reset"}
	c.Queue.StatusPath, c.Inline = DefaultQueueStatus, inline.Default()
	c.JWT = JWT{Header: DefaultTokenHeader, Leeway: DefaultLeeway, Refresh: DefaultKeyRefresh, OnInvalid: InvalidAnonymous}
	c.EarlyWarning.Settings = warning.Default()
	c.ShutdownTimeout, c.ShutdownIdle = 10*time.Second, time.Second
	c.Store.Kind, c.Store.Memory.SnapshotInterval, c.Store.Redis.DenyCache = InMemory, time.Minute, DefaultDenyCache
	c.RulesFrom, c.Log.Format = FromFiles, Auto
	return c
}

// finish fills in defaults that depend on the current folder.
func (c *Config) finish() {
	if len(c.Rules) == 0 && c.RulesFrom != FromXDS {
		if info, err := os.Stat(DefaultRules); err == nil && info.IsDir() {
			c.Rules = []string{DefaultRules}
		}
	}
}

// SourceError is a wrong setting.
type SourceError struct {
	Source string // the flag or variable, or the setting's key
	// File, Line and Column are the position in the configuration file, if it is there.
	File          string
	Line, Column  int
	Message, Hint string // Message says what is wrong, Hint what to do, or is empty
}

// Error returns the position, if known, the source and the message.
func (e *SourceError) Error() string {
	if e.Line > 0 {
		return fmt.Sprintf("%s:%d:%d: %s: %s", e.File, e.Line, e.Column, e.Source, e.Message)
	}
	return e.Source + ": " + e.Message
}

// readAny applies the named file, or the default file if it exists.
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

// Colourless reports whether terminals get no colour: the user wants none (no-color.org), or
// the terminal has none.
func Colourless() bool { return os.Getenv("NO_COLOR") != "" || Dumb() }

// Dumb reports whether the terminal shows text alone.
func Dumb() bool { return os.Getenv("TERM") == "dumb" }

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

// maxFile is the maximum size of the file, in bytes.
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
