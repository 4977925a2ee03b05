// Package upgrade_test holds that this version reads what older ones have written: rule
// files, snapshots, bans and overrides, tokens, queues, and counts in Redis.
// docs/start/install.md makes the promise.
//
// Each folder in testdata is a version. before.txt is what that version was asked and
// answered before it wrote the other files, and after.txt what every later version must
// answer. A release adds its folder:
//
//	make formats VERSION=v0.1.0
package upgrade_test

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/internal/testkit/redistest"
)

var written = flag.String("formats", "", "write the files of this version, such as v0.1.0, for which testdata has rules.yaml")

// start is when the files were written, on the clock of their counts, which no test
// leaves: the files stay readable whatever the date is.
var start = time.Unix(1_800_000_000, 0).UTC()

// before is what a version is asked before it writes.
var before = []string{
	"at 2027-01-15T08:00:00Z",
	"take 13 /bucket user=ann", "take 10 /bucket user=größe☃", "take 11 /bucket user=" + strings.Repeat("long", 20), "take 30 /bucket user=cy",
	"take 4 /steps user=ann", "take 5 /leaky user=ann", "take 4 /fixed user=ann", "take 4 /first user=ann", "take 4 /month user=ann",
	"take 4 /log user=ann", "take 2 /denied user=ann", "take 1 /denied user=ann", "take 4 /sliding user=ann", "take 4 /buckets user=ann",
	"take 3 /several user=ann value=a", "take 4 /several user=ann value=b", "take 5 /several user=bob",
	"take 1 /values user=ann value=a", "take 1 /values user=ann value=b", "take 1 /values user=ann value=a",
	"at 2027-01-15T08:00:15Z",
	"take 5 /log user=ann", "take 5 /sliding user=ann", "take 5 /buckets user=ann", "take 1 /first user=ann", "take 1 /steps user=ann",
	"take 1 /slots user=ann", "hold /slots user=ann",
	"reserve 5 /fixed user=bob", "answer /answers user=ann", "answer /answers user=bob",
	"grant 7 /fixed user=rich",
	"ban /bucket user=eve", "override 3/minute /log user=eve", "override 30/minute+40 /bucket user=ida",
	"take 4 /own user=ann zone=Asia/Tokyo", "take 4 /hashed user=ann", "draw 30 /blocks user=ann",
	"take 3 /shared user=ann", "take 3 /slack user=ann",
	"at now", "take 3 /weekly user=ann",
}

// after is what later versions are asked.
var after = []string{
	"entries",
	"at 2027-01-15T08:00:20Z",
	"peek /bucket user=ann", "peek /bucket user=größe☃", "peek /bucket user=" + strings.Repeat("long", 20), "peek /bucket user=cy", "peek /bucket user=new",
	"peek /steps user=ann", "peek /leaky user=ann", "peek /fixed user=ann", "peek /first user=ann", "peek /month user=ann",
	"peek /log user=ann", "peek /denied user=ann", "peek /sliding user=ann", "peek /buckets user=ann", "peek /slots user=ann",
	"peek /several user=ann value=a", "peek /several user=ann value=b", "peek /several user=bob",
	"peek /values user=ann value=a", "peek /values user=ann value=c",
	"peek /own user=ann zone=Asia/Tokyo", "peek /hashed user=ann", "peek /blocks user=ann", "peek /shared user=ann", "peek /slack user=ann",
	"peek /fixed user=rich", "peek /bucket user=eve", "peek /log user=eve", "peek /bucket user=ida",
	"peek /fixed user=bob", "commit 2", "peek /fixed user=bob",
	"release", "peek /slots user=ann", "release",
	"report 401", "peek /answers user=bob",
	"take 1 /bucket user=ann", "take 3 /fixed user=ann", "take 1 /first user=ann", "take 1 /month user=ann", "take 1 /log user=ann",
	"take 1 /sliding user=ann", "take 1 /buckets user=ann", "take 1 /values user=ann value=b", "take 1 /values user=ann value=c",
	"at 2027-01-15T08:01:05Z",
	"peek /log user=ann", "peek /sliding user=ann", "peek /buckets user=ann", "peek /steps user=ann", "peek /denied user=ann",
	"at 2027-01-15T09:00:00Z",
	"peek /fixed user=ann", "peek /first user=ann", "peek /month user=ann",
	"at now", "left /weekly user=ann",
}

// times is what only Redis keeps: when keys were created and last changed, on its clock.
// They are asked on the clock of the counts: on its own, Redis would move counts that
// begin in its future.
var times = []string{"at 2027-01-15T08:00:20Z", "times /log user=ann", "times /fixed user=ann", "times /log user=new"}

