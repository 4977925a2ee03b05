//go:build !linux

package steady

// machineBoot is not known here. After a sleep the wall clock is ahead, and is
// followed after [Patience].
var machineBoot func() (nanoseconds int64, ok bool)
