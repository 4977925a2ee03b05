package e2e

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/app"
	"github.com/headgate/headgate/internal/config"
)

// twoRules are two rules for the same requests, with the same limit.
func twoRules(limit int) string {
	return fmt.Sprintf(`
domain: api
limits:
  - {name: one, match: {path: /login}, rate: %d/hour, algorithm: fixed_window}
  - {name: two, match: {path: /login}, key: [client_ip], rate: %d/hour, algorithm: fixed_window}
`, limit, limit)
}

// A thousand reloads, some with bad rules, under traffic: no request fails or sees a
// mix of old and new rules, every request is counted exactly once, and nothing leaks.
func TestThousandReloadsUnderLoad(t *testing.T) {
	const reloads, callers = 1000, 4
	f := newFixture(t, twoRules(1_000_000), hello, withAdmin)
	var err error
	f.App, err = app.New(app.Options{
		Config: f.config, Logger: slog.New(slog.DiscardHandler), Clock: f.clock.Now, PollInterval: 50 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	f.start(t)
	f.client.Transport = &http.Transport{MaxIdleConnsPerHost: callers}

	var served atomic.Int64
	var wg sync.WaitGroup
	done := make(chan struct{})
	for range callers {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				res, body := f.get(t, f.proxyURL("/login"))
				served.Add(1)
				policy := res.Header.Get("RateLimit-Policy")
				whole := policy == `"one";q=1000000;w=3600, "two";q=1000000;w=3600` || policy == `"one";q=2000000;w=3600, "two";q=2000000;w=3600`
				if res.StatusCode != http.StatusOK || body != "hello\n" || !whole {
					t.Errorf("%d %q under %s", res.StatusCode, body, policy)
					return
				}
			}
		})
	}
	f.await(t, func() bool { return served.Load() > 50 })

	var before resources
	bad := 0
	for i := range reloads {
		if i == reloads/5 { // pools and tables have reached their size
			before = measure()
		}
		text := twoRules(1_000_000 * (1 + i%2))
		if i%7 == 3 {
			text = badRules
			bad++
		}
		replaceFile(t, f.config.Rules[0], text)
		if err := f.Reload(); (err != nil) != (text == badRules) {
			t.Fatalf("reload %d: %v", i, err)
		}
	}
	after := measure()
	close(done)
	wg.Wait()

	succeeded, failed := f.reloads(t)
	if succeeded < reloads-bad || failed < bad || f.metric(t, "headgate_reload_last_successful") != "1" {
		t.Errorf("%d good and %d bad, want at least %d and %d, and the last good", succeeded, failed, reloads-bad, bad)
	}
	res, _ := f.get(t, f.proxyURL("/login"))
	limit, left := number(t, res, "X-RateLimit-Limit"), number(t, res, "X-RateLimit-Remaining")
	if used := limit - left; used != served.Load()+1 {
		t.Errorf("%d are counted, %d were served", used, served.Load()+1)
	}
	if d := after.goroutines - before.goroutines; d > 8 {
		t.Errorf("%d more goroutines after 800 reloads: %+v, %+v", d, before, after)
	}
	if d := after.files - before.files; d > 8 {
		t.Errorf("%d more open files after 800 reloads", d)
	}
	if d := after.heap - before.heap; d > 2<<20 {
		t.Errorf("%d kB more memory after 800 reloads", d>>10)
	}
	t.Logf("%d requests, %d reloads and %d by itself; before %+v, after %+v", served.Load(), reloads, succeeded+failed-reloads-1, before, after)
}

func number(t *testing.T, r reply, header string) (n int64) {
	t.Helper()
	if _, err := fmt.Sscan(r.Header.Get(header), &n); err != nil {
		t.Fatalf("%s: %q", header, r.Header.Get(header))
	}
	return n
}

// resources are the resources in which a leak would show.
type resources struct {
	goroutines, files int
	heap              int64
}

func measure() resources {
	runtime.GC()
	runtime.GC() // runs finalizers and empties pools
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		open = nil // not Linux
	}
	return resources{runtime.NumGoroutine(), len(open), int64(m.HeapAlloc)}
}

// replaceFile replaces a file like an editor: a new one is renamed over it.
func replaceFile(t *testing.T, name, text string) {
	t.Helper()
	writeFile(t, name+"~", text)
	if err := os.Rename(name+"~", name); err != nil {
		t.Fatal(err)
	}
}

