package follow_test

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/base/diagnostic"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/follow"
	"github.com/headgate/headgate/internal/rules/rulefile"
)

// folder is a new folder with its real path.
func folder(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// put writes a file, and the folders that it is in.
func put(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// link makes a symlink, in place of another.
func link(t *testing.T, target, name string) {
	t.Helper()
	_ = os.Remove(name) // there may be none
	if err := os.Symlink(target, name); err != nil {
		t.Fatal(err)
	}
}

// Which files are rules, by where they lie and what they are called.
func TestPlaces(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	put(t, filepath.Join(dir, "rules/a.yaml"), "")
	put(t, filepath.Join(dir, "far/b.conf"), "")
	put(t, filepath.Join(dir, "one.rules"), "")
	link(t, filepath.Join(dir, "far/b.conf"), filepath.Join(dir, "rules/link.yaml"))
	envoy := rulefile.Options{Compat: rules.CompatEnvoy}
	noDots, siblings := envoy, rulefile.Options{Siblings: true}
	noDots.IgnoreDotFiles = true
	for _, row := range []struct {
		name               string
		own, envoy, noDots bool
	}{
		{"rules/a.yaml", true, true, true},
		{"rules/new.yml", true, true, true},
		{"rules/deep/er.yaml", true, true, true},
		{"rules/notes.txt", false, true, true},
		{"rules/a.yaml.swp", false, true, true},
		{"rules/.hidden.yaml", false, true, false},
		{"rules/..data", false, false, false},
		{"rules/a_test.yaml", false, false, false},
		{"rulesets/a.yaml", false, false, false},
		{"far/b.conf", true, true, true}, // a link in the folder leads there
		{"far/c.conf", false, false, false},
		{"one.rules", true, true, true}, // named directly
		{"two.rules", false, false, false},
		{"later.yaml", true, true, true}, // named, and not there yet
	} {
		paths := []string{filepath.Join(dir, "rules"), filepath.Join(dir, "one.rules"), filepath.Join(dir, "later.yaml")}
		for want, o := range map[*bool]rulefile.Options{&row.own: {}, &row.envoy: envoy, &row.noDots: noDots} {
			if got := (follow.Files{Paths: paths, Options: o}).Places()(filepath.Join(dir, row.name)); got != *want {
				t.Errorf("%s, %+v: %v, want %v", row.name, o, got, *want)
			}
		}
	}
	nextTo := follow.Files{Paths: []string{filepath.Join(dir, "rules")}, Options: siblings}.Places()
	for name, want := range map[string]bool{"rules.yaml": true, "rules.d/x.yaml": true, "rules2.yaml": false, "other.yaml": false} {
		if got := nextTo(filepath.Join(dir, name)); got != want {
			t.Errorf("next to the folder, %s: %v, want %v", name, got, want)
		}
	}
}

// The fingerprint changes with the names and the contents of rules, and with nothing
// else; what was changed back is what it was.
func TestFingerprint(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	in := func(name string) string { return filepath.Join(dir, name) }
	put(t, in("rules/a.yaml"), "one")
	put(t, in("v1/c.yaml"), "link")
	put(t, in("v2/c.yaml"), "other")
	link(t, in("v1"), in("current"))
	files := follow.Files{Paths: []string{in("rules"), in("current"), in("later.yaml")}}
	first := files.Fingerprint()
	remove := func(name string) func() { return func() { _ = os.RemoveAll(in(name)) } }
	for _, step := range []struct {
		name string
		do   func()
		same bool // as at first
	}{
		{"nothing", func() {}, true},
		{"another text of the same length", func() { put(t, in("rules/a.yaml"), "two") }, false},
		{"the old text", func() { put(t, in("rules/a.yaml"), "one") }, true},
		{"another name", func() { _ = os.Rename(in("rules/a.yaml"), in("rules/b.yaml")) }, false},
		{"the old name", func() { _ = os.Rename(in("rules/b.yaml"), in("rules/a.yaml")) }, true},
		{"a file that is no rule", func() { put(t, in("rules/README.md"), "read me") }, true},
		{"rule tests", func() { put(t, in("rules/a_test.yaml"), "tests: []") }, true},
		{"a hidden folder", func() { put(t, in("rules/.git/x.yaml"), "x") }, true},
		{"a new folder", func() { put(t, in("rules/new/x.yaml"), "x") }, false},
		{"gone again", remove("rules/new"), true},
		{"an empty file", func() { put(t, in("rules/empty.yaml"), "") }, false},
		{"gone too", remove("rules/empty.yaml"), true},
		{"a symlink is swapped", func() { link(t, in("v2"), in("current")) }, false},
		{"and back", func() { link(t, in("v1"), in("current")) }, true},
		{"a file that was not there", func() { put(t, in("later.yaml"), "") }, false},
		{"and is not", remove("later.yaml"), true},
		{"the folder is gone", func() { _ = os.Rename(in("rules"), in("away")) }, false},
		{"the folder is back", func() { _ = os.Rename(in("away"), in("rules")) }, true},
		{"a folder in place of a file", func() { _ = os.Mkdir(in("later.yaml"), 0o700) }, false},
		{"a file in a folder that a symlink leads to", func() { remove("later.yaml")(); put(t, in("v1/c.yaml"), "new") }, false},
		{"and its old text", func() { put(t, in("v1/c.yaml"), "link") }, true},
	} {
		step.do()
		if same := files.Fingerprint() == first; same != step.same {
			t.Errorf("%s: the same as at first: %v, want %v", step.name, same, step.same)
		}
	}
}

// A device is not read: that may never end.
func TestFingerprintReadsFilesOnly(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	link(t, "/dev/zero", filepath.Join(dir, "a.yaml"))
	device := follow.Files{Paths: []string{dir}}.Fingerprint()
	link(t, filepath.Join(dir, "nowhere"), filepath.Join(dir, "a.yaml"))
	if device != (follow.Files{Paths: []string{dir}}).Fingerprint() {
		t.Error("a device is not as a file that cannot be read")
	}
}

// Without what the file system reports, a change is found by looking, once it has
// lasted as long as a writer may pause.
func TestPolling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		name := filepath.Join(folder(t), "a.yaml")
		put(t, name, "one")
		start, read := time.Now(), []string(nil)
		stop := follow.Start(follow.Options{
			Files: follow.Files{Paths: []string{name}}, Settle: 2 * time.Second, Poll: 10 * time.Second, PollOnly: true, Log: slog.New(slog.DiscardHandler),
			Changed: func(follow.Occasion) {
				text, err := os.ReadFile(name)
				if err != nil {
					text = []byte("gone")
				}
				if len(read) == 0 || !strings.HasSuffix(read[len(read)-1], " "+string(text)) {
					read = append(read, time.Since(start).String()+" "+string(text))
				}
			},
		})
		time.Sleep(15 * time.Second)
		put(t, name, "two")
		time.Sleep(6 * time.Second) // a look at 20 s, and it is still being written
		put(t, name, "three")
		time.Sleep(20 * time.Second)
		_ = os.Remove(name)
		time.Sleep(20 * time.Second)
		stop(func(done <-chan struct{}) { <-done })
		put(t, name, "four")
		time.Sleep(time.Minute)
		if got, want := strings.Join(read, ", "), "10s one, 24s three, 52s gone"; got != want {
			t.Errorf("read %s, want %s", got, want)
		}
	})
}

