package answer

import "github.com/headgate/headgate/internal/base/enum"

// Dialect is a set of header fields that describe limits to clients.
type Dialect uint8

const (
	// Default is X-RateLimit-* of the tightest limit, and the IETF fields of every limit.
	Default Dialect = iota
	// IETF is RateLimit and RateLimit-Policy as in
	// draft-ietf-httpapi-ratelimit-headers-11, structured fields of RFC 9651.
	IETF
	// GitHub is what api.github.com sends: X-RateLimit-* with the reset as a
	// time of day, in seconds since the Unix epoch.
	GitHub
	// OpenAI is what api.openai.com sends: X-RateLimit-*-Requests and
	// X-RateLimit-*-Tokens with the reset as a duration such as 6m0s.
	OpenAI
	// Draft03 is RateLimit-Limit, RateLimit-Remaining and RateLimit-Reset as in
	// draft-ietf-httpapi-ratelimit-headers-03.
	Draft03
	// None sends no limit fields. A refusal still has Retry-After, which is plain HTTP (RFC 9110).
	None
)

// Dialects returns all dialects in the order of their constants.
func Dialects() []Dialect { return []Dialect{Default, IETF, GitHub, OpenAI, Draft03, None} }

// String returns the dialect's name in configuration, such as ietf.
func (d Dialect) String() string {
	return enum.Name(d, "dialect", "default", "ietf", "github", "openai", "draft-03", "none")
}

// ParseDialect is the inverse of [Dialect.String]. It reports false for an unknown
// name.
func ParseDialect(name string) (Dialect, bool) { return enum.Parse(name, None) }

// Or returns the dialect of that name, or d if the name is empty or unknown. A
// domain's choice thereby overrides that of the process.
func (d Dialect) Or(name string) Dialect {
	if name == "" {
		return d
	}
	if own, ok := ParseDialect(name); ok {
		return own
	}
	return d
}

// field is a header field that some dialect writes.
type field uint8

const (
	fieldLimit field = iota
	fieldRemaining
	fieldReset
	fieldPolicy
	fieldRateLimit
	fieldRetryAfter
	fieldXRetryAfter
	fieldUsed
	fieldResource
	fieldLimitRequests
	fieldRemainingRequests
	fieldResetRequests
	fieldLimitTokens
	fieldRemainingTokens
	fieldResetTokens
	fieldPlainLimit
	fieldPlainRemaining
	fieldPlainReset
	fieldCount
)

// FieldNames returns the names of all header fields that some dialect writes, for
// example for CORS.
func FieldNames() []string {
	names := make([]string, 0, fieldCount+1)
	for f := range fieldCount {
		names = append(names, fieldNames[f])
	}
	return append(names, TimeField)
}

// maxFields is the largest number of fields in a dialect.
const maxFields = 7

// fieldNames are in the canonical spelling of net/http, so that [http.Header.Get] finds them.
//
//nolint:gochecknoglobals // an immutable table, for the hot path
var fieldNames = [fieldCount]string{
	"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset", "Ratelimit-Policy", "Ratelimit", "Retry-After",
	"X-Ratelimit-Retry-After", "X-Ratelimit-Used", "X-Ratelimit-Resource",
	"X-Ratelimit-Limit-Requests", "X-Ratelimit-Remaining-Requests", "X-Ratelimit-Reset-Requests",
	"X-Ratelimit-Limit-Tokens", "X-Ratelimit-Remaining-Tokens", "X-Ratelimit-Reset-Tokens",
	"Ratelimit-Limit", "Ratelimit-Remaining", "Ratelimit-Reset",
}
