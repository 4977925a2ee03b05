package algorithm

import "github.com/headgate/headgate"

// The leaky bucket as a queue has the state of the token bucket: what is used
// is what waits. A request is admitted if it finds a place among the Burst
// ones, and its turn comes when all before it has drained.

// leakyTurn returns how long a request admitted now has to wait.
func leakyTurn(r *headgate.Rule, s *State, now int64) int64 {
	used, last := bucketUsed(r, s, now)
	if used == 0 {
		return 0
	}
	return drained(r, last, used) - now
}
