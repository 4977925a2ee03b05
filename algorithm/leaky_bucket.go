package algorithm

import "github.com/headgate/headgate"

// The leaky bucket as a queue has the state of the token bucket: what is used
// is what waits. A request is admitted if it finds a place among the Burst
// ones, and its turn comes when all before it but Free has drained: plain, all
// of it. Where more than Late is before it, it would wait too long.

// leakyTurn returns how long a request admitted now has to wait.
func leakyTurn(r *headgate.Rule, s *State, now int64) int64 {
	used, last := bucketUsed(r, s, now)
	if used <= r.Free {
		return 0
	}
	return drained(r, last, used-r.Free) - now
}

// leakyRemaining is how many requests of cost 1 would still find a place and
// not wait too long.
func leakyRemaining(r *headgate.Rule, used int64) int64 {
	free := max(r.Capacity-used, 0) / r.Token
	if used > r.Late {
		return 0
	}
	return min(free, (r.Late-used)/r.Token+1)
}
