package answer

import "fmt"

// Dialect is a way to tell clients about limits in header fields.
type Dialect uint8

const (
	// Default is X-RateLimit-* of the tightest limit, and the IETF fields of
	// every limit.
	Default Dialect = iota
	// IETF is RateLimit and RateLimit-Policy as in
	// draft-ietf-httpapi-ratelimit-headers-10, structured fields of RFC 9651.
	IETF
	// GitHub is what api.github.com sends: X-RateLimit-* with the reset as a
	// time of day, in seconds since the Unix epoch.
	GitHub
	// OpenAI is what api.openai.com sends: X-RateLimit-*-Requests and
	// X-RateLimit-*-Tokens with the reset as a duration such as 6m0s.
	OpenAI
	// Draft03 is RateLimit-Limit, RateLimit-Remaining and RateLimit-Reset as
	// in draft-ietf-httpapi-ratelimit-headers-03.
	Draft03
	// None tells nothing. A refusal still says Retry-After, which is plain
	// HTTP (RFC 9110).
	None
)

// Dialects returns all dialects in the order of their constants.
func Dialects() []Dialect { return []Dialect{Default, IETF, GitHub, OpenAI, Draft03, None} }

// String returns the dialect's name in configuration, such as ietf.
func (d Dialect) String() string {
	switch d {
	case Default:
		return "default"
	case IETF:
		return "ietf"
	case GitHub:
		return "github"
	case OpenAI:
		return "openai"
	case Draft03:
		return "draft-03"
	case None:
		return "none"
	}
	return fmt.Sprintf("dialect(%d)", uint8(d))
}

// ParseDialect is the inverse of [Dialect.String]. It reports false for a name
// that no dialect has.
func ParseDialect(name string) (Dialect, bool) {
	switch name {
	case "default":
		return Default, true
	case "ietf":
		return IETF, true
	case "github":
		return GitHub, true
	case "openai":
		return OpenAI, true
	case "draft-03":
		return Draft03, true
	case "none":
		return None, true
	}
	return 0, false
}

// Or returns the dialect of that name, and d if the name is empty or unknown:
// the choice of a domain, where it has made one, over that of the process.
func (d Dialect) Or(name string) Dialect {
	if own, ok := ParseDialect(name); ok {
		return own
	}
	return d
}

// field is one of the header fields that we write.
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
// those who have to name them, as CORS does.
func FieldNames() []string {
	names := make([]string, 0, fieldCount+1)
	for f := range fieldCount {
		names = append(names, f.name())
	}
	return append(names, TimeField)
}

// maxFields is how many fields a dialect has at most.
const maxFields = 7

// name returns the field's name as net/http spells it. Names of header fields
// are not case sensitive, and [http.Header.Get] finds these by any spelling.
func (f field) name() string {
	switch f {
	case fieldLimit:
		return "X-Ratelimit-Limit"
	case fieldRemaining:
		return "X-Ratelimit-Remaining"
	case fieldReset:
		return "X-Ratelimit-Reset"
	case fieldPolicy:
		return "Ratelimit-Policy"
	case fieldRateLimit:
		return "Ratelimit"
	case fieldRetryAfter:
		return "Retry-After"
	case fieldXRetryAfter:
		return "X-Ratelimit-Retry-After"
	case fieldUsed:
		return "X-Ratelimit-Used"
	case fieldResource:
		return "X-Ratelimit-Resource"
	case fieldLimitRequests:
		return "X-Ratelimit-Limit-Requests"
	case fieldRemainingRequests:
		return "X-Ratelimit-Remaining-Requests"
	case fieldResetRequests:
		return "X-Ratelimit-Reset-Requests"
	case fieldLimitTokens:
		return "X-Ratelimit-Limit-Tokens"
	case fieldRemainingTokens:
		return "X-Ratelimit-Remaining-Tokens"
	case fieldResetTokens:
		return "X-Ratelimit-Reset-Tokens"
	case fieldPlainLimit:
		return "Ratelimit-Limit"
	case fieldPlainRemaining:
		return "Ratelimit-Remaining"
	case fieldPlainReset:
		return "Ratelimit-Reset"
	case fieldCount:
	}
	return ""
}
