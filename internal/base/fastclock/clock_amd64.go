//go:build amd64 && !race && !purego

package fastclock

// ticks prefetches the cache line at an address and reads the processor's time-stamp
// counter. It must be a prefetch: the counter is only read after earlier loads have
// completed.
//
//go:noescape
func ticks(address uintptr) uint64

// ticksAreSteady reports whether the counter runs at a constant rate.
//
//go:noescape
func ticksAreSteady() bool
