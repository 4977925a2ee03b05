package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// Every command line on a page uses commands and flags that exist.
func TestCommandsOfDocs(t *testing.T) {
	root := newRoot(streams{})
	shown := regexp.MustCompile("(?m)^ *(?:\\$ |RUN )?(headgate [a-z-].*)$|`(headgate [a-z-][^`\n]*)`")
	seen, commands := map[string]bool{}, 0
	for _, folder := range []string{"../../README.md", "../../CONTRIBUTING.md", "../../SECURITY.md", "../../docs", "../../examples"} {
		err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || filepath.Ext(path) != ".md" || strings.Contains(path, "decisions") {
				return err
			}
			text, err := os.ReadFile(path)
			for _, found := range shown.FindAllStringSubmatch(string(text), -1) {
				line, _, _ := strings.Cut(strings.ReplaceAll(found[1]+found[2], `\|`, "|"), " #") // as in tables
				commands++
				for _, problem := range unknownWords(root, line, seen) {
					t.Errorf("%s: %s: %s", path, strings.TrimSpace(line), problem)
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if commands < 100 {
		t.Errorf("only %d command lines were found", commands)
	}
	for _, c := range root.Commands() { // every command is shown on a page
		if !seen[c.CommandPath()] && c.Name() != "help" {
			t.Errorf("no page shows %s", c.CommandPath())
		}
	}
}

// unknownWords returns the unknown commands and flags of a command line. Brackets
// and bars, as in a synopsis, are read as alternatives. Known commands are recorded
// in seen.
func unknownWords(root *cobra.Command, line string, seen map[string]bool) (unknown []string) {
	words := strings.Fields(strings.NewReplacer("[", " ", "]", " ", "...", "", "…", "", "'", " ", `"`, " ").Replace(line))[1:]
	at := []*cobra.Command{root}
	for len(words) > 0 && at[0].HasSubCommands() {
		var below []*cobra.Command
		for name := range strings.SplitSeq(words[0], "|") {
			i := slices.IndexFunc(at[0].Commands(), func(c *cobra.Command) bool { return c.Name() == strings.Trim(name, ".,;:)") })
			if i < 0 {
				break
			}
			below = append(below, at[0].Commands()[i])
			seen[below[len(below)-1].CommandPath()] = true
		}
		if len(below) == 0 {
			if !strings.HasPrefix(words[0], "-") && !strings.Contains(line, ": ") { // not a message
				return []string{"no command " + words[0]}
			}
			break
		}
		at, words = below, words[1:]
	}
	for _, word := range words {
		name, isFlag := strings.CutPrefix(word, "--")
		name, _, _ = strings.Cut(name, "=")
		name = strings.TrimRight(name, ".,;:)")
		known := func(c *cobra.Command) bool {
			return name == "" || name == "help" || name == "version" || c.Flags().Lookup(name) != nil || c.PersistentFlags().Lookup(name) != nil || c.InheritedFlags().Lookup(name) != nil
		}
		if isFlag && !slices.ContainsFunc(at, known) {
			unknown = append(unknown, "no flag --"+name)
		}
	}
	return unknown
}
