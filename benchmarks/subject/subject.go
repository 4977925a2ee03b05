// Package subject puts one face on the limiters that are compared: ours, the
// keyed in-memory limiters that Go programs use, and a floor below which no
// limiter of this shape can go.
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

// Subject is a limiter with one limit for all keys. It is safe for use by
// several goroutines.
type Subject interface {
	// Take asks for one.
	Take(key string) Outcome
	// Fill makes the key known, with n of its limit used up where the library
	// can take more than one at once. It may keep key.
	Fill(key string, n int64) Outcome
	// Close ends what New started.
	Close() error
}

// Library is one contestant.
type Library struct {
	Name     string
	Rival    bool                                                  // says that ours is compared with it
	KeepsKey bool                                                  // says that it stores the string it is given
	New      func(limit workload.Limit, keys int) (Subject, error) // returns a limiter that has room for keys
}

// Ours is the name of our own entry.
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
