package main

import (
	"flag"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
)

var update = flag.Bool("update", false, "rewrite testdata/promised/commands.txt")

// TestCommandsAreAsPromised: testdata/promised/commands.txt lists all commands and their
// flags, with the short forms and the types of their values. A line that is taken away
// breaks scripts; see docs/start/install.md.
func TestCommandsAreAsPromised(t *testing.T) {
	var lines []string
	for _, c := range documented(newRoot(streams{out: io.Discard, err: io.Discard})) {
		lines = append(lines, c.CommandPath())
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				line := c.CommandPath() + " --" + f.Name
				if f.Shorthand != "" {
					line += ", -" + f.Shorthand
				}
				lines = append(lines, line+" "+f.Value.Type())
			}
		})
	}
	slices.Sort(lines)
	const file = "testdata/promised/commands.txt"
	if *update {
		if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(strings.TrimSpace(string(text)), "\n"), lines); diff != "" {
		t.Errorf("if this is meant, run this test with -update, and say so in CHANGELOG.md:\n%s", diff)
	}
}
