//go:build unix

package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// terminalSize returns the columns and rows of a terminal, 0 if unknown.
func terminalSize(f *os.File) (columns, rows int) {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, 0
	}
	return int(size.Col), int(size.Row)
}

// isScreen reports whether f is a terminal; other devices, such as /dev/null, have no
// size.
func isScreen(f *os.File) bool {
	_, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	return err == nil
}

// resized returns the signals for a changed terminal size.
func resized() []os.Signal { return []os.Signal{unix.SIGWINCH} }
