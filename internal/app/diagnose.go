package app

import (
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"strings"
	"syscall"
	"unicode"

	"github.com/headgate/headgate/internal/base/diagnostic"
	"github.com/headgate/headgate/internal/base/nearest"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/yamltext"
)

// Diagnosis is one thing that is wrong, ready to be shown to people or, as
// JSON, to machines.
type Diagnosis struct {
	Severity string `json:"severity"` // error or warning
	File     string `json:"file,omitempty"`
	Line     int    `json:"line,omitempty"`
	Column   int    `json:"column,omitempty"`
	Message  string `json:"message"`
	Hint     string `json:"hint,omitempty"`
	// Position is file:line:column, or what is known of it.
	Position string `json:"-"`
	// Excerpt is the line with a caret below the column, or empty.
	Excerpt string `json:"-"`
}

// Diagnose takes an error of New, Start or config.Load apart.
func Diagnose(err error) []Diagnosis {
	if err == nil {
		return nil
	}
	if all, ok := errors.AsType[config.Errors](err); ok {
		var out []Diagnosis
		for _, e := range all {
			out = append(out, Diagnose(e)...)
		}
		return out
	}
	if problems, ok := errors.AsType[diagnostic.Problems](err); ok {
		return explain(problems, nil)
	}
	d := Diagnosis{Severity: diagnostic.SeverityError.String(), Message: err.Error()}
	var source *config.SourceError
	var listen *ListenError
	switch {
	case errors.As(err, &source) && source.Line > 0:
		return explain([]diagnostic.Diagnostic{source.Diagnostic()}, nil)
	case errors.As(err, &source):
		d.Hint = source.Hint
	case errors.As(err, &listen):
		d.Hint = listenHint(listen)
	case errors.Is(err, fs.ErrNotExist):
		d.Hint = "check the name; it is relative to the current folder"
	}
	return []Diagnosis{d}
}

func listenHint(e *ListenError) string {
	var errno syscall.Errno
	if !errors.As(e.Err, &errno) {
		return "write host:port, such as 127.0.0.1:8080"
	}
	switch errno {
	case syscall.EADDRINUSE:
		if e.Other != "" {
			return fmt.Sprintf("%s and %s are one address: give each its own, or let API, gRPC and the Redis protocol share listen.shared", e.Other, e.Setting)
		}
		return "another process listens there: stop it, or choose another address"
	case syscall.EACCES, syscall.EPERM:
		return "ports below 1024 need a privilege (CAP_NET_BIND_SERVICE); choose a higher one"
	case syscall.EADDRNOTAVAIL:
		return "this machine does not have that address"
	}
	return ""
}

// explain turns diagnostics into what is shown. read returns the text of a
// file; nil means from disk.
func explain(list []diagnostic.Diagnostic, read func(name string) []byte) []Diagnosis {
	if read == nil {
		read = readForExcerpt
	}
	texts := map[string][]byte{}
	out := make([]Diagnosis, 0, len(list))
	for _, d := range list {
		src, ok := texts[d.File]
		if !ok && d.Line > 0 {
			src = read(d.File)
			texts[d.File] = src
		}
		out = append(out, Diagnosis{
			Severity: d.Severity.String(), File: d.File, Line: d.Line, Column: d.Column,
			Message: d.Message, Hint: d.Hint, Position: d.Position(), Excerpt: openExcerpt(src, d),
		})
	}
	return out
}

// openExcerpt returns the line that d is about, unless something in it may be
// secret: what is printed at the start often ends up in a journal.
func openExcerpt(src []byte, d diagnostic.Diagnostic) string {
	if strings.HasPrefix(d.Message, "telemetry.otlp.headers:") {
		return "" // their names are anything
	}
	excerpt := diagnostic.Excerpt(src, d)
	line := strings.ToLower(excerpt)
	if strings.HasPrefix(d.Message, "store") && strings.Contains(line, "://") && strings.Contains(d.Message, ": redis: ") {
		return "" // a port that is none may be a password
	}
	telemetry := strings.Contains(d.Message, "telemetry") // the names of whose headers are anything
	for word := range keysOf(line) {
		if isSecret(word) || telemetry && word == "headers" || strings.Contains(line, "@") && isPlace(word) {
			return ""
		}
	}
	if isNoSetting(d.Message) {
		_, value, _ := strings.Cut(line, ":")
		value, _, _ = strings.Cut(strings.TrimSpace(value), "\n")
		if value != "" && value[0] != '{' {
			return ""
		}
	}
	if _, rest, ok := strings.Cut(line, "://"); ok && strings.ContainsAny(rest, "@?#") {
		return ""
	}
	return excerpt
}

