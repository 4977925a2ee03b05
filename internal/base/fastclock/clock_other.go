//go:build !amd64 || race || purego

package fastclock

func ticks(uintptr) uint64 { return 0 }

func ticksAreSteady() bool { return false }
