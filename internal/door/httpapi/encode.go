package httpapi

import (
	"strconv"
	"unicode/utf8"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/answer"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/store"
)

// appendVerdict appends v as the JSON object that /v1/check answers with:
//
//	{"allowed":false,"rule":"login","limit":5,"remaining":0,"retry_after_ms":11250,"reset_after_ms":60000,"reason":"limited"}
//
// Times are in milliseconds, rounded up. retry_after_ms is 0 if allowed and null if
// the request can never pass. Unknown fields are left out: all numbers if no limit
// applied, remaining and reset_after_ms if the store could not answer. action is
// included where allowed is not enough: delay, shadow_ban, queue. soft has the names of
// the rules that mark the request.
func appendVerdict(dst []byte, v *engine.Verdict) []byte {
	d := &v.Decision
	dst = append(dst, `{"allowed":`...)
	dst = strconv.AppendBool(dst, v.Allowed)
	if v.Rule != nil {
		dst = append(dst, `,"rule":`...)
		dst = appendString(dst, v.Rule.Name)
	}
	if v.Rule != nil && d.Reason != headgate.ReasonNoLimit {
		degraded := d.Reason == headgate.ReasonFailOpen || d.Reason == headgate.ReasonFailClosed
		dst = appendNumber(dst, `,"limit":`, d.Limit)
		if !degraded {
			dst = appendNumber(dst, `,"remaining":`, d.Remaining)
		}
		dst = appendRetryAfter(dst, d)
		if !degraded {
			dst = appendNumber(dst, `,"reset_after_ms":`, answer.Milliseconds(d.ResetAfter))
		}
	}
	switch outcome := v.Outcome(); outcome {
	case engine.Delayed, engine.ShadowBanned, engine.Queued:
		dst = append(dst, `,"action":"`...)
		dst = append(dst, outcome.Action()...)
		dst = append(dst, '"')
	case engine.Allowed, engine.Refused, engine.ShadowRefused, engine.Marked, engine.Outcomes:
	}
	if v.Delay > 0 {
		dst = appendNumber(dst, `,"delay_ms":`, answer.Milliseconds(v.Delay))
	}
	dst = append(dst, `,"reason":"`...)
	if v.Known {
		dst = append(dst, d.Reason.String()...)
	} else {
		dst = append(dst, "unknown_domain"...)
	}
	dst = append(dst, '"')
	if v.WouldRefuse > 0 {
		dst = appendShadow(dst, v.Results())
	}
	if v.Marked > 0 {
		dst = append(dst, `,"soft":`...)
		next := byte('[')
		for _, name := range v.Marks(nil) {
			dst, next = appendString(append(dst, next), name), ','
		}
		dst = append(dst, ']')
	}
	return append(dst, '}')
}

func appendNumber(dst []byte, name string, n int64) []byte {
	return strconv.AppendInt(append(dst, name...), n, 10)
}

func appendRetryAfter(dst []byte, d *store.Decision) []byte {
	after, ok := answer.RetryAfter(*d)
	if !ok && !d.Allowed {
		return append(dst, `,"retry_after_ms":null`...)
	}
	return appendNumber(dst, `,"retry_after_ms":`, answer.Milliseconds(after))
}

// appendShadow appends the names of the rules that would have refused.
func appendShadow(dst []byte, results []engine.Result) []byte {
	dst = append(dst, `,"shadow":`...)
	next := byte('[')
	for i := range results {
		if results[i].Decision.Reason == store.ReasonShadow {
			dst = appendString(append(dst, next), results[i].Rule.Name)
			next = ','
		}
	}
	return append(dst, ']')
}

const hexDigits = "0123456789abcdef"

// appendString appends s as a JSON string. Invalid UTF-8 becomes U+FFFD.
func appendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c < 0x20:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		case c < utf8.RuneSelf:
			dst = append(dst, c)
		default:
			r, size := utf8.DecodeRuneInString(s[i:])
			dst = utf8.AppendRune(dst, r)
			i += size
			continue
		}
		i++
	}
	return append(dst, '"')
}
