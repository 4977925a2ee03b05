package main

import (
	"context"
	"flag"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"
)

// long runs what waits for minutes by the clock of the wall: make test-all.
var long = flag.Bool("long", false, "run examples that wait for real minutes")

// TestRegionsExample: the script of the example starts two regions, cuts them off from each
// other, and one gets the tokens of the other when they can reach each other again.
func TestRegionsExample(t *testing.T) {
	t.Parallel()
	if !*long {
		t.Skip("it waits for real minutes; make test-all runs it")
	}
	needs(t, "redis-server")
	needs(t, "redis-cli")
	needs(t, "curl")
	binary := filepath.Join(t.TempDir(), "headgate")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	// Each region goes on alone while it is cut off, and afterwards us gives what it has.
	shows := regexp.MustCompile(`(?s) +10 +\d+  cut\n.* +10 +\d+  reachable\n.*\nus +reachable +\S+ ago +\S+ +\d+ +\d+ +\d+ +[1-9]\d* +-\n.*\n\d+ passed, at most 601 may\n$`)
	var out []byte
	for range 3 { // a port may be taken
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		script := exec.CommandContext(ctx, "../../examples/regions/run.sh")
		script.Env = append(os.Environ(), "HEADGATE="+binary, "PORT="+strconv.Itoa(20_000+10*rand.IntN(1000)), "no_proxy=*")
		script.Cancel = func() error { return script.Process.Signal(os.Interrupt) }
		var err error
		out, err = script.CombinedOutput()
		cancel()
		if err == nil && shows.Match(out) {
			return
		}
		t.Log(err)
	}
	t.Errorf("the regions did not share:\n%s", out)
}
