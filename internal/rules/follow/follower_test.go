package follow

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"
)

// written is a file in parts, and when each of them is written.
type written struct {
	after time.Duration // the part before
	event string        // what the file system reports: write, rename, log (the write of another file), ask (a SIGHUP) or nothing
	text  string        // what the file then has
}

// reported are the events of what was done.
func reported(what string) []fsnotify.Event {
	switch what {
	case "write":
		return []fsnotify.Event{{Name: "r.yaml", Op: fsnotify.Write}}
	case "rename":
		return []fsnotify.Event{{Name: "r.yaml", Op: fsnotify.Create}}
	case "log":
		return []fsnotify.Event{{Name: "access.log", Op: fsnotify.Write}}
	case "lock": // that another program takes and frees
		return []fsnotify.Event{{Name: "access.log.lock", Op: fsnotify.Create}, {Name: "access.log.lock", Op: fsnotify.Remove}}
	case "aside": // as an editor writes a file that it then puts in place
		return []fsnotify.Event{{Name: "r.tmp", Op: fsnotify.Create}, {Name: "r.tmp", Op: fsnotify.Write}, {Name: "other.yaml", Op: fsnotify.Write}}
	case "moved":
		return []fsnotify.Event{{Name: "r.tmp", Op: fsnotify.Rename}, {Name: "other.yaml", Op: fsnotify.Rename}, {Name: "r.yaml", Op: fsnotify.Create}}
	}
	return nil
}

// logs are n lines in a log, a tenth of a second apart, of which the rules know nothing.
func logs(n int) []written {
	return slices.Repeat([]written{{100 * time.Millisecond, "log", ""}}, n)
}

// rewrites are n writes of a file, a second apart; the last one changes it.
func rewrites(n int) []written {
	parts := slices.Repeat([]written{{time.Second, "write", "abc"}}, n)
	parts[n-1].text = "abcd"
	return parts
}

// asks are n writes of parts of a file, 90 ms apart, with a SIGHUP after each and one
// more; only the last part makes it whole.
func asks(n int) []written {
	parts := slices.Repeat([]written{{75 * time.Millisecond, "write", "a"}, {10 * time.Millisecond, "ask", "a"}}, n)
	return append(parts, written{0, "write", "abc"}, written{0, "ask", "abc"})
}

