package answer

import (
	"math/bits"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/base/structured"
)

// ietf appends RateLimit-Policy with the limits, and RateLimit with the client's
// state for each, as in draft-ietf-httpapi-ratelimit-headers-11.
//
// The draft has no unit for different values. A limit on them must not be read as one
// on requests, so it is in RateLimit only if it refuses.
func (f *fields) ietf(text []byte, list []Policy) []byte {
	start := len(text)
	for i := range list { // "login";q=5;w=60, or "exports";q=20;qu="concurrent-requests"
		p := &list[i]
		if !p.visible() || p.countsValues() {
			continue
		}
		if len(text) > start {
			text = append(text, ", "...)
		}
		text = appendName(text, p.Name)
		if p.Limit.Algorithm() == headgate.Concurrency {
			text = append(appendParameter(text, ";q=", p.Limit.N()), `;qu="concurrent-requests"`...)
			continue
		}
		quota, window := perSeconds(p.Limit)
		text = appendParameter(appendParameter(text, ";q=", quota), ";w=", window)
	}
	if len(text) > start {
		f.end(fieldPolicy, len(text))
	}
	start = len(text)
	for i := range list { // "login";r=0;t=12
		p := &list[i]
		if !p.counted() || p.Decision.Allowed && p.countsValues() {
			continue
		}
		if len(text) > start {
			text = append(text, ", "...)
		}
		left, window := effective(p)
		if text = appendParameter(appendName(text, p.Name), ";r=", left); window >= 0 {
			text = appendParameter(text, ";t=", window)
		}
	}
	if len(text) > start {
		f.end(fieldRateLimit, len(text))
	}
	return text
}

// effective returns how much of p is left, and the effective window in seconds: the time
// within which a client should use no more than that; -1 for none. A client that spreads
// what is left over the window is never faster than the limit: what is left per second is
// at most q per w of RateLimit-Policy. So where the state would allow a burst, the window
// is longer than the time until more is available.
//
// The window of a refusal is Retry-After, which must not end earlier; so less than what is
// left is reported.
func effective(p *Policy) (left, window int64) {
	left = min(max(p.Decision.Remaining, 0), maxInteger)
	quota, per := perSeconds(p.Limit)
	quota = min(quota, maxInteger)
	concurrent := p.Limit.Algorithm() == headgate.Concurrency
	after, refused := RetryAfter(p.Decision)
	switch {
	case refused && concurrent:
		return left, max(Seconds(after), 1)
	case refused:
		window = max(Seconds(after), 1)
		return min(left, share(window, quota, per, 0)), window
	case concurrent && left > 0, !concurrent && quota <= 0: // no time brings more
		return left, -1
	case concurrent:
		return left, Seconds(p.Decision.ResetAfter)
	}
	// More is there, for a bucket, after at most the time of one token and, for a window,
	// once all of it is available, which is never too early.
	until := p.Decision.ResetAfter
	if p.Limit.Algorithm() <= headgate.LeakyBucket && p.Limit.N() > 0 {
		until = min(until, time.Duration(ceil(p.Limit.Period(), time.Duration(p.Limit.N()))))
	}
	return left, max(Seconds(until), share(left, per, quota, quota-1))
}

// share returns (a*b+more)/of, at most maxInteger. None is negative, and of is not 0.
func share(a, b, of, more int64) int64 {
	high, low := bits.Mul64(uint64(a), uint64(b))
	low, carry := bits.Add64(low, uint64(more), 0)
	if high += carry; high >= uint64(of) {
		return maxInteger
	}
	n, _ := bits.Div64(high, low, uint64(of))
	return int64(min(n, maxInteger))
}

// maxInteger is the largest Integer of a structured field (RFC 9651, 3.3.1).
const maxInteger = 999_999_999_999_999

func appendParameter(dst []byte, name string, n int64) []byte {
	return strconv.AppendInt(append(dst, name...), min(max(n, 0), maxInteger), 10)
}

// perSeconds returns l as a quota per whole seconds, the shortest window of
// RateLimit-Policy. A period under a second is scaled to one second; any other is
// rounded up, so that the reported rate is never above the true one.
func perSeconds(l headgate.Limit) (quota, window int64) {
	const second = 1_000_000
	micros := l.Period().Microseconds()
	if micros > 0 && micros < second {
		return l.N() * second / micros, 1
	}
	return l.N(), max(Seconds(l.Period()), 1)
}

// Join sets the fields like [Headers] in the answer of a service. RateLimit and
// RateLimit-Policy are lists of limits: what the service says about its own limits stays,
// so that clients can heed the stricter one. Other fields hold one limit, and ours
// replaces that of the service: two would be ambiguous.
func Join(h http.Header, d Dialect, list ...Policy) {
	policy, state := h["Ratelimit-Policy"], h["Ratelimit"]
	Headers(h, d, list...)
	joinList(h, "Ratelimit-Policy", policy)
	joinList(h, "Ratelimit", state)
}

// joinList puts the earlier value of a list field in front of the present one, in one
// line. A malformed value would spoil ours, so it is dropped.
func joinList(h http.Header, name string, earlier []string) {
	ours := h[name]
	if len(earlier) == 0 || len(ours) != 1 || &earlier[0] == &ours[0] {
		return
	}
	if members, ok := structured.List(earlier); ok && len(members) > 0 {
		h[name] = []string{strings.Join(earlier, ", ") + ", " + ours[0]}
	}
}
