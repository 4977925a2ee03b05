package answer

import (
	"time"

	"github.com/headgate/headgate"
)

// Policy is one limit that applied to a request, and what it said.
type Policy struct {
	Name     string // the rule's name; empty reads as "default"
	Limit    headgate.Limit
	Decision headgate.Decision // the limit's answer
	At       int64             // when it said so, in microseconds since the Unix epoch; 0 leaves times of day out
}

// Append appends p to list. Of one limit that was asked about several keys of a
// request, one after another, it keeps the tightest answer: clients hear of it
// once.
func Append(list []Policy, p Policy) []Policy {
	if n := len(list); n > 0 && list[n-1].Name == p.Name && list[n-1].Limit.Equal(p.Limit) {
		if p.Decision.Tighter(list[n-1].Decision) {
			list[n-1] = p
		}
		return list
	}
	return append(list, p)
}

// told reports whether clients hear of p at all. Limits that only observe, or
// that limit nothing, are the operator's business.
func (p *Policy) told() bool {
	return p.Decision.Reason != headgate.Shadow && p.Decision.Reason != headgate.NoLimit
}

// counted reports whether p's Remaining and ResetAfter are known. They are not
// when the store could not answer, and a made-up "0 left" would only make
// clients slow down.
func (p *Policy) counted() bool {
	return p.told() && p.Decision.Reason != headgate.FailOpen && p.Decision.Reason != headgate.FailClosed
}

// violated reports whether p refused the request.
func (p *Policy) violated() bool { return p.told() && !p.Decision.Allowed }

// tightest returns the index of the policy that constrains most among those
// with known numbers, and -1 if there is none.
func tightest(list []Policy) int {
	best := -1
	for i := range list {
		if list[i].counted() && (best < 0 || list[i].Decision.Tighter(list[best].Decision)) {
			best = i
		}
	}
	return best
}

// refusing returns the index of the policy whose refusal lasts longest, and -1
// if none refused.
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

// Milliseconds returns d in whole milliseconds, rounded up; 0 if d is
// negative.
func Milliseconds(d time.Duration) int64 { return ceil(d, time.Millisecond) }

func ceil(d, unit time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64((d-1)/unit) + 1
}

// RetryAfter returns when a request refused by d may be tried again, at least
// one second from now, in the precision of d. It reports false if never, or if
// d is no refusal.
//
// When the store could not answer (FailClosed) nobody knows; one second is a
// modest guess that keeps clients from hammering.
func RetryAfter(d headgate.Decision) (time.Duration, bool) {
	if d.Allowed || d.RetryAfter == headgate.Never {
		return 0, false
	}
	if d.Reason == headgate.FailClosed {
		return max(d.RetryAfter, time.Second), true
	}
	return max(d.RetryAfter, 0), true
}
