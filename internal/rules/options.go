package rules

import (
	"fmt"
)

// Compat says whose answers rules of the descriptor form give where Headgate
// would do better than envoyproxy/ratelimit.
type Compat uint8

// The kinds of compatibility.
const (
	// CompatNone takes the most specific wildcard, tries the next where that
	// leads nowhere, counts days, weeks, months and years by the calendar, and
	// never takes two keys for one.
	CompatNone Compat = iota
	// CompatEnvoy gives the very same answers: the first wildcard of the file,
	// no second try, windows counted from the Unix epoch (a week begins on
	// Thursday, a month has 30 days, a year 365), keys joined by _, so that some
	// are the same, and refused requests are charged. What Envoy's service
	// overlooks in a file is a warning instead of an error.
	CompatEnvoy
)

// String returns the name that rule files use: none or envoy.
func (c Compat) String() string {
	switch c {
	case CompatNone:
		return "none"
	case CompatEnvoy:
		return "envoy"
	}
	return fmt.Sprintf("compat(%d)", uint8(c))
}

// Options are how rule files are read. The zero Options are what [Load] and
// [Parse] use.
type Options struct {
	// Compat is for the documents of the descriptor form that do not say it
	// themselves. With CompatEnvoy what follows the first document of a file is
	// left out, unless it has limits or compat.
	Compat Compat
	// IgnoreDotFiles leaves out files whose names begin with a dot also under
	// CompatEnvoy, which takes files of any name.
	IgnoreDotFiles bool
	// Siblings takes what lies next to a folder of rules and has its name and a dot
	// in front, such as config.yaml and config.d beside config, for rules too, as
	// envoyproxy/ratelimit does that watches its root.
	Siblings bool
	// MergeDomains lets several documents add descriptors to one domain, as if
	// each said merge_domains: true.
	MergeDomains bool
	// OnlyHTTP is for rules about HTTP requests and nothing else, as those of a
	// reverse proxy alone: no request has an attribute by another name than
	// theirs, so that it is an error to ask for one.
	OnlyHTTP bool
	// NoTokens is for doors for HTTP requests where nothing verifies tokens, so
	// that these have no claims: with OnlyHTTP it is an error to ask for one, and
	// otherwise a warning, as other callers may know claims.
	NoTokens bool
	// PlainFields is for a reverse proxy that passes no header fields with anything
	// but letters, digits and hyphens in their name, so that it is a warning to ask
	// for one: its requests have none, as other callers may.
	PlainFields bool
	// KeySecret makes the digests of hashed parts of keys: the first 128 bits of
	// the value's HMAC-SHA-256. Processes with the same secret share counts.
	// Without one it is the value's SHA-256, which tells those who see it
	// whether a guess is right.
	KeySecret KeySecret
}

// KeySecret is a secret that does not show itself when it is printed or logged.
type KeySecret string

// String hides the secret.
func (s KeySecret) String() string {
	if s == "" {
		return ""
	}
	return "[hidden]"
}

// GoString hides the secret.
func (s KeySecret) GoString() string { return s.String() }

// MarshalText hides the secret.
func (s KeySecret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
