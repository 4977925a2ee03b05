//go:build !linux

package steady

// machineBoot is not available. After sleep the wall clock is ahead, and is followed
// after [Patience].
var machineBoot func() (nanoseconds int64, ok bool)