// TestWhatOlderVersionsWrote: this version answers about it as the older one would.
func TestWhatOlderVersionsWrote(t *testing.T) {
	folders, err := filepath.Glob("testdata/v*")
	if err != nil || len(folders) == 0 {
		t.Fatal("no versions", err)
	}
	for _, folder := range folders {
		t.Run(filepath.Base(folder), func(t *testing.T) {
			commands := commandsOf(read(t, folder, "after.txt"))
			t.Run("memory", func(t *testing.T) {
				s := ofMemory(t, folder)
				s.load(t)
				same(t, read(t, folder, "after.txt"), s.all(t, commands))
			})
			t.Run("redis", func(t *testing.T) {
				redistest.Each(t, func(t *testing.T, server *redistest.Server) {
					week := weekOf(t, server)
					s := ofRedis(t, folder, server)
					s.load(t)
					same(t, read(t, folder, "times.txt"), s.all(t, commandsOf(read(t, folder, "times.txt"))))
					got := s.all(t, commands)
					if week == weekOf(t, server) { // or the weekly window has ended in between
						same(t, read(t, folder, "after.txt"), got)
					}
				})
			})
			t.Run("queue in a file", func(t *testing.T) {
				q := queueInFile(t, copied(t, filepath.Join(folder, "queue.db")))
				same(t, read(t, folder, "queue.txt"), listed(t, q)+sent(t, q))
				ends(t, queueInFileAt(t, copied(t, filepath.Join(folder, "queue.db")), func() time.Time { return farAway.AddDate(-10, 0, 0) }))
			})
			t.Run("queue in redis", func(t *testing.T) {
				redistest.Each(t, func(t *testing.T, server *redistest.Server) {
					restore(t, server, read(t, folder, "queue.redis"))
					q := queueInRedis(t, server)
					same(t, read(t, folder, "queue.txt"), listed(t, q)+sent(t, q))
				})
			})
		})
	}
}

// TestNamesOfKeys: the keys in Redis are named as in the last version, so that servers of
// both can work together while one after the other is upgraded.
func TestNamesOfKeys(t *testing.T) {
	folders, err := filepath.Glob("testdata/v*")
	if err != nil || len(folders) == 0 {
		t.Fatal("no versions", err)
	}
	last := slices.MaxFunc(folders, func(a, b string) int { return slices.Compare(numbers(a), numbers(b)) })
	server := redistest.Standalone(t)
	s := ofRedis(t, last, server)
	s.all(t, before)
	same(t, names(read(t, last, "redis.keys")), names(dumped(t, server)))
	server.Do("FLUSHALL")
	writeQueue(t, server)
	same(t, names(read(t, last, "queue.redis")), names(dumped(t, server)))
}

// numbers returns those of a version's folder, to find the last.
func numbers(folder string) (list []int) {
	for _, text := range regexp.MustCompile(`[0-9]+`).FindAllString(filepath.Base(folder), -1) {
		n, _ := strconv.Atoi(text)
		list = append(list, n)
	}
	return list
}

// names returns the keys of the commands of dumped.
func names(commands string) string {
	var keys []string
	for line := range strings.Lines(commands) {
		key := regexp.MustCompile(`"hg:(?:[^"\\]|\\.)*"`).FindString(line)
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return strings.Join(keys, "\n")
}

// TestWrite writes the files of a version.
func TestWrite(t *testing.T) {
	if *written == "" {
		t.Skip("without -formats")
	}
	folder := filepath.Join("testdata", *written)
	server := redistest.Standalone(t)
	if err := os.RemoveAll(filepath.Join(folder, "memory.control")); err != nil {
		t.Fatal(err)
	}
	s := ofMemory(t, folder)
	write(t, folder, "before.txt", s.all(t, before))
	s.save(t)
	s = ofMemory(t, folder)
	s.load(t)
	write(t, folder, "after.txt", s.all(t, after))

	s = ofRedis(t, folder, server)
	s.all(t, before)
	s.save(t)
	server.Do("FLUSHALL")
	s = ofRedis(t, folder, server)
	s.load(t)
	write(t, folder, "times.txt", s.all(t, times))
	same(t, read(t, folder, "after.txt"), s.all(t, after))
	server.Do("FLUSHALL")

	path := filepath.Join(t.TempDir(), "queue.db")
	bury(t, queueInFile(t, path))
	deliver(t, queueInFile(t, path))
	q := queueInFile(t, path)
	fill(t, q)
	text := listed(t, q)
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	write(t, folder, "queue.db", read(t, "", path))
	write(t, folder, "queue.txt", text+sent(t, queueInFile(t, path)))
	writeQueue(t, server)
	write(t, folder, "queue.redis", dumped(t, server))
}

// commandsOf returns the commands of a trace.
func commandsOf(trace string) (commands []string) {
	for _, match := range regexp.MustCompile(`(?m)^> (.*)$`).FindAllStringSubmatch(trace, -1) {
		commands = append(commands, match[1])
	}
	return commands
}

func same(t *testing.T, want, got string) {
	t.Helper()
	if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")); diff != "" {
		t.Error(diff)
	}
}

func read(t *testing.T, folder, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func write(t *testing.T, folder, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// copied returns a copy of a file, which may be changed.
func copied(t *testing.T, path string) string {
	t.Helper()
	folder := t.TempDir()
	write(t, folder, "copy", read(t, "", path))
	return filepath.Join(folder, "copy")
}
