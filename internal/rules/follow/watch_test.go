package follow_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/rules/follow"
)

// What the file system reports is enough: a change is heard of wherever the files lie,
// and however they are put there, long before they would be looked at anyway.
func TestWatching(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	in := func(name string) string { return filepath.Join(dir, name) }
	put(t, in("rules/a.yaml"), "a1")
	put(t, in("v1/c.yaml"), "c1")
	put(t, in("v2/c.yaml"), "c2")
	link(t, in("v1"), in("current"))
	paths := []string{in("rules"), in("current"), in("later/x.yaml")}
	contents := func() string {
		var out []string
		for _, name := range []string{"rules/a.yaml", "rules/sub/b.yaml", "current/c.yaml", "later/x.yaml"} {
			if text, err := os.ReadFile(in(name)); err == nil {
				out = append(out, string(text))
			}
		}
		return strings.Join(out, " ")
	}
	changed := make(chan string, 1000)
	stop := follow.Start(follow.Options{
		Files: follow.Files{Paths: paths}, Settle: time.Millisecond, Poll: time.Hour, Log: slog.New(slog.DiscardHandler),
		Changed: func(follow.Occasion) { changed <- contents() },
	})
	defer stop(func(done <-chan struct{}) { <-done })
	swap := func(name, text string) {
		put(t, in("aside/new"), text)
		if err := os.Rename(in("aside/new"), in(name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []struct {
		name string
		do   func()
		want string
	}{
		{"written where it lies", func() { put(t, in("rules/a.yaml"), "a2") }, "a2 c1"},
		{"put in place", func() { swap("rules/a.yaml", "a3") }, "a3 c1"},
		{"in a new folder", func() { put(t, in("rules/sub/b.yaml"), "b1") }, "a3 b1 c1"},
		{"in that folder again", func() { put(t, in("rules/sub/b.yaml"), "b2") }, "a3 b2 c1"},
		{"a symlink is swapped", func() { link(t, in("v2"), in("current")) }, "a3 b2 c2"},
		{"behind the symlink", func() { swap("v2/c.yaml", "c3") }, "a3 b2 c3"},
		{"where nothing was", func() { put(t, in("later/x.yaml"), "x1") }, "a3 b2 c3 x1"},
		{"there again", func() { put(t, in("later/x.yaml"), "x2") }, "a3 b2 c3 x2"},
		{"removed", func() { _ = os.Remove(in("rules/sub/b.yaml")) }, "a3 c3 x2"},
		{"a folder is removed", func() { _ = os.RemoveAll(in("rules")) }, "c3 x2"},
		{"and is back", func() { put(t, in("rules/a.yaml"), "a4") }, "a4 c3 x2"},
	} {
		step.do()
		timeout := time.After(20 * time.Second)
		for heard := ""; heard != step.want; {
			select {
			case heard = <-changed:
			case <-timeout:
				t.Fatalf("%s: heard last of %q, want %q", step.name, heard, step.want)
			}
		}
	}
}

// Nothing is reported after stop, and stop does not block.
func TestStop(t *testing.T) {
	t.Parallel()
	for _, poll := range []bool{true, false} {
		name := filepath.Join(folder(t), "a.yaml")
		put(t, name, "1")
		changed := make(chan struct{}, 1000)
		stop := follow.Start(follow.Options{
			Files: follow.Files{Paths: []string{name}}, Settle: time.Hour, Poll: time.Hour, PollOnly: poll, Log: slog.New(slog.DiscardHandler),
			Changed: func(follow.Occasion) { changed <- struct{}{} },
		})
		put(t, name, "2")
		stop(func(done <-chan struct{}) { <-done })
		put(t, name, "3")
		if len(changed) > 0 {
			t.Errorf("polled only %v: told of a change that has not been quiet for an hour", poll)
		}
	}
}
