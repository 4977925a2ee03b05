//go:build unix

package main

import (
	"os"
	"syscall"
	"testing"
)

// Where the program that reads the log has ended, Headgate serves on, and stops in order.
func TestReaderOfTheLogEnds(t *testing.T) {
	p := newProcess(t, "http://127.0.0.1:1", "domain: d\nlimits:\n  - {name: one, rate: 5/minute}\n")
	_ = p.log.Close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p.log = w
	p.start()
	_ = r.Close()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("it says that it stops, to nobody: %v", err)
	}
	p.cmd = nil
}
