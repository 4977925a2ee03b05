package offline

import (
	"errors"
	"io/fs"
	"os"
	"regexp"
	"strings"

	"github.com/headgate/headgate/internal/base/diagnostic"
	"github.com/headgate/headgate/internal/base/nearest"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/rules/yamltext"
)

// Diagnosis is one problem, ready to be printed or encoded as JSON.
type Diagnosis struct {
	Severity string `json:"severity"` // error or warning
	File     string `json:"file,omitempty"`
	Line     int    `json:"line,omitempty"`
	Column   int    `json:"column,omitempty"`
	Message  string `json:"message"`
	Hint     string `json:"hint,omitempty"`
	Position string `json:"-"` // file:line:column, as far as known
	Excerpt  string `json:"-"` // the line with a caret below the column, or empty
}

// Diagnose splits an error into its problems: errors of config.Load, of reading
// rules, or of starting the server.
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
		return diagnosed(problems, nil)
	}
	d := Diagnosis{Severity: diagnostic.SeverityError.String(), Message: err.Error()}
	var source *config.SourceError
	var hinted interface{ Hint() string }
	switch {
	case errors.As(err, &source) && source.Line > 0:
		return diagnosed([]diagnostic.Diagnostic{source.Diagnostic()}, nil)
	case errors.As(err, &source):
		d.Hint = source.Hint
	case errors.As(err, &hinted):
		d.Hint = hinted.Hint()
	case errors.Is(err, fs.ErrNotExist):
		d.Hint = "check the name; it is relative to the current folder"
	}
	return []Diagnosis{d}
}

// diagnosed converts diagnostics. read returns the text of a file; nil reads it
// from disk.
func diagnosed(list []diagnostic.Diagnostic, read func(name string) []byte) []Diagnosis {
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

// openExcerpt returns the line that d is about, or nothing if the line may contain
// a secret: startup errors often end up in a log.
func openExcerpt(src []byte, d diagnostic.Diagnostic) string {
	if strings.HasPrefix(d.Message, "telemetry.otlp.") {
		return "" // headers may be secret, and a URL have a password
	}
	excerpt := diagnostic.Excerpt(src, d)
	line := strings.ToLower(excerpt)
	if strings.HasPrefix(d.Message, "store") && strings.Contains(line, "://") && strings.Contains(d.Message, ": redis: ") {
		return "" // an invalid port may be a password
	}
	if strings.Contains(line, "/") && (strings.Contains(line, "webhook") || strings.Contains(d.Message, "webhook")) {
		return "" // the path of such a URL is its password
	}
	telemetry := strings.Contains(d.Message, "telemetry") // its header names are arbitrary
	for _, key := range regexp.MustCompile(`([\pL_-]*)[ \t"']*:`).FindAllStringSubmatch(line, -1) {
		word := key[1]
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

// isNoSetting reports whether a message is about an unknown setting, or one with a
// value instead of settings: the value may be a secret. Messages about rules have a
// different form.
func isNoSetting(message string) bool {
	return strings.HasSuffix(message, "must be a mapping of keys to values") || strings.HasPrefix(message, "unknown key ") && !strings.Contains(message, `" in `)
}

// isSecret reports whether the value of a key may be secret, even if the key is
// misspelt.
func isSecret(key string) bool {
	if strings.HasSuffix(key, "_file") {
		return false // a path
	}
	for _, part := range []string{"token", "passw", "secret", "credential", "apikey", "api_key", "api-key"} {
		if strings.Contains(key, part) {
			return true
		}
	}
	return nearest.Word(key, []string{"token", "tokens", "password", "passwords", "sentinel_password", "secret", "secrets"}) != ""
}

// isPlace reports whether a key holds a server address, which may include a
// password.
func isPlace(key string) bool {
	switch key {
	case "address", "addresses", "url", "upstream", "store", "redis", "keys", "endpoint", "listen", "api", "grpc", "resp", "admin", "shared", "proxy":
		return true
	}
	return false
}

// readForExcerpt reads a file again. It may have changed, which hardly matters.
func readForExcerpt(name string) []byte {
	info, err := os.Stat(name)
	if err != nil || !info.Mode().IsRegular() || info.Size() > yamltext.MaxFileSize {
		return nil
	}
	src, _ := os.ReadFile(name) // without it there is no excerpt
	return src
}
