//go:build unix

package main

import (
	"bytes"
	"os"
	"testing"
)

// A person is asked, and colour is used, only on a terminal. /dev/null is a device too.
func TestTerminal(t *testing.T) {
	for name, want := range map[string]bool{os.DevNull: false, "/dev/zero": false, "/dev/ptmx": true} {
		f, err := os.OpenFile(name, os.O_RDWR, 0)
		if err != nil {
			t.Logf("%s cannot be opened here: %v", name, err)
			continue
		}
		// Standard input has another name than the device.
		if got := isTerminal(os.NewFile(f.Fd(), "stdin")); got != want || isTerminalInput(f) != want {
			t.Errorf("%s is a terminal: %t", name, got)
		}
		_ = f.Close()
	}
	if isTerminal(new(bytes.Buffer)) {
		t.Error("a buffer is a terminal")
	}
}
