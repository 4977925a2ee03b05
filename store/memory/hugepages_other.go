//go:build !linux

package memory

// hugePages does nothing: this system uses huge pages automatically or not at all.
type hugePages struct{}

func (hugePages) under([]slot, int64) {}
