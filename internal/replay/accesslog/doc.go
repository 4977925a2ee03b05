// Package accesslog reads the access logs of web servers and proxies: which
// request came when, from whom.
//
// A [Format] is immutable; each goroutine takes a [Parser] of its own from it.
// Whatever a line holds, reading it ends in a [Record] or an error. A Record's
// strings point into the line.
package accesslog
