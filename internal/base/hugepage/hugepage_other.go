//go:build !linux

package hugepage

import "errors"

// Wanted reports false: this system uses huge pages automatically or not at all.
func Wanted() bool { return false }

// Collapse does nothing; see Wanted.
func Collapse(uintptr) error { return errors.ErrUnsupported }
