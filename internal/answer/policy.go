package answer

import (
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// Policy is one limit that applied to a request, with its decision.
type Policy struct {
	Name     string // the rule's name; empty reads as "default"
	Limit    headgate.Limit
	Decision store.Decision
	At       int64 // the time of the decision in microseconds since the Unix epoch; 0 leaves out times of day
}

// Append appends p to list. If one limit decided about several keys of a request in
// a row, it keeps only the tightest decision, so that clients see the limit once.
func Append(list []Policy, p Policy) []Policy {
	if n := len(list); n > 0 && list[n-1].Name == p.Name && list[n-1].Limit.Equal(p.Limit) {
		if p.Decision.Tighter(list[n-1].Decision) {
			list[n-1] = p
		}
		return list
	}
	return append(list, p)
}

// visible reports whether clients see p at all. Limits that only observe, and those that
// limit nothing, concern only the operator.
func (p *Policy) visible() bool {
	return p.Decision.Reason != store.ReasonShadow && p.Decision.Reason != headgate.ReasonNoLimit
}

// counted reports whether p's Remaining and ResetAfter are known. They are not if the
// store could not answer, and an invented "0 left" would only slow clients down.
func (p *Policy) counted() bool {
	return p.visible() && p.Decision.Reason != headgate.ReasonFailOpen && p.Decision.Reason != headgate.ReasonFailClosed
}

// violated reports whether p refused the request.
func (p *Policy) violated() bool { return p.visible() && !p.Decision.Allowed }

// tightest returns the index of the tightest policy among those with known numbers,
// or -1 if there is none.
func tightest(list []Policy) int {
	best := -1
	for i := range list {
		if list[i].counted() && (best < 0 || list[i].tighter(&list[best])) {
			best = i
		}
	}
	return best
}

// tighter reports whether p rather than other is what a client should heed. What is left
// of a limit of distinct values is no number of requests: known values always pass. So
// while it refuses nothing, it comes after limits that count requests.
func (p *Policy) tighter(other *Policy) bool {
	if values := p.countsValues(); p.Decision.Allowed && other.Decision.Allowed && values != other.countsValues() {
		return !values
	}
	return p.Decision.Tighter(other.Decision)
}

func (p *Policy) countsValues() bool { return p.Limit.Algorithm() == headgate.Distinct }

// refusing returns the index of the policy whose refusal lasts longest, or -1 if
// none refused.
func refusing(list []Policy) int {
	best := -1
	for i := range list {
		if list[i].violated() && (best < 0 || list[i].Decision.Tighter(list[best].Decision)) {
			best = i
		}
	}
	return best
}

// Seconds returns d in whole seconds, rounded up; 0 if d is negative.
func Seconds(d time.Duration) int64 { return ceil(d, time.Second) }

// Milliseconds returns d in whole milliseconds, rounded up; 0 if d is negative.
func Milliseconds(d time.Duration) int64 { return ceil(d, time.Millisecond) }

func ceil(d, unit time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64((d-1)/unit) + 1
}

// RetryAfter returns how long to wait before retrying a request refused by d, in the
// precision of d. It reports false if d is not a refusal, or a retry never helps.
//
// If the store could not answer (FailClosed), the time is unknown; at least one
// second keeps clients from hammering.
func RetryAfter(d store.Decision) (time.Duration, bool) {
	if d.Allowed || d.RetryAfter == headgate.Never {
		return 0, false
	}
	if d.Reason == headgate.ReasonFailClosed {
		return max(d.RetryAfter, time.Second), true
	}
	return max(d.RetryAfter, 0), true
}