// isNoSetting reports whether a message is about a setting that is none, or that
// holds a value where settings should be: the value may be the secret of another.
// Messages about rules read otherwise.
func isNoSetting(message string) bool {
	return strings.HasSuffix(message, "must be a mapping of keys to values") || strings.HasPrefix(message, "unknown key ") && !strings.Contains(message, `" in `)
}

// keysOf yields the words of a line that a colon follows.
func keysOf(line string) iter.Seq[string] {
	return func(yield func(string) bool) {
		parts := strings.Split(line, ":")
		for _, part := range parts[:len(parts)-1] {
			part = strings.TrimRight(part, " \t\"'")
			at := strings.LastIndexFunc(part, func(r rune) bool { return !unicode.IsLetter(r) && r != '_' && r != '-' })
			if !yield(part[at+1:]) {
				return
			}
		}
	}
}

// isSecret reports whether what a key holds may be secret, however it is spelt.
func isSecret(key string) bool {
	if strings.HasSuffix(key, "_file") {
		return false // it names one
	}
	for _, part := range []string{"token", "passw", "secret", "credential", "apikey", "api_key", "api-key"} {
		if strings.Contains(key, part) {
			return true
		}
	}
	return nearest.Word(key, []string{"token", "tokens", "password", "passwords", "sentinel_password", "secret", "secrets"}) != ""
}

// isPlace reports whether a key holds the address of a server, which may have a
// password in front.
func isPlace(key string) bool {
	switch key {
	case "address", "addresses", "url", "upstream", "store", "redis", "keys", "endpoint", "listen", "api", "grpc", "resp", "admin", "shared", "proxy":
		return true
	}
	return false
}

// readForExcerpt reads a file that was read before; what has become of it
// since does not matter much.
func readForExcerpt(name string) []byte {
	info, err := os.Stat(name)
	if err != nil || !info.Mode().IsRegular() || info.Size() > yamltext.MaxFileSize {
		return nil
	}
	src, err := os.ReadFile(name)
	if err != nil {
		return nil
	}
	return src
}

// Report is what Check found.
type Report struct {
	OK        bool        `json:"ok"`
	Files     int         `json:"files"`
	Rules     int         `json:"rules"`
	Domains   []string    `json:"domains"`
	Tests     int         `json:"tests"`
	Diagnoses []Diagnosis `json:"diagnostics"`
	// Skipped are files in the folders that are no rule tests, and why.
	Skipped []string `json:"skipped,omitempty"`
}

// Check reads rule files and folders as serve would with these options, and the
// rule tests next to them as test would, and says what is wrong. Tests are not
// run.
func Check(options rules.Options, paths ...string) Report {
	report := Report{Domains: []string{}}
	var named []string
	for _, path := range paths {
		if !rules.IsTest(path) {
			named = append(named, path)
		}
	}
	report.OK = true
	if len(named) > 0 || len(paths) == 0 {
		rs, err := options.Load(named...)
		if err != nil {
			report.OK, report.Diagnoses = false, Diagnose(err)
		} else {
			report.OK = rs.Stats().Files > 0 // folders without one limit nothing
			stats := rs.Stats()
			report.Files, report.Rules = stats.Files, stats.Rules
			report.Domains = append(report.Domains, rs.Domains()...)
			report.Diagnoses = explain(rs.Warnings(), nil)
		}
	}
	report.checkTests(paths)
	return report
}

// Warn puts in front what is to be said of the configuration.
func (r *Report) Warn(list []*config.SourceError) {
	warnings := make([]diagnostic.Diagnostic, len(list))
	for i, w := range list {
		warnings[i] = w.Diagnostic()
		warnings[i].Severity = diagnostic.SeverityWarning
	}
	r.Diagnoses = append(explain(warnings, nil), r.Diagnoses...)
}

// checkTests reads the tests among paths.
func (r *Report) checkTests(paths []string) {
	var folders []string
	for _, path := range paths {
		if info, err := os.Stat(path); err == nil && (info.IsDir() || rules.IsTest(path)) {
			folders = append(folders, path)
		}
	}
	sources, problems := rules.FindTests(folders...)
	if len(r.Diagnoses) == 0 {
		r.Diagnoses = append(r.Diagnoses, explain(problems, nil)...) // else rules have met the same
	}
	sources, r.Skipped = withoutForeign(sources, folders)
	for _, source := range sources {
		file, problems := rules.ParseTests(source)
		r.Diagnoses = append(r.Diagnoses, explain(problems, func(string) []byte { return source.Data })...)
		if file == nil {
			r.OK = false
			continue
		}
		r.Tests += len(file.Tests)
	}
}
