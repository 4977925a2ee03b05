//go:build !unix

package overload

// RaiseLimit reports false: there is no such limit here.
func RaiseLimit() (limit int, known bool) { return 0, false }
