package main

import (
	"os"

	"golang.org/x/sys/windows"
)

// terminalSize returns 0: the size is unknown on this system.
func terminalSize(*os.File) (columns, rows int) { return 0, 0 }

// isScreen reports whether f is a console.
func isScreen(f *os.File) bool {
	var mode uint32
	return windows.GetConsoleMode(windows.Handle(f.Fd()), &mode) == nil
}

// resized returns no signals: this system has none for a changed size.
func resized() []os.Signal { return nil }
