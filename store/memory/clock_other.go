//go:build !amd64 || race || purego

package memory

func ticks() uint64 { return 0 }

func ticksAreSteady() bool { return false }