// Of many problems the log has the first that is an error, and their number.
func TestFirstOf(t *testing.T) {
	t.Parallel()
	problem := func(line int, s diagnostic.Severity) diagnostic.Diagnostic {
		return diagnostic.Diagnostic{File: "a.yaml", Line: line, Column: 1, Message: "no", Severity: s}
	}
	for _, row := range []struct {
		err  error
		want string
	}{
		{nil, ""},
		{errors.New("no such file"), "no such file"},
		{diagnostic.Problems{problem(1, diagnostic.SeverityError)}, "a.yaml:1:1: no"},
		{diagnostic.Problems{problem(1, diagnostic.SeverityWarning), problem(2, diagnostic.SeverityError)}, "a.yaml:2:1: no"},
		{diagnostic.Problems{problem(1, diagnostic.SeverityError), problem(2, diagnostic.SeverityWarning), problem(3, diagnostic.SeverityError), problem(4, diagnostic.SeverityError)}, "a.yaml:1:1: no (and 2 more; see headgate check)"},
		{errors.Join(diagnostic.Problems{problem(7, diagnostic.SeverityError)}), "a.yaml:7:1: no"},
	} {
		if got := follow.FirstOf(row.err); got != row.want {
			t.Errorf("%v: %q, want %q", row.err, got, row.want)
		}
	}
}
