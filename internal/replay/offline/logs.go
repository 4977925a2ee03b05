package offline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/replay/accesslog"
	"github.com/headgate/headgate/internal/replay/simulate"
	"github.com/headgate/headgate/internal/request/client"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/ownform"
	"github.com/headgate/headgate/internal/rules/rulefile"
)

// AccessLogs names the logs to read, and how to read them.
type AccessLogs struct {
	// Paths are files; - is standard input.
	Paths            []string
	Stdin            io.Reader
	Format           string   // as for accesslog.New; empty detects it
	Map              []string // ATTRIBUTE=KEY for JSON lines
	Timezone         string   // of times without one
	TrustedProxies   []string // addresses and networks
	simulate.Reading          // Reorder, Told and Progress; the rest is derived from the fields above
}

// flagError returns an error about the value of a flag.
func flagError(flag, message, hint string) error {
	return &config.SourceError{Source: "--" + flag, Message: message, Hint: hint}
}

// reading converts l.
func (l *AccessLogs) reading() (simulate.Reading, error) {
	r := l.Reading
	if l.Reorder < 0 {
		return r, flagError("reorder", "must not be negative", "")
	}
	var err error
	if r.Zone, err = time.LoadLocation(l.Timezone); err != nil {
		return r, flagError("timezone", fmt.Sprintf("unknown time zone %q", l.Timezone), "for example Europe/Berlin or UTC")
	}
	var mapping map[string]string
	for _, pair := range l.Map {
		attribute, path, ok := strings.Cut(pair, "=")
		if !ok || path == "" {
			return r, flagError("map", fmt.Sprintf("%q is not ATTRIBUTE=KEY", pair), "for example client_ip=ip,path=url,time=when")
		}
		if mapping == nil {
			mapping = map[string]string{}
		}
		mapping[attribute] = path
	}
	if l.Format != "" || mapping != nil {
		if r.Format, err = accesslog.New(l.Format, mapping); err != nil {
			flag := "format"
			if l.Format == "" {
				flag = "map"
			}
			return r, flagError(flag, err.Error(), "")
		}
	}
	var trusted []netip.Prefix
	for _, text := range l.TrustedProxies {
		prefix, err := netip.ParsePrefix(text)
		if address, single := netip.ParseAddr(text); single == nil {
			prefix, err = address.Prefix(address.BitLen())
		}
		if err != nil {
			return r, flagError("trusted-proxies", fmt.Sprintf("%q is neither an address nor a network", text), "for example 10.0.0.0/8")
		}
		trusted = append(trusted, prefix.Masked())
	}
	if r.Clients, err = client.New(client.Config{TrustedProxies: trusted, Source: client.XForwardedFor}); err != nil {
		return r, flagError("trusted-proxies", err.Error(), "")
	}
	r.Logs, err = l.logs()
	return r, err
}

// logs converts l.Paths.
func (l *AccessLogs) logs() ([]simulate.Log, error) {
	var out []simulate.Log
	stdin := false
	for _, path := range l.Paths {
		if path == "-" {
			if stdin {
				return nil, &config.SourceError{Source: "-", Message: "standard input can be read only once"}
			}
			stdin = true
			out = append(out, simulate.Log{
				Name: "standard input", Once: true,
				Open: func() (io.ReadCloser, error) { return io.NopCloser(l.Stdin), nil },
			})
			continue
		}
		info, err := os.Stat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil, &config.SourceError{Source: path, Message: "file not found", Hint: "check the name; it is relative to the current folder"}
		case err != nil:
			return nil, err
		case info.IsDir():
			return nil, &config.SourceError{Source: path, Message: "is a folder, not a file", Hint: "pass its files, for example " + path + "/access.log*"}
		}
		out = append(out, simulate.Log{
			Name: path, Size: info.Size(), Once: !info.Mode().IsRegular(),
			Open: func() (io.ReadCloser, error) { return os.Open(path) },
		})
	}
	return out, nil
}

// logErrors converts the errors of reading for Diagnose.
func logErrors(err error) error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var out config.Errors
		for _, e := range joined.Unwrap() {
			out = append(out, logErrors(e))
		}
		return out
	}
	if e, ok := errors.AsType[*simulate.LogError](err); ok {
		return &config.SourceError{Source: e.Name, Message: e.Err.Error(), Hint: e.Hint}
	}
	return err
}

