package answer

import (
	"strconv"
	"strings"
	"time"
)

// github appends the fields of api.github.com about the tightest limit. They add the
// amount used and the rule's name; the reset is in seconds since the Unix epoch.
func (f *fields) github(text []byte, list []Policy) []byte {
	i := tightest(list)
	if i < 0 {
		return text
	}
	p := &list[i]
	remaining := max(p.Decision.Remaining, 0)
	text = f.number(text, fieldLimit, p.Decision.Limit)
	text = f.number(text, fieldRemaining, remaining)
	text = f.number(text, fieldUsed, max(p.Decision.Limit-remaining, 0))
	if p.At > 0 {
		text = f.number(text, fieldReset, epoch(p.At, p.Decision.ResetAfter))
	}
	text = appendToken(text, p.Name)
	f.end(fieldResource, len(text))
	return text
}

// epoch returns at plus d in seconds since the Unix epoch, rounded up. at is in
// microseconds.
func epoch(at int64, d time.Duration) int64 {
	const second = 1_000_000
	micros := at%second + ceil(d, time.Microsecond)
	return at/second + (micros+second-1)/second
}

// openAI appends the fields of api.openai.com about the tightest limit of requests and
// the tightest limit of tokens.
func (f *fields) openAI(text []byte, list []Policy) []byte {
	requests, tokens := -1, -1
	for i := range list {
		if !list[i].counted() {
			continue
		}
		best := &requests
		if countsTokens(list[i].Name) {
			best = &tokens
		}
		if *best < 0 || list[i].tighter(&list[*best]) {
			*best = i
		}
	}
	if requests >= 0 {
		text = f.group(text, &list[requests], fieldLimitRequests, fieldRemainingRequests, fieldResetRequests)
	}
	if tokens >= 0 {
		text = f.group(text, &list[tokens], fieldLimitTokens, fieldRemainingTokens, fieldResetTokens)
	}
	return text
}

func (f *fields) group(text []byte, p *Policy, limit, remaining, reset field) []byte {
	text = f.number(text, limit, p.Decision.Limit)
	text = f.number(text, remaining, max(p.Decision.Remaining, 0))
	text = appendDuration(text, p.Decision.ResetAfter)
	f.end(reset, len(text))
	return text
}

// countsTokens reports whether a limit of that name counts tokens instead of requests:
// whether one of its words is "token" or "tokens".
func countsTokens(name string) bool {
	for rest, more := name, true; more; {
		word := rest
		i := strings.IndexAny(rest, "-_.:/ ")
		if more = i >= 0; more {
			word, rest = rest[:i], rest[i+1:]
		}
		if strings.EqualFold(word, "tokens") || strings.EqualFold(word, "token") {
			return true
		}
	}
	return false
}

// appendDuration appends d in Go's format, such as 6m0s, in whole milliseconds,
// rounded up. It is [time.Duration.String] without allocating a string.
func appendDuration(dst []byte, d time.Duration) []byte {
	millis := Milliseconds(d)
	if millis < 1000 {
		if millis == 0 {
			return append(dst, "0s"...)
		}
		return append(strconv.AppendInt(dst, millis, 10), "ms"...)
	}
	seconds := millis / 1000
	if hours := seconds / 3600; hours > 0 {
		dst = append(strconv.AppendInt(dst, hours, 10), 'h')
	}
	if minutes := seconds / 60; minutes > 0 {
		dst = append(strconv.AppendInt(dst, minutes%60, 10), 'm')
	}
	dst = strconv.AppendInt(dst, seconds%60, 10)
	if rest := millis % 1000; rest > 0 {
		dst = append(dst, '.', byte('0'+rest/100), byte('0'+rest/10%10), byte('0'+rest%10))
		for dst[len(dst)-1] == '0' {
			dst = dst[:len(dst)-1]
		}
	}
	return append(dst, 's')
}

// draft03 appends the fields of draft-ietf-httpapi-ratelimit-headers-03 about the
// tightest limit. RateLimit-Limit also has the policies of all limits, with a burst
// where it differs from the quota.
func (f *fields) draft03(text []byte, list []Policy) []byte {
	i := tightest(list)
	if i < 0 {
		return text
	}
	d := &list[i].Decision
	text = strconv.AppendInt(text, d.Limit, 10)
	for j := range list {
		if !list[j].visible() {
			continue
		}
		quota, window := perSeconds(list[j].Limit)
		text = strconv.AppendInt(append(text, ", "...), quota, 10)
		text = strconv.AppendInt(append(text, ";w="...), window, 10)
		if burst := list[j].Decision.Limit; burst != quota && list[j].counted() {
			text = strconv.AppendInt(append(text, ";burst="...), burst, 10)
		}
	}
	f.end(fieldPlainLimit, len(text))
	text = f.number(text, fieldPlainRemaining, max(d.Remaining, 0))
	return f.number(text, fieldPlainReset, Seconds(d.ResetAfter))
}

// appendToken appends name unquoted: space, percent sign and any byte that is not
// printable ASCII are percent-encoded.
func appendToken(dst []byte, name string) []byte {
	if name == "" {
		name = "default"
	}
	for i := range len(name) {
		if c := name[i]; c <= 0x20 || c > 0x7e || c == '%' {
			dst = append(dst, '%', hexDigits[c>>4], hexDigits[c&15])
		} else {
			dst = append(dst, c)
		}
	}
	return dst
}
