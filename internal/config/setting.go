package config

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/base/nearest"
	"github.com/headgate/headgate/internal/base/secretfile"
)

// Setting is one key, from any source. [One] and the other constructors make it for a
// field of an S: the Config, a part of it, or a door's own settings.
type Setting struct {
	key string // its path in the file, such as store.memory.max_keys
	// list allows several values: a sequence in the file, elsewhere separated by
	// commas.
	list  bool
	pairs bool                                   // values are name=value; in the file they may be a mapping
	path  bool                                   // values are file names, relative to the file that they are in
	rules bool                                   // affects how rules are read
	set   func(c *Config, values []string) error // sets the values: one, unless list is set
	// What docs/reference/settings.md says: what values there are, what applies without
	// the setting, and what it is for. Links are relative to docs.
	values, standard, meaning string
}

// Means says for docs/reference/settings.md what applies without the setting, and what it is for.
// Links are relative to docs.
func (s Setting) Means(standard, meaning string) Setting {
	s.standard, s.meaning = standard, meaning
	return s
}

// As says for docs/reference/settings.md what values there are.
func (s Setting) As(values string) Setting {
	s.values = values
	return s
}

// ForRules marks the setting as one that affects how rules are read.
func (s Setting) ForRules() Setting {
	s.rules = true
	return s
}

// Pairs lets the values be a mapping in the file. The setting gets name=value.
func (s Setting) Pairs() Setting {
	s.pairs = true
	return s
}

// variable returns the setting's name in the environment.
func (s *Setting) variable() string { return variable(s.key) }

func variable(key string) string { return ours + strings.ToUpper(strings.ReplaceAll(key, ".", "_")) }

