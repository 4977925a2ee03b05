//go:build unix

package main

import (
	"bytes"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// A person is asked, and colour is used, only on a terminal. /dev/null is a device too.
func TestTerminal(t *testing.T) {
	for name, want := range map[string]bool{os.DevNull: false, "/dev/zero": false, "/dev/ptmx": true} {
		f, err := os.OpenFile(name, os.O_RDWR, 0)
		if err != nil {
			t.Logf("%s cannot be opened here: %v", name, err)
			continue
		}
		// Standard input has another name than the device. It needs a descriptor of its own:
		// the collector closes a file, and would close whatever has its number by then.
		fd, err := unix.Dup(int(f.Fd()))
		if err != nil {
			t.Fatal(err)
		}
		stdin := os.NewFile(uintptr(fd), "stdin")
		if got := isTerminal(stdin); got != want || isTerminalInput(f) != want {
			t.Errorf("%s is a terminal: %t", name, got)
		}
		_ = stdin.Close()
		_ = f.Close()
	}
	if isTerminal(new(bytes.Buffer)) {
		t.Error("a buffer is a terminal")
	}
}
