//go:build !linux

package memory

// under does nothing: this system gives huge pages unasked, or not at all.
func (*hugePages) under([]slot) {}
