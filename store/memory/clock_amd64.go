//go:build amd64 && !race && !purego

package memory

// ticks reads the processor's time-stamp counter.
//
//go:noescape
func ticks() uint64

// ticksAreSteady reports whether the counter runs at a constant rate.
//
//go:noescape
func ticksAreSteady() bool