// Visit calls visit for every request, in time order, with its time in
// microseconds and its client.
func (l *AccessLogs) Visit(ctx context.Context, visit func(at int64, client string)) error {
	r, err := l.reading()
	if err != nil {
		return err
	}
	return logErrors(simulate.Visit(ctx, r, visit))
}

// Simulation names the logs to replay and the rules.
type Simulation struct {
	AccessLogs
	// Rules and Candidate are rule files and folders; Candidate may be empty.
	// RuleOptions is how both are read.
	Rules, Candidate []string
	RuleOptions      rulefile.Options
	Domain           string // may be empty if the rules have only one
	MaxKeys          int    // capacity of the store; 0 is its default
	// Top is how many keys to list for each rule. AllKeys keeps all of them, for
	// WriteCSV.
	Top     int
	AllKeys bool
}

// Run replays the logs.
func (s *Simulation) Run(ctx context.Context) (*simulate.Report, error) {
	o := simulate.Options{MaxKeys: s.MaxKeys, Top: s.Top, AllKeys: s.AllKeys}
	if s.MaxKeys < 0 {
		return nil, flagError("max-keys", "must not be negative", "")
	}
	var err error
	if o.Side, err = s.side(s.Rules, s.Domain); err != nil {
		return nil, err
	}
	if len(s.Candidate) > 0 {
		candidate, err := s.side(s.Candidate, o.Domain)
		if err != nil {
			return nil, err
		}
		o.Candidate = &candidate
	}
	if o.Reading, err = s.reading(); err != nil {
		return nil, err
	}
	report, err := simulate.Run(ctx, o)
	return report, logErrors(err)
}

// side reads rules.
func (s *Simulation) side(paths []string, domain string) (simulate.Side, error) {
	rs, err := s.RuleOptions.Load(paths...)
	if err != nil {
		return simulate.Side{}, err
	}
	domain, err = domainOf(rs, domain)
	return simulate.Side{Rules: rs, Domain: domain}, err
}

// SuggestLimits names the logs to derive limits from.
type SuggestLimits struct {
	AccessLogs
	Domain     string   // of the suggested rules
	Keys       []string // lists of attributes separated by commas, one rule for each
	Unaffected string   // percentage of keys that must never be refused, such as 99.9%
}

// knows returns an error for an attribute that is neither known nor named by
// --map, if its name looks like a mistake.
func (s *SuggestLimits) knows(a rules.KeyAttribute) error {
	mapped := func(pair string) bool { return strings.HasPrefix(pair, a.Name+"=") }
	if a.Kind != rules.Other || slices.ContainsFunc(s.Map, mapped) {
		return nil
	}
	near, wrong := ownform.Meant(a.Name)
	if near == "" && !wrong {
		return nil // perhaps a custom variable; otherwise no request has it
	}
	hint := "use client_ip, method, path, host, header:NAME, query:NAME, cookie:NAME, or an attribute of --map"
	if near != "" {
		hint = fmt.Sprintf("did you mean %q?", near)
	}
	return flagError("key", fmt.Sprintf("unknown attribute %q", a.Name), hint)
}

// Run reads the logs.
func (s *SuggestLimits) Run(ctx context.Context) (*simulate.Suggestion, error) {
	o := simulate.SuggestOptions{Domain: s.Domain}
	percent, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(s.Unaffected, "%")), 64)
	if err != nil || !(percent > 0 && percent <= 100) {
		return nil, flagError("unaffected", fmt.Sprintf("%q is not a percentage of the keys", s.Unaffected), "for example 99.9%")
	}
	if percent <= 1 && !strings.HasSuffix(s.Unaffected, "%") {
		return nil, flagError("unaffected", fmt.Sprintf("%q is less than 1%% of the keys", s.Unaffected), fmt.Sprintf("write %s%%", strconv.FormatFloat(100*percent, 'f', -1, 64)))
	}
	o.Unaffected = percent / 100
	for _, key := range s.Keys {
		var list []string
		for name := range strings.SplitSeq(key, ",") {
			a, err := rules.ParseKeyAttribute(strings.TrimSpace(name))
			if err != nil {
				return nil, flagError("key", err.Error(), "for example client_ip, or client_ip,path")
			}
			if err := s.knows(a); err != nil {
				return nil, err
			}
			list = append(list, a.String())
		}
		o.Keys = append(o.Keys, list)
	}
	if o.Reading, err = s.reading(); err != nil {
		return nil, err
	}
	suggestion, err := simulate.Suggest(ctx, o)
	return suggestion, logErrors(err)
}
