package simulate

import (
	"math/rand/v2"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
)

// Clients that stay below a rate on average are refused all the same when their requests
// come in bursts. Steady ones send single requests at random times (Poisson) and use 80%
// of the rate; the others send 10 at once, such as a page with what it needs, and use 50%.
const (
	simulated  = 20_000 // requests of each
	atOnce     = 10
	steadyLoad = 0.8
	atOnceLoad = 0.5
)

// refusedOf returns the share of its requests that a limit refuses a client that sends so
// many at once and uses this part of the rate. The same limit always gets the same answer.
func refusedOf(limit headgate.Limit, size int, load float64) float64 {
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same for everyone
	rule := limit.Rule()
	gap := float64(rule.Period) / float64(rule.Limit) * float64(size) / load
	var s algorithm.State
	refused, at := 0, 0.0
	for sent := 0; sent < simulated; sent += size {
		at += random.ExpFloat64() * gap
		for range size {
			if !algorithm.Step(rule, &s, int64(at), algorithm.Request{Cost: 1}).Allowed {
				refused++
			}
		}
	}
	return float64(refused) / simulated
}