// A request uses the rules that were active when it arrived, however long its answer
// takes.
func TestRequestsUnderWayKeepTheirRules(t *testing.T) {
	inside, finish := make(chan struct{}), make(chan struct{})
	f := run(t, loginRules, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(inside)
		<-finish
	}))
	answers := make(chan reply, 1)
	go func() {
		res, _ := f.get(t, f.proxyURL("/login"))
		answers <- res
	}()
	<-inside
	writeFile(t, f.config.Rules[0], "domain: api\nlimits:\n  - {name: login, rate: 0/minute}\n")
	if err := f.Reload(); err != nil {
		t.Fatal(err)
	}
	if res, _ := f.get(t, f.proxyURL("/login")); res.StatusCode != http.StatusTooManyRequests {
		t.Errorf("a new request: %d, want that of the new rules", res.StatusCode)
	}
	close(finish)
	if res := <-answers; res.StatusCode != http.StatusOK || res.Header.Get("X-RateLimit-Limit") != "5" {
		t.Errorf("the old request: %d with limit %s, want 5", res.StatusCode, res.Header.Get("X-RateLimit-Limit"))
	}
}

// polling returns an App that compares files at intervals, as for a network file system
// that reports no changes.
func polling(t *testing.T, only bool, paths ...string) *fixture {
	t.Helper()
	return following(t, only, func(c *config.Config) { c.Rules = paths })
}

