// Package answer turns decisions into HTTP: the header fields of rate limits, in several
// dialects, and the answer to a refused request. All HTTP doors and the httplimit
// middleware use it, so a limit looks the same everywhere.
package answer

import (
	"net/http"
	"strconv"
	"time"

	"github.com/headgate/headgate/store"
)

// Headers sets the fields of dialect d about the limits of a request, replacing
// earlier values. If a limit refused, they include Retry-After: whole seconds,
// rounded up, at least 1, left out if the request can never pass. Unlimited and
// observed limits are not mentioned. Where what is left is kept for a higher class,
// Retry-After is all: the client is over no limit of its own.
//
// It makes two allocations besides those of the map.
func Headers(h http.Header, d Dialect, list ...Policy) {
	var f fields
	var space [384]byte // not in f, where the slice would escape
	f.set(h, f.fill(space[:0], d, list))
}

// Each calls add for every field that [Headers] would set, in a fixed order, for
// doors that have no http.Header. The value is valid until add returns. Each appends
// the values to text and returns it for reuse; with enough capacity it allocates
// nothing.
func Each(text []byte, d Dialect, list []Policy, add func(name string, value []byte)) []byte {
	var f fields
	start := len(text)
	text = f.fill(text, d, list)
	for i := range f.count {
		add(fieldNames[f.names[i]], text[start:f.ends[i]])
		start = f.ends[i]
	}
	return text
}

// fields records which part of one text is the value of which field, so that setting
// all of them costs one string and one slice.
type fields struct {
	names [maxFields]field
	ends  [maxFields]int
	count int
}

// fill appends the values of all fields of dialect d.
func (f *fields) fill(text []byte, d Dialect, list []Policy) []byte {
	i := refusing(list)
	shown := d
	if i >= 0 && list[i].Decision.Reason == store.ReasonHeadroom {
		shown = None
	}
	switch shown {
	case Default:
		if i := tightest(list); i >= 0 { // X-RateLimit-* describes only that one
			tight := &list[i].Decision
			text = f.number(text, fieldLimit, tight.Limit)
			text = f.number(text, fieldRemaining, max(tight.Remaining, 0))
			text = f.number(text, fieldReset, Seconds(tight.ResetAfter))
		}
		text = f.ietf(text, list)
	case IETF:
		text = f.ietf(text, list)
	case GitHub:
		text = f.github(text, list)
	case OpenAI:
		text = f.openAI(text, list)
	case Draft03:
		text = f.draft03(text, list)
	case None:
	}
	if i < 0 {
		return text
	}
	after, ok := RetryAfter(list[i].Decision)
	if !ok {
		return text
	}
	seconds := max(Seconds(after), 1)
	text = f.number(text, fieldRetryAfter, seconds)
	if shown == Default {
		text = f.number(text, fieldXRetryAfter, seconds)
	}
	return text
}

// end records a field whose value ends at offset end of the text.
func (f *fields) end(name field, end int) {
	f.names[f.count] = name
	f.ends[f.count] = end
	f.count++
}

func (f *fields) number(text []byte, name field, n int64) []byte {
	text = strconv.AppendInt(text, n, 10)
	f.end(name, len(text))
	return text
}

// set sets the fields in h and returns their values.
func (f *fields) set(h http.Header, text []byte) []string {
	if f.count == 0 {
		return nil
	}
	all := string(text)
	values := make([]string, f.count)
	start := 0
	for i := range f.count {
		values[i] = all[start:f.ends[i]]
		start = f.ends[i]
		h[fieldNames[f.names[i]]] = values[i : i+1 : i+1]
	}
	return values
}

const hexDigits = "0123456789ABCDEF"

// appendName appends name as a quoted String of RFC 9651, which allows only printable
// ASCII. Other bytes and the percent sign are percent-encoded, so that different
// names stay different.
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

// TimeField is the header field with the time of the decision, for access logs: a
// replay of them decides at exactly the same times.
const TimeField = "X-Headgate-Time"

// TellTime sets [TimeField]: seconds since the Unix epoch with six decimals, the
// precision of limits.
func TellTime(h http.Header, at time.Time) {
	const second = 1_000_000
	micros := at.UnixMicro()
	text := strconv.AppendInt(make([]byte, 0, 20), micros/second, 10)
	text = append(text, '.')
	from := len(text)
	text = strconv.AppendInt(text, second+micros%second, 10) // a 1 and six digits
	h[TimeField] = []string{string(append(text[:from], text[from+1:]...))}
}
