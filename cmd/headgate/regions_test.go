package main

import (
	"context"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"
)

// TestRegionsExample: the script of the example starts two regions, and one gets tokens of
// the other.
func TestRegionsExample(t *testing.T) {
	t.Parallel()
	needs(t, "redis-server")
	needs(t, "curl")
	binary := filepath.Join(t.TempDir(), "headgate")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	gave := regexp.MustCompile(`(?m)^us +reachable +\S+ ago +\S+ +0 +0 +0 +[1-9]\d* +-$`)
	var out []byte
	for range 3 { // a port may be taken
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		script := exec.CommandContext(ctx, "../../examples/regions/run.sh")
		script.Env = append(os.Environ(), "HEADGATE="+binary, "PORT="+strconv.Itoa(20_000+10*rand.IntN(1000)), "no_proxy=*")
		script.Cancel = func() error { return script.Process.Signal(os.Interrupt) }
		var err error
		out, err = script.CombinedOutput()
		cancel()
		if err == nil && gave.Match(out) {
			return
		}
		t.Log(err)
	}
	t.Errorf("us gave nothing:\n%s", out)
}
