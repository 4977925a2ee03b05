// Package subject gives the compared limiters one interface: Headgate, the keyed in-memory
// limiters that Go programs use, and a floor below which no such limiter can go.
package subject

import (
	"fmt"

	"github.com/headgate/headgate/benchmarks/workload"
)

// Outcome is a limiter's answer.
type Outcome uint8

const (
	Denied  Outcome = iota // a refusal
	Allowed                // an admission
	Failed                 // an error
)

// Subject is a limiter with one limit for all keys. It is safe for concurrent use.
type Subject interface {
	// Take makes a request of cost 1.
	Take(key string) Outcome
	// Fill inserts a key, with n of its limit used where the library has costs. It may keep
	// key.
	Fill(key string, n int64) Outcome
	// Close stops what New started.
	Close() error
}

// Library is one of the compared libraries.
type Library struct {
	Name     string
	Rival    bool                                                  // whether ours is compared with it
	KeepsKey bool                                                  // whether it stores the string of a key
	New      func(limit workload.Limit, keys int) (Subject, error) // returns a limiter with capacity for keys
}

// Ours is the name of Headgate's entry.
const Ours = "headgate"

// All returns every library, ours first.
func All() []Library {
	return []Library{
		{Name: Ours, New: newHeadgate},
		{Name: "x/time in a map", Rival: true, KeepsKey: true, New: newXTime},
		{Name: "throttled", Rival: true, KeepsKey: true, New: newThrottled},
		{Name: "go-limiter", Rival: true, KeepsKey: true, New: newGoLimiter},
		{Name: "ulule/limiter", Rival: true, KeepsKey: true, New: newUlule},
		{Name: "floor", New: newFloor},
	}
}

// Named returns the library with that name.
func Named(name string) (Library, error) {
	for _, l := range All() {
		if l.Name == name {
			return l, nil
		}
	}
	return Library{}, fmt.Errorf("unknown library %q", name)
}

func outcome(allowed bool, err error) Outcome {
	switch {
	case err != nil:
		return Failed
	case allowed:
		return Allowed
	}
	return Denied
}
