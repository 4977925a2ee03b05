package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// TestMain lets the test binary act as the floors, like the command.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "floor" {
		main()
		return
	}
	m.Run()
}

// TestDoors: every door and its floor answer as the comparison needs. It does not measure
// speed.
func TestDoors(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), &out, "", plan{rounds: 1, requests: 320, connections: 4}); err != nil {
		t.Fatal(err)
	}
	if rows := strings.Count(out.String(), "≤"); rows != 6 {
		t.Errorf("%d doors, want 6:\n%s", rows, out.String())
	}
}
