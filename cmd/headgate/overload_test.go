package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"
)

// TestOverloadExample: with five times the load of its backend, the example serves what is
// important, and without adaptive concurrency nobody.
func TestOverloadExample(t *testing.T) {
	if !*long {
		t.Skip("it waits for real minutes; make test-all runs it")
	}
	dir := t.TempDir()
	for name, of := range map[string]string{"headgate": ".", "overload": "../../examples/overload"} {
		if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(dir, name), of).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	shows := regexp.MustCompile(`critical (\d+)% .* default (\d+)% .* sheddable (\d+)%`)
	for _, row := range []struct {
		adaptive       string
		least, atMost  int // percent of critical ones
		sheddableWorse bool
	}{{"on", 90, 100, true}, {"off", 0, 20, false}} {
		port := 20_000 + 10*rand.IntN(1000)
		at := func(i int) string { return fmt.Sprintf("127.0.0.1:%d", port+i) }
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		demo := exec.CommandContext(ctx, filepath.Join(dir, "overload"), "-headgate", filepath.Join(dir, "headgate"), "-adaptive", row.adaptive, "-length", "30s",
			"-proxy", at(0), "-upstream", at(1), "-admin", at(2))
		demo.Dir = "../.."
		demo.Cancel = func() error { return demo.Process.Signal(os.Interrupt) }
		out, err := demo.CombinedOutput()
		cancel()
		found := shows.FindSubmatch(out)
		if err != nil || found == nil {
			t.Fatalf("%v\n%s", err, out)
		}
		percent := func(i int) int { n, _ := strconv.Atoi(string(found[i])); return n }
		if critical := percent(1); critical < row.least || critical > row.atMost || row.sheddableWorse && percent(3) > 40 {
			t.Errorf("adaptive: %s\n%s", row.adaptive, out)
		}
	}
}
