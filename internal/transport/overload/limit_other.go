//go:build !unix

package overload

// RaiseLimit reports false: this system has no such limit.
func RaiseLimit() (limit int, known bool) { return 0, false }
