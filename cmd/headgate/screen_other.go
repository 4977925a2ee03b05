//go:build !unix

package main

import (
	"os"
)

// terminalSize returns 0: the size of a terminal is not known here.
func terminalSize(*os.File) (columns, rows int) { return 0, 0 }

// resized are no signals: none tells of a changed size here.
func resized() []os.Signal { return nil }