// apply sets a value from outside the file.
func (s *Setting) apply(c *Config, source, value string) error {
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

// hinted is an error with a hint.
type hinted struct{ message, hint string }

func (e *hinted) Error() string { return e.message }

// Hinted returns an error about a value, with a hint on what to do.
func Hinted(message, hint string) error { return &hinted{message, hint} }

func sourceError(source string, err error) error {
	if h, ok := errors.AsType[*hinted](err); ok {
		return &SourceError{Source: source, Message: h.message, Hint: h.hint}
	}
	return &SourceError{Source: source, Message: err.Error()}
}

// of returns the S of c.
func of[S any](c *Config) *S {
	for _, part := range [...]any{c, &c.Store.Redis, &c.XDS, &c.EarlyWarning} {
		if s, ok := part.(*S); ok {
			return s
		}
	}
	return Own[S](c)
}

// One is a setting with a single value.
func One[S any](key string, set func(s *S, value string) error) Setting {
	return Setting{key: key, set: func(c *Config, values []string) error { return set(of[S](c), values[0]) }}
}

// List is a setting with several values.
func List[S any](key string, set func(s *S, values []string) error) Setting {
	return Setting{key: key, list: true, values: "list", set: func(c *Config, values []string) error { return set(of[S](c), values) }}
}

// parsed is a setting that parse reads into a field.
func parsed[S, T any](key string, field func(*S) *T, parse func(string) (T, error)) Setting {
	return One(key, func(s *S, v string) (err error) {
		*field(s), err = parse(v)
		return err
	})
}

// Text is a setting with any text.
func Text[S any, T ~string](key string, field func(*S) *T) Setting {
	return parsed(key, field, func(v string) (T, error) { return T(v), nil })
}

// Path is a setting with a file name.
func Path[S any](key string, field func(*S) *string) Setting {
	s := Text(key, field).As("file")
	s.path = true
	return s
}

// Flag is a setting that is true or false.
func Flag[S any](key string, field func(*S) *bool) Setting {
	return parsed(key, field, boolean).As("`true`, `false`")
}

// Word is a setting with one of the words.
func Word[S any, T ~string](key string, field func(*S) *T, words ...T) Setting {
	names := make([]string, len(words))
	for i, w := range words {
		names[i] = string(w)
	}
	return Choice(key, field, func(v string) (T, bool) { return T(v), slices.Contains(names, v) }, names...)
}

// Choice is a setting with one of the words, which parse converts.
func Choice[S, T any](key string, field func(*S) *T, parse func(string) (T, bool), words ...string) Setting {
	return parsed(key, field, func(v string) (T, error) { return choice(v, parse, words...) }).As("`" + strings.Join(words, "`, `") + "`")
}

// Count is a setting with a number from 1 to most.
func Count[S any](key string, field func(*S) *int64, most int64) Setting {
	return parsed(key, field, func(v string) (int64, error) { return wholeNumber(v, 1, most) }).As(fmt.Sprintf("1 to %d", most))
}

// number is a setting with a number from 0 to most.
func number[S any](key string, field func(*S) *int, most int64) Setting {
	return parsed(key, field, func(v string) (int, error) {
		n, err := wholeNumber(v, 0, most)
		return int(n), err
	}).As(fmt.Sprintf("0 to %d", most))
}

// Duration is a setting with a duration of at least least.
func Duration[S any](key string, field func(*S) *time.Duration, least time.Duration) Setting {
	values := "duration"
	if least > 0 {
		values += ", at least " + least.String()
	}
	return parsed(key, field, func(v string) (time.Duration, error) { return duration(v, least) }).As(values)
}

// DurationOrOff is a setting with a duration of at least 100 ms, or off, which
// becomes negative.
func DurationOrOff[S any](key string, field func(*S) *time.Duration) Setting {
	return parsed(key, field, func(v string) (time.Duration, error) {
		if v == Off {
			return -1, nil
		}
		return duration(v, leastPeriod)
	}).As("duration, at least " + leastPeriod.String() + ", or `off`")
}

// leastPeriod is the minimum of timeouts.
const leastPeriod = 100 * time.Millisecond

// Period is a setting with a duration of at least 100 ms.
func Period[S any](key string, field func(*S) *time.Duration) Setting {
	return Duration(key, field, leastPeriod)
}

// MessageSize is a setting with a maximum message size, at most 64 MiB.
func MessageSize[S any](key string, field func(*S) *int64) Setting {
	return parsed(key, field, messageSize).As("size, at most 64MiB")
}

// Token is two settings for a token: its value, and with the suffix _file a file.
func Token[S any](key string, field func(*S) *Secret) []Setting {
	set := func(s *S, v string) (err error) { *field(s), err = ParseToken(v); return err }
	return []Setting{
		One(key, set).Means("none", "token that callers must send, at least 16 characters: [tokens](run/tls.md#tokens-and-passwords)"),
		SecretFile(key+"_file", set).Means("none", "the same in a file"),
	}
}

// SecretFile is a setting with the file of a secret; see package secretfile.
func SecretFile[S any](key string, set func(s *S, value string) error) Setting {
	return Setting{key: key, path: true, values: "file", set: func(c *Config, v []string) error {
		secret, info, err := secretfile.Read(v[0])
		if info != nil {
			c.warnOfSecret(key, v[0], info)
		}
		if err != nil {
			return err
		}
		if err := set(of[S](c), secret); err != nil {
			if h, ok := errors.AsType[*hinted](err); ok {
				return &hinted{v[0] + ": " + h.message, h.hint}
			}
			return fmt.Errorf("%s: %w", v[0], err)
		}
		return nil
	}}
}

func choice[T any](v string, parse func(string) (T, bool), words ...string) (T, error) {
	t, ok := parse(v)
	if !ok && strings.ContainsAny(v, ":@") { // a URL that may contain a password
		return t, &hinted{"the value is not one of " + strings.Join(words, ", "), ""}
	}
	if !ok {
		return t, &hinted{fmt.Sprintf("%q is not one of %s%s", v, strings.Join(words, ", "), nearest.DidYouMean(v, words)), ""}
	}
	return t, nil
}

func wholeNumber(v string, least, most int64) (int64, error) {
	n, err := strconv.ParseInt(strings.ReplaceAll(v, "_", ""), 10, 64)
	if err != nil || n < least || n > most {
		return 0, fmt.Errorf("%q is not a whole number from %d to %d", v, least, most)
	}
	return n, nil
}

func boolean(v string) (bool, error) {
	yes, err := strconv.ParseBool(v)
	if err != nil {
		return false, &hinted{fmt.Sprintf("%q is neither true nor false", v), ""}
	}
	return yes, nil
}

// OnOff parses on, off, true or false.
func OnOff(v string) (bool, error) {
	switch v {
	case "on":
		return true, nil
	case Off:
		return false, nil
	}
	if yes, err := boolean(v); err == nil {
		return yes, nil
	}
	return false, &hinted{fmt.Sprintf("%q is neither on nor off", v), ""}
}

// size parses a number of bytes such as 512MiB.
func size(v string) (int64, error) {
	digits := strings.TrimRight(v, "KMGTiBkb ")
	unit := strings.TrimSpace(v[len(digits):])
	factor, ok := map[string]int64{
		"": 1, "B": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30,
	}[unit]
	n, err := strconv.ParseInt(strings.ReplaceAll(digits, "_", ""), 10, 64)
	if !ok || err != nil || n < 1 || n > (1<<50)/factor {
		return 0, &hinted{fmt.Sprintf("%q is not a size", v), "write a number of bytes, or add a unit, such as 512MiB"}
	}
	return n * factor, nil
}

func messageSize(v string) (int64, error) {
	n, err := size(v)
	if err == nil && n > 64<<20 {
		return 0, fmt.Errorf("%s is more than 64MiB", v)
	}
	return n, err
}

func duration(v string, least time.Duration) (time.Duration, error) {
	d, err := time.ParseDuration(v)
	if err != nil {
		return 0, &hinted{fmt.Sprintf("%q is not a duration", v), "write a number with a unit, such as 30s or 5m"}
	}
	if d < least {
		return 0, fmt.Errorf("%s is too short: the minimum is %s", v, least)
	}
	return d, nil
}

// address checks host:port, or off.
func address(v string) (string, error) {
	if v == Off {
		return Off, nil
	}
	const hint = `use host:port, such as 127.0.0.1:8080 or :8080, or "off"`
	host, port, err := net.SplitHostPort(v)
	if err != nil && strings.Contains(v, "@") { // it may contain a password
		return "", &hinted{"the value is not an address to listen on", hint}
	}
	if err != nil {
		return "", &hinted{fmt.Sprintf("%q is not an address to listen on", v), hint}
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 && port != "0" {
		return "", &hinted{fmt.Sprintf("%q is not a port from 0 to 65535", port), hint}
	}
	if !isHost(host) {
		return "", &hinted{fmt.Sprintf("%s is neither an IP address nor the name of a host", Shown(host)), hint}
	}
	return v, nil
}

// isHost reports whether a host is an IP address, or a name that may have one: numbers alone never
// do. Empty is all addresses of this machine.
func isHost(host string) bool {
	if _, err := netip.ParseAddr(host); err == nil || host == "" {
		return true
	}
	const digits, others = "0123456789.", "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_"
	return strings.Trim(host, digits) != "" && strings.Trim(host, digits+others) == ""
}

// addressOrSocket checks host:port, unix:PATH, or off.
func addressOrSocket(v string) (string, error) {
	if socket, ok := strings.CutPrefix(v, UnixPrefix); ok {
		if socket == "" {
			return "", &hinted{"the unix socket has no path", "write unix:/run/headgate.sock"}
		}
		return v, nil
	}
	return address(v)
}

// networks parses CIDR networks and single addresses.
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
			return nil, &hinted{fmt.Sprintf("%q has bits set outside its prefix", v), "write " + p.Masked().String()}
		}
		if p.Addr().Is4In6() {
			return nil, &hinted{fmt.Sprintf("%q is an IPv4-mapped IPv6 network", v), "write it as an IPv4 network"}
		}
		out = append(out, p)
	}
	return out, nil
}

// HeaderName checks the name of a header field.
func HeaderName(v string) (string, error) {
	if strings.Trim(http.CanonicalHeaderKey(v), "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
		return "", fmt.Errorf("%q is not a valid header name", v)
	}
	return v, nil
}

// Shown quotes a URL or an address for an error, unless it may contain a password.
func Shown(v string) string {
	if strings.ContainsAny(v, "@?#") {
		return "the value"
	}
	return strconv.Quote(v)
}

// pairs parses name=value. Errors do not contain values.
func pairs(list []string) (map[string]string, error) {
	all := make(map[string]string, len(list))
	for i, entry := range list {
		name, value, ok := strings.Cut(entry, "=")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		if !ok || name == "" {
			return nil, &hinted{fmt.Sprintf("entry %d is not name=value", i+1), "write name=value, or use a mapping of names to values in the file"}
		}
		if _, twice := all[name]; twice {
			return nil, fmt.Errorf("duplicate %q", name)
		}
		all[name] = value
	}
	return all, nil
}

// Lines returns the non-empty lines of a text.
func Lines(text string) []string {
	var all []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			all = append(all, line)
		}
	}
	return all
}

// relativeTo resolves file names relative to folder.
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
