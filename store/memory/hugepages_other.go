//go:build !linux

package memory

// hugePages are not asked for: this system gives them unasked, or not at all.
type hugePages struct{}

func (hugePages) under([]slot, int64) {}
