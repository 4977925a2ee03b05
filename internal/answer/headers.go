package answer

import (
	"fmt"
	"net/http"
	"strconv"

	"github.com/headgate/headgate"
)

// Dialect is a way to tell clients about limits in header fields.
type Dialect uint8

const (
	// Default is X-RateLimit-* of the tightest limit, and the IETF fields of
	// every limit.
	Default Dialect = iota
	// IETF is RateLimit and RateLimit-Policy as in
	// draft-ietf-httpapi-ratelimit-headers-10, structured fields of RFC 9651.
	IETF
	// None tells nothing. A refusal still says Retry-After, which is plain
	// HTTP (RFC 9110).
	None
)

// Dialects returns all dialects in the order of their constants.
func Dialects() []Dialect { return []Dialect{Default, IETF, None} }

// String returns the dialect's name in configuration, such as ietf.
func (d Dialect) String() string {
	switch d {
	case Default:
		return "default"
	case IETF:
		return "ietf"
	case None:
		return "none"
	}
	return fmt.Sprintf("dialect(%d)", uint8(d))
}

// ParseDialect is the inverse of [Dialect.String]. It reports false for a name
// that no dialect has.
func ParseDialect(name string) (Dialect, bool) {
	for _, d := range Dialects() {
		if d.String() == name {
			return d, true
		}
	}
	return 0, false
}

// Field names as net/http writes them. Names of header fields are not case
// sensitive, and [http.Header.Get] finds these by any spelling.
const (
	fieldLimit       = "X-Ratelimit-Limit"
	fieldRemaining   = "X-Ratelimit-Remaining"
	fieldReset       = "X-Ratelimit-Reset"
	fieldXRetryAfter = "X-Ratelimit-Retry-After"
	fieldRetryAfter  = "Retry-After"
	fieldPolicy      = "Ratelimit-Policy"
	fieldRateLimit   = "Ratelimit"
)

// Headers sets in h what dialect d says about the limits of a request, in
// place of earlier values. If one of them refused, that includes Retry-After:
// whole seconds, rounded up, at least 1, and left out when the request can
// never pass. Limits that are unlimited or only observed are not mentioned.
//
// It makes two allocations beside those of the map.
func Headers(h http.Header, d Dialect, list ...Policy) {
	var f fields
	f.text = f.space[:0]
	switch d {
	case Default:
		f.legacy(list)
		f.ietf(list)
	case IETF:
		f.ietf(list)
	case None:
	}
	f.retry(d, list)
	f.set(h)
}

// fields collects header fields in one text, so that setting them costs one
// string and one slice for all.
type fields struct {
	space [384]byte
	text  []byte
	names [7]string
	ends  [7]int
	count int
}

// end closes the field whose value has been appended to f.text.
func (f *fields) end(name string) {
	f.names[f.count] = name
	f.ends[f.count] = len(f.text)
	f.count++
}

func (f *fields) number(name string, n int64) {
	f.text = strconv.AppendInt(f.text, n, 10)
	f.end(name)
}

func (f *fields) set(h http.Header) {
	if f.count == 0 {
		return
	}
	text := string(f.text)
	values := make([]string, f.count)
	start := 0
	for i := range f.count {
		values[i] = text[start:f.ends[i]]
		start = f.ends[i]
		h[f.names[i]] = values[i : i+1 : i+1]
	}
}

// legacy appends X-RateLimit-*, which has room for one limit: the tightest.
func (f *fields) legacy(list []Policy) {
	i := tightest(list, (*Policy).counted)
	if i < 0 {
		return
	}
	d := &list[i].Decision
	f.number(fieldLimit, d.Limit)
	f.number(fieldRemaining, max(d.Remaining, 0))
	f.number(fieldReset, Seconds(d.ResetAfter))
}

// ietf appends RateLimit-Policy, what the limits are, and RateLimit, where the
// client stands with each.
func (f *fields) ietf(list []Policy) {
	start := len(f.text)
	for i := range list {
		if list[i].told() {
			f.text = appendPolicy(separated(f.text, start), &list[i])
		}
	}
	if len(f.text) > start {
		f.end(fieldPolicy)
	}
	start = len(f.text)
	for i := range list {
		if list[i].counted() {
			f.text = appendState(separated(f.text, start), &list[i])
		}
	}
	if len(f.text) > start {
		f.end(fieldRateLimit)
	}
}

// retry appends Retry-After if a limit refused.
func (f *fields) retry(d Dialect, list []Policy) {
	i := tightest(list, (*Policy).violated)
	if i < 0 {
		return
	}
	after, ok := RetryAfter(list[i].Decision)
	if !ok {
		return
	}
	seconds := max(Seconds(after), 1)
	f.number(fieldRetryAfter, seconds)
	if d == Default {
		f.number(fieldXRetryAfter, seconds)
	}
}

func separated(dst []byte, start int) []byte {
	if len(dst) > start {
		return append(dst, ", "...)
	}
	return dst
}

// appendPolicy appends a member of RateLimit-Policy, such as "login";q=5;w=60.
func appendPolicy(dst []byte, p *Policy) []byte {
	quota, window := perSeconds(p.Limit)
	dst = appendName(dst, p.Name)
	dst = appendParameter(dst, ";q=", quota)
	return appendParameter(dst, ";w=", window)
}

// appendState appends a member of RateLimit, such as "login";r=0;t=12. The t
// of a limit that refused equals its Retry-After; otherwise it is when the
// whole quota is back, which is not before more of it is.
func appendState(dst []byte, p *Policy) []byte {
	d := &p.Decision
	until := Seconds(d.ResetAfter)
	if after, ok := RetryAfter(*d); ok {
		until = max(Seconds(after), 1)
	}
	dst = appendName(dst, p.Name)
	dst = appendParameter(dst, ";r=", d.Remaining)
	return appendParameter(dst, ";t=", until)
}

// maxInteger is the largest Integer of a structured field (RFC 9651, 3.3.1).
const maxInteger = 999_999_999_999_999

func appendParameter(dst []byte, name string, n int64) []byte {
	return strconv.AppendInt(append(dst, name...), min(max(n, 0), maxInteger), 10)
}

// perSeconds returns l as a quota per whole seconds, for RateLimit-Policy
// knows no shorter window. A period of less than a second is scaled to one
// second; any other is rounded up, so that the rate told is never above the
// true one.
func perSeconds(l headgate.Limit) (quota, window int64) {
	const second = 1_000_000
	micros := l.Period().Microseconds()
	if micros > 0 && micros < second {
		return l.N() * second / micros, 1
	}
	return l.N(), max(Seconds(l.Period()), 1)
}

const hexDigits = "0123456789ABCDEF"

// appendName appends name as a String of RFC 9651, quoted. Those know only
// printable ASCII; any other byte, and the percent sign itself, is
// percent-encoded, so that different names stay different.
func appendName(dst []byte, name string) []byte {
	if name == "" {
		name = "default"
	}
	dst = append(dst, '"')
	for i := range len(name) {
		switch c := name[i]; {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c < 0x20 || c > 0x7e || c == '%':
			dst = append(dst, '%', hexDigits[c>>4], hexDigits[c&15])
		default:
			dst = append(dst, c)
		}
	}
	return append(dst, '"')
}
