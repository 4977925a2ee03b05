package proxy

import (
	"sync/atomic"
	"time"
)

// wellAfter is how long no request to the upstream must have failed until it counts as
// well again: an upstream that is overloaded answers some requests and fails others.
const wellAfter = 10 * time.Second

// outage is a time in which requests to the upstream fail. It begins with the first that
// does, and ends with the first that is answered wellAfter the last that failed.
type outage struct {
	on     atomic.Bool
	last   atomic.Int64 // when a request failed, in nanoseconds
	failed atomic.Int64 // requests in it
}

// fails notes a failed request, and reports whether it begins an outage.
func (o *outage) fails(now time.Time) (begins bool) {
	o.last.Store(now.UnixNano())
	o.failed.Add(1)
	return o.on.CompareAndSwap(false, true)
}

// answers notes an answer of the upstream. It reports whether this ends an outage, and how
// many requests failed in it. It asks for the time only in an outage.
func (o *outage) answers(clock func() time.Time) (failed int64, ends bool) {
	if !o.on.Load() || clock().UnixNano()-o.last.Load() < int64(wellAfter) || !o.on.CompareAndSwap(true, false) {
		return 0, false
	}
	return o.failed.Swap(0), true
}