// TestHalfWrittenFiles: which contents are read, and when, of a file that is
// written with pauses.
func TestHalfWrittenFiles(t *testing.T) {
	const ms = time.Millisecond
	for _, test := range []struct {
		name  string
		parts []written
		want  []string // what is read, of different contents
		at    time.Duration
	}{
		{"a rename", []written{{0, "rename", "ab"}}, []string{"ab"}, 100 * ms},
		{"two renames", []written{{0, "rename", "a"}, {50 * ms, "rename", "ab"}}, []string{"ab"}, 150 * ms},
		{"written at once", []written{{0, "write", "ab"}}, []string{"ab"}, 2000 * ms},
		{"emptied, and written after 150 ms", []written{{0, "write", ""}, {150 * ms, "write", "ab"}}, []string{"ab"}, 2150 * ms},
		{"pauses of 1.9 s", []written{{0, "write", ""}, {1900 * ms, "write", "a"}, {1900 * ms, "write", "ab"}}, []string{"ab"}, 5800 * ms},
		{"written, then its mode is changed", []written{{0, "write", "a"}, {500 * ms, "rename", "a"}, {500 * ms, "write", "ab"}}, []string{"ab"}, 3000 * ms},
		{"nothing is reported, and it grows for 3 s", []written{{29 * time.Second, "", "a"}, {1500 * ms, "", "ab"}, {1400 * ms, "", "abc"}}, []string{"abc"}, 34 * time.Second},
		{"a rename, and a log in the folder", append([]written{{0, "log", "old"}, {0, "rename", "ab"}}, logs(600)...), []string{"ab"}, 100 * ms},
		{"written, and a log in the folder", append([]written{{0, "write", "ab"}}, logs(600)...), []string{"ab"}, 2000 * ms},
		{"nothing is reported but a log", append([]written{{1200 * ms, "", "ab"}}, logs(600)...), []string{"ab"}, 3300 * ms},
		{"written next to it, and moved into place", []written{{0, "aside", "old"}, {10 * ms, "aside", "old"}, {10 * ms, "moved", "ab"}}, []string{"ab"}, 120 * ms},
		{"a rename, and a lock in the folder", append([]written{{0, "rename", "ab"}}, slices.Repeat([]written{{50 * ms, "lock", "ab"}}, 600)...), []string{"ab"}, 100 * ms},
		{"nothing is reported but a lock", slices.Repeat([]written{{50 * ms, "lock", "ab"}}, 600), []string{"ab"}, 150 * ms},
		{"asked, and nothing has changed", []written{{0, "ask", "old"}}, []string{"old"}, 100 * ms},
		{"asked after a rename", []written{{0, "rename", "ab"}, {0, "ask", "ab"}}, []string{"ab"}, 100 * ms},
		{"asked before a rename is heard of", []written{{0, "ask", "ab"}, {50 * ms, "rename", "ab"}}, []string{"ab"}, 150 * ms},
		{"asked while it is written", asks(30), []string{"abc"}, 4550 * ms},
		{"asked, and nothing is reported of what is written", []written{{0, "", "a"}, {0, "ask", "a"}, {1500 * ms, "", "ab"}, {1400 * ms, "", "abc"}}, []string{"abc"}, 6100 * ms},
		{"asked while it has been written for long", append(slices.Repeat([]written{{time.Second, "write", "abc"}, {0, "ask", "abc"}}, 40), written{0, "write", "abcd"}), []string{"abcd"}, 42 * time.Second},
		{"never quiet", rewrites(40), []string{"abcd"}, 42 * time.Second},
		{"a pause of 3 s: a part is read, and then the rest", []written{{0, "write", "a"}, {3000 * ms, "write", "ab"}}, []string{"a", "ab"}, 5000 * ms},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				var mu sync.Mutex
				asking := make(chan struct{}, 1)
				text, read, at, start := "old", []string{"old"}, time.Duration(0), time.Now()
				f := &follower{
					isRule: func(name string) bool { return name != "access.log" && name != "access.log.lock" && name != "r.tmp" },
					events: make(chan struct{}, 1), settle: DefaultSettle, poll: 30 * time.Second, log: slog.New(slog.DiscardHandler),
					fingerprint: func() [32]byte {
						mu.Lock()
						defer mu.Unlock()
						return sha256.Sum256([]byte(text))
					},
					asking: asking,
					changed: func(o Occasion) {
						mu.Lock()
						defer mu.Unlock()
						if (text != read[len(read)-1] || o.Asked) && !o.Changing {
							read, at = append(read, text), time.Since(start)
						}
					},
				}
				f.last = f.fingerprint()
				done := make(chan struct{})
				go func() { defer close(done); f.follow(ctx) }()
				for _, p := range test.parts {
					time.Sleep(p.after)
					mu.Lock()
					if p.event != "log" {
						text = p.text
					}
					mu.Unlock()
					if p.event == "ask" {
						select {
						case asking <- struct{}{}:
						default:
						}
					}
					for _, e := range reported(p.event) {
						f.nudge(e)
					}
					synctest.Wait()
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				cancel()
				<-done
				if len(read) != len(test.want)+1 || at != test.at {
					t.Errorf("read %q at %s, want %q at %s", read[1:], at, test.want, test.at)
				}
				for i, want := range test.want {
					if i+1 < len(read) && read[i+1] != want {
						t.Errorf("read %q, want %q", read[1:], test.want)
					}
				}
			})
		})
	}
}

// A file that begins to be written just as a check is due is not read half written,
// whichever of the two the follower sees first.
func TestWrittenAsACheckIsDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		read := 0
		f := &follower{
			events: make(chan struct{}, 1), settle: DefaultSettle, poll: time.Hour, log: slog.New(slog.DiscardHandler),
			fingerprint: func() [32]byte { return [32]byte{} },
			changed:     func(Occasion) { read++ },
		}
		quiet := time.NewTimer(time.Hour)
		f.nudge(fsnotify.Event{Name: "a.yaml", Op: fsnotify.Create})
		f.schedule(quiet)
		<-quiet.C // after debounce
		begun := time.Now()
		f.nudge(fsnotify.Event{Name: "b.yaml", Op: fsnotify.Write})
		f.check(quiet)
		if read != 0 {
			t.Fatal("read while b.yaml was being written")
		}
		<-quiet.C
		f.check(quiet)
		if took := time.Since(begun); read != 1 || took != DefaultSettle {
			t.Errorf("read %d times, after %s, want once, after %s", read, took, DefaultSettle)
		}
		for range 100 { // without end, but read in the end
			f.nudge(fsnotify.Event{Name: "b.yaml", Op: fsnotify.Write})
			if f.schedule(quiet); read == 2 {
				break
			}
			time.Sleep(time.Second)
			f.nudge(fsnotify.Event{Name: "b.yaml", Op: fsnotify.Write})
			f.check(quiet)
		}
		if read != 2 {
			t.Errorf("read %d times, want again after %s", read, mostPostponed)
		}
	})
}
