package rules

import "github.com/headgate/headgate/internal/base/enum"

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
func (c Compat) String() string { return enum.Name(c, "compat", "none", "envoy") }

// ParseCompat is the inverse of [Compat.String]. It reports false for any other text.
func ParseCompat(text string) (Compat, bool) { return enum.Parse(text, CompatEnvoy) }

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