func following(t *testing.T, only bool, how set) *fixture {
	t.Helper()
	f := newFixture(t, loginRules, hello, func(c *config.Config) { proxyOf(c).Domain = "api" }, how)
	interval := time.Hour
	if only {
		interval = 5 * time.Millisecond
	}
	var err error
	f.App, err = app.New(app.Options{
		Config: f.config, Logger: f.journal.logger(), Clock: f.clock.Now, PollOnly: only, PollInterval: interval, Settle: 20 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	f.start(t)
	return f
}

func mkdir(t *testing.T, parts ...string) string {
	t.Helper()
	name := filepath.Join(parts...)
	if err := os.MkdirAll(name, 0o700); err != nil {
		t.Fatal(err)
	}
	return name
}

// Changes to folders of rules are noticed, with and without reports of the file system.
func TestFoldersOfRulesChange(t *testing.T) {
	t.Parallel()
	for _, only := range []bool{false, true} {
		t.Run(fmt.Sprintf("only polled %v", only), func(t *testing.T) {
			folder := mkdir(t, t.TempDir(), "rules")
			writeFile(t, filepath.Join(folder, "a.yaml"), loginRules)
			f := polling(t, only, folder)
			if got := f.left(t); got != "4/5" {
				t.Fatal(got)
			}
			const other = "domain: other\nlimits:\n  - {name: x, rate: 1/second}\n"

			// A folder is created, then a file in it.
			below := mkdir(t, folder, "team", "deep")
			writeFile(t, filepath.Join(below, "b.yaml"), other)
			f.journal.await(t, "rules reloaded")
			f.expectRules(t, 2)

			replaceFile(t, filepath.Join(below, "b.yaml"), badRules)
			f.journal.await(t, "rules not reloaded")
			f.expectRules(t, 2)

			// The bad file and its folder are deleted.
			if err := os.RemoveAll(filepath.Join(folder, "team")); err != nil {
				t.Fatal(err)
			}
			f.journal.await(t, "rules reloaded")
			f.expectRules(t, 1)

			// The last file is deleted, perhaps because a volume is not mounted.
			if err := os.RemoveAll(folder); err != nil {
				t.Fatal(err)
			}
			f.journal.await(t, "rules not reloaded")
			if got := f.left(t); got != "3/5" {
				t.Errorf("without files %s, want that the rules stay", got)
			}
			mkdir(t, folder)
			f.await(t, func() bool { return strings.Contains(f.journal.text.String(), "no rule files are left") })

			// It is created again, in a new folder with that name.
			writeFile(t, filepath.Join(folder, "a.yaml"), tenRules)
			f.journal.await(t, "rules reloaded")
			if got := f.left(t); got != "7/10" {
				t.Errorf("back again %s, want 7/10", got)
			}
			writeFile(t, filepath.Join(folder, "a.yaml"), loginRules)
			f.journal.await(t, "rules reloaded")
		})
	}
}

// reloads returns how often rules became active, the first ones too, and how often they
// did not.
func (f *fixture) reloads(t *testing.T) (succeeded, failed int) {
	t.Helper()
	for result, n := range map[string]*int{"success": &succeeded, "failure": &failed} {
		var err error
		if *n, err = strconv.Atoi(f.metric(t, `headgate_reloads_total{result="`+result+`"}`)); err != nil {
			t.Fatal(err)
		}
	}
	return succeeded, failed
}

// expectRules checks the number of active rules.
func (f *fixture) expectRules(t *testing.T, want int) {
	t.Helper()
	_, body := f.get(t, f.apiURL("/readyz?verbose"))
	if !strings.Contains(body, fmt.Sprintf(`"rules":%d,`, want)) {
		t.Errorf("%s, want %d rules", body, want)
	}
}

// As when envoyproxy/ratelimit is deployed: a symlink on the path to the rules is
// changed to another folder, and nothing else changes.
func TestSymlinkOnTheWayIsSwapped(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for version, text := range map[string]string{"v1": loginRules, "v2": tenRules} {
		writeFile(t, filepath.Join(mkdir(t, root, version, "ratelimit", "config"), "a.yaml"), text)
	}
	current := filepath.Join(root, "current")
	point := func(to string) {
		t.Helper()
		if err := os.Symlink(to, current+"~"); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(current+"~", current); err != nil {
			t.Fatal(err)
		}
	}
	point("v1")
	f := polling(t, false, filepath.Join(current, "ratelimit", "config"))
	for i, want := range []string{"9/10", "3/5", "7/10"} {
		point([]string{"v2", "v1", "v2"}[i])
		f.journal.await(t, "rules reloaded")
		if got := f.left(t); got != want {
			t.Errorf("swap %d: %s, want %s", i+1, got, want)
		}
	}
	// The new target of the link is watched too.
	writeFile(t, filepath.Join(root, "v2", "ratelimit", "config", "a.yaml"), badRules)
	f.journal.await(t, "rules not reloaded")
}

// Files next to the folder of rules are followed like those in it.
func TestSiblingsAreFollowed(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	folder := mkdir(t, root, "config")
	writeFile(t, filepath.Join(folder, "a.yaml"), loginRules)
	f := following(t, false, func(c *config.Config) { c.Rules, c.RuleOptions.Siblings = []string{folder}, true })
	f.expectRules(t, 1)
	writeFile(t, filepath.Join(root, "config.yaml"), "domain: other\nlimits:\n  - {name: x, rate: 1/second}\n")
	f.journal.await(t, "rules reloaded")
	f.expectRules(t, 2)
	writeFile(t, filepath.Join(mkdir(t, root, "config.d"), "b.yaml"), "domain: third\nlimits:\n  - {name: x, rate: 1/second}\n")
	f.journal.await(t, "rules reloaded")
	f.expectRules(t, 3)
	if err := os.Remove(filepath.Join(root, "config.yaml")); err != nil {
		t.Fatal(err)
	}
	f.journal.await(t, "rules reloaded")
	f.expectRules(t, 2)
}

// A single file is followed when it is deleted, and when it is a link into another
// folder.
func TestSingleFilesAreFollowed(t *testing.T) {
	t.Parallel()
	folder, elsewhere := t.TempDir(), t.TempDir()
	target, link := filepath.Join(elsewhere, "real.yaml"), filepath.Join(folder, "rules.yaml")
	writeFile(t, target, loginRules)
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	f := polling(t, false, link)
	replaceFile(t, target, tenRules)
	f.journal.await(t, "rules reloaded")
	if got := f.left(t); got != "9/10" {
		t.Errorf("the link's file replaced: %s", got)
	}
	if err := os.Remove(target); err != nil {
		t.Fatal(err)
	}
	f.journal.await(t, "rules not reloaded")
	if got := f.left(t); got != "8/10" {
		t.Errorf("deleted: %s, want that the rules stay", got)
	}
	writeFile(t, target, loginRules)
	f.journal.await(t, "rules reloaded")
	if err := f.Stop(context.Background()); err != nil {
		t.Error(err)
	}
}
