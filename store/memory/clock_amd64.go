//go:build amd64 && !race && !purego

package memory

// ticks prefetches the cache line at an address and reads the processor's
// time-stamp counter. It has to be a prefetch: the counter is not read before
// earlier loads have come to their end.
//
//go:noescape
func ticks(address uintptr) uint64

// ticksAreSteady reports whether the counter runs at a constant rate.
//
//go:noescape
func ticksAreSteady() bool
