// Package plain makes texts and errors without package fmt, which would more than double
// the WebAssembly that the algorithms compile to.
package plain

import (
	"strconv"
	"strings"
	"time"
)

// Error is like fmt.Errorf("%w: %s", kind, detail).
func Error(kind error, detail string) error { return &detailed{kind, detail} }

type detailed struct {
	kind   error
	detail string
}

func (e *detailed) Error() string { return e.kind.Error() + ": " + e.detail }

func (e *detailed) Unwrap() error { return e.kind }

// Numbered formats a value that has no name, such as algorithm(9).
func Numbered(kind string, n uint8) string {
	return kind + "(" + strconv.Itoa(int(n)) + ")"
}

// Count says how many there are of what: 1 rule, 2 rules.
func Count[N int | int64](n N, what string) string {
	if n != 1 {
		what += "s"
	}
	return strconv.FormatInt(int64(n), 10) + " " + what
}

// Duration formats d without trailing zero units: 10m, not 10m0s.
func Duration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// Wait formats a time to wait, rounded up to a millisecond: never too early.
func Wait(d time.Duration) string {
	if d > time.Millisecond {
		d = (d + time.Millisecond - 1).Truncate(time.Millisecond)
	}
	return Duration(d)
}
