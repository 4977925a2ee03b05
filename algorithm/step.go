// Package algorithm holds the arithmetic of the six algorithms: pure steps
// from a state, a time and a request to a new state and a decision. There is
// no clock, no lock, no allocation and no floating point in it, and it imports
// neither fmt nor net, so that it compiles small to WebAssembly.
//
// The Lua scripts of store/redis are twins of these files; the vectors in
// testdata/vectors/ are run by both.
package algorithm

import (
	"time"

	"github.com/headgate/headgate"
)

// State is what a store keeps for one key under one algorithm. The zero value
// is that of an unused key. What the numbers mean is said in each algorithm's
// file; every one is from 0 to 2^53-1.
type State struct {
	// V are the numbers of all algorithms.
	V [4]int64
	// Words are the list of SlidingLog and SlidingBuckets; nil for the others.
	Words []int64
	// Credit is what Grant added above the limit, in tokens, good before
	// Until, in microseconds since the epoch.
	Credit, Until int64
}

// Request is one question to a step.
type Request struct {
	Kind headgate.Kind
	// Cost is at least 0.
	Cost int64
	// Duration is that of headgate.Op.
	Duration time.Duration
}

// Result is a step's answer.
type Result struct {
	headgate.Decision
	// FreshAt is when the state equals that of an unused key, in microseconds
	// since the epoch. A store may forget the key then and never before.
	FreshAt int64
	// Wrote reports whether the state was changed.
	Wrote bool
}
