//go:build !unix

package main

import (
	"os"
)

// terminalSize returns 0: the size is unknown on this system.
func terminalSize(*os.File) (columns, rows int) { return 0, 0 }

// resized returns no signals: this system has none for a changed size.
func resized() []os.Signal { return nil }
