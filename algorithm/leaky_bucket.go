package algorithm

import (
	"github.com/headgate/headgate/store"
)

// The leaky bucket as a queue has the state of the token bucket: the used units are the
// waiting requests. A request is admitted if Burst has space for it. Its turn comes
// when all but Free of the requests before it have drained (all if Free is 0). If
// more than Late is before it, it would wait too long.

// leakyTurn returns how long a request admitted now has to wait.
func leakyTurn(r *store.Rule, s *State, now int64) int64 {
	used, last := bucketUsed(r, s, now)
	if used <= r.Free {
		return 0
	}
	return drained(r, last, used-r.Free) - now
}

// leakyRemaining returns how many requests of cost 1 would still fit in the queue and
// not wait too long.
func leakyRemaining(r *store.Rule, used int64) int64 {
	free := max(r.Capacity-used, 0) / r.Token
	if used > r.Late {
		return 0
	}
	return min(free, (r.Late-used)/r.Token+1)
}
