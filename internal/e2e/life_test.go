package e2e

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/app"
	"github.com/headgate/headgate/internal/base/diagnostic"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/door/proxy"
	"github.com/headgate/headgate/internal/door/serving"
	"github.com/headgate/headgate/internal/replay/offline"
	"github.com/headgate/headgate/internal/rules/rulefile"
	"github.com/headgate/headgate/internal/testkit/redistest"
)

const (
	tenRules = "domain: api\nlimits:\n  - {name: login, match: {path: /login}, key: [client_ip], rate: 10/minute, algorithm: sliding_window}\n"
	badRules = "domain: api\nlimits:\n  - {name: login, mach: {path: /login}, rate: 10/minute}\n"
)

// left returns the remaining requests of /login.
func (f *fixture) left(t *testing.T) string {
	t.Helper()
	res, _ := f.get(t, f.proxyURL("/login"))
	return res.Header.Get("X-RateLimit-Remaining") + "/" + res.Header.Get("X-RateLimit-Limit")
}

func TestReloadSwapsRulesAndKeepsCounts(t *testing.T) {
	f := run(t, loginRules, hello)
	if got := f.left(t); got != "4/5" {
		t.Fatal(got)
	}
	writeFile(t, f.config.Rules[0], tenRules)
	if err := f.Reload(); err != nil {
		t.Fatal(err)
	}
	if got := f.left(t); got != "8/10" {
		t.Errorf("after the reload %s, want 8/10: two have been used", got)
	}
}

func TestBadRulesLeaveTheRunningOnesUntouched(t *testing.T) {
	f := run(t, loginRules, hello)
	f.left(t)
	writeFile(t, f.config.Rules[0], badRules)
	f.clock.advance(time.Second)
	err := f.Reload()
	if _, ok := errors.AsType[diagnostic.Problems](err); !ok {
		t.Fatalf("err %v, want diagnostic.Problems", err)
	}
	if got := f.left(t); got != "3/5" {
		t.Errorf("after the bad reload %s, want 3/5", got)
	}
	res, body := f.get(t, f.apiURL("/readyz?verbose"))
	if res.StatusCode != http.StatusOK || !strings.Contains(body, `"last_failed_reload":{"at":"2026-11-21T11:00:13Z"`) || !strings.Contains(body, `mach`) {
		t.Errorf("%d %s", res.StatusCode, body)
	}
	if n := strings.Count(f.journal.text.String(), "rules not reloaded"); n != 1 {
		t.Errorf("logged %d times, want once", n)
	}
	writeFile(t, f.config.Rules[0], tenRules)
	if err := f.Reload(); err != nil {
		t.Fatal(err)
	}
	if _, body := f.get(t, f.apiURL("/readyz?verbose")); strings.Contains(body, "last_failed_reload") {
		t.Errorf("the failure outlives the next good reload: %s", body)
	}
}

func TestReloadOnFileChange(t *testing.T) {
	f := run(t, loginRules, hello)
	file := f.config.Rules[0]
	writeFile(t, file, tenRules)
	f.journal.await(t, "rules reloaded")
	if got := f.left(t); got != "9/10" {
		t.Errorf("after writing %s, want 9/10", got)
	}
	writeFile(t, file, badRules)
	f.journal.await(t, "rules not reloaded")
	if got := f.left(t); got != "8/10" {
		t.Errorf("after a bad file %s, want 8/10", got)
	}
	// Editors save like this: a new file is renamed over the old one.
	writeFile(t, file+"~", loginRules)
	if err := os.Rename(file+"~", file); err != nil {
		t.Fatal(err)
	}
	f.journal.await(t, "rules reloaded")
	if got := f.left(t); got != "2/5" {
		t.Errorf("after renaming %s, want 2/5", got)
	}
}

// Kubernetes swaps a ConfigMap by renaming a symlink to a folder:
// rules.yaml -> ..data/rules.yaml, ..data -> ..2026_1, then -> ..2026_2.
func TestReloadOnConfigMapSwap(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	swap := func(version, text string) {
		t.Helper()
		if err := os.Mkdir(filepath.Join(folder, version), 0o700); err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(folder, version, "rules.yaml"), text)
		if err := os.Symlink(version, filepath.Join(folder, "..data_tmp")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(folder, "..data_tmp"), filepath.Join(folder, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	swap("..2026_1", loginRules)
	if err := os.Symlink("..data/rules.yaml", filepath.Join(folder, "rules.yaml")); err != nil {
		t.Fatal(err)
	}
	f := run(t, loginRules, hello, func(c *config.Config) { c.Rules = []string{folder} })
	if got := f.left(t); got != "4/5" {
		t.Fatal(got)
	}
	swap("..2026_2", tenRules)
	f.journal.await(t, "rules reloaded")
	if got := f.left(t); got != "8/10" {
		t.Errorf("after the swap %s, want 8/10", got)
	}
	swap("..2026_3", badRules)
	f.journal.await(t, "rules not reloaded")
	swap("..2026_4", loginRules)
	f.journal.await(t, "rules reloaded")
	if got := f.left(t); got != "2/5" {
		t.Errorf("after the third swap %s, want 2/5", got)
	}
}

// snapshot keeps counts in a file. Tests in which one process follows another on it are not
// parallel: a program that another test starts has the file's lock too, for a moment.
func snapshot(name string) set {
	return func(c *config.Config) { c.Store.Memory.Snapshot = name }
}

func TestRestartHandsOutNoFreshBudgets(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state")
	f := newFixture(t, loginRules, hello, snapshot(file))
	for _, want := range []string{"4/5", "2/5", "0/5"} {
		f.start(t)
		if got := f.left(t); got != want {
			t.Errorf("%s left, want %s", got, want)
		}
		f.left(t)
		if err := f.Stop(context.Background()); err != nil {
			t.Fatal(err)
		}
		f.client.CloseIdleConnections()
		f.renew(t)
	}
	f.start(t)
	if res, _ := f.get(t, f.proxyURL("/login")); res.StatusCode != http.StatusTooManyRequests {
		t.Errorf("after the restarts %d, want 429", res.StatusCode)
	}
}

func TestDamagedSnapshotIsSetAside(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state")
	writeFile(t, file, "this is no snapshot")
	f := run(t, loginRules, hello, snapshot(file))
	if got := f.left(t); got != "4/5" {
		t.Errorf("%s left, want 4/5", got)
	}
	if err := f.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	kept, err := os.ReadFile(file + ".damaged")
	if err != nil || string(kept) != "this is no snapshot" {
		t.Errorf("set aside: %q, %v", kept, err)
	}
	if log := f.journal.text.String(); !strings.Contains(log, "damaged snapshot, counts start at zero") {
		t.Errorf("the log does not say so:\n%s", log)
	}
	if info, err := os.Stat(file); err != nil || info.Size() == 0 {
		t.Errorf("no new snapshot: %v", err)
	}
}

func TestSnapshotThatCannotBeReadStopsTheStart(t *testing.T) {
	f := newFixture(t, loginRules, hello, snapshot(t.TempDir())) // a folder
	err := f.Start(context.Background())
	if err == nil {
		_ = f.Stop(context.Background())
		t.Fatal("it started with fresh budgets")
	}
	if !strings.Contains(err.Error(), "counts not restored") {
		t.Error(err)
	}
}

func TestStopFinishesWhatIsUnderWay(t *testing.T) {
	inside, finish := make(chan struct{}), make(chan struct{})
	f := run(t, loginRules, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(inside)
		<-finish
		_, _ = io.WriteString(w, "finished")
	}))
	answer := make(chan string, 1)
	go func() {
		res, err := f.client.Get(f.proxyURL("/login"))
		if err != nil {
			answer <- err.Error()
			return
		}
		body, err := io.ReadAll(res.Body)
		if err = errors.Join(err, res.Body.Close()); err != nil {
			t.Error(err)
		}
		answer <- string(body)
	}()
	<-inside
	stopped := make(chan error, 1)
	go func() { stopped <- f.Stop(context.Background()) }()
	f.journal.await(t, "draining")
	close(finish)
	if got := <-answer; got != "finished" {
		t.Errorf("got %q", got)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

func TestStopCutsOffWhatDoesNotEnd(t *testing.T) {
	inside, finish := make(chan struct{}), make(chan struct{})
	defer close(finish)
	f := run(t, loginRules, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(inside)
		<-finish
	}), func(c *config.Config) { c.ShutdownTimeout = 10 * time.Millisecond })
	failed := make(chan struct{})
	go func() {
		defer close(failed)
		if res, err := f.client.Get(f.proxyURL("/login")); err == nil {
			_ = res.Body.Close()
			if res.StatusCode == http.StatusOK {
				t.Error("an answer that never was")
			}
		}
	}()
	<-inside
	if err := f.Stop(context.Background()); err == nil || !strings.Contains(err.Error(), "cut off") {
		t.Errorf("err %v, want one about requests cut off", err)
	}
	<-failed
}

func TestReadyzSaysNoWhileDraining(t *testing.T) {
	f := run(t, loginRules, hello, func(c *config.Config) { c.ShutdownDelay = time.Hour })
	if res, _ := f.get(t, f.apiURL("/readyz")); res.StatusCode != http.StatusOK {
		t.Fatalf("before: %d", res.StatusCode)
	}
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan error, 1)
	go func() { stopped <- f.Stop(ctx) }()
	f.journal.await(t, "draining")
	if res, body := f.get(t, f.apiURL("/readyz")); res.StatusCode != http.StatusServiceUnavailable || body != "draining\n" {
		t.Errorf("while draining: %d %q", res.StatusCode, body)
	}
	if res, _ := f.get(t, f.proxyURL("/login")); res.StatusCode != http.StatusOK {
		t.Errorf("requests during the delay get %d", res.StatusCode)
	}
	f.client.CloseIdleConnections()
	cancel()
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

func TestAddressInUse(t *testing.T) {
	first := run(t, loginRules, hello)
	second := newFixture(t, loginRules, hello, func(c *config.Config) { c.Door("api").Address = first.Addr(doorAPI) })
	err := second.Start(context.Background())
	var listen *serving.ListenError
	if !errors.As(err, &listen) || listen.Door != doorAPI || listen.Address != first.Addr(doorAPI) {
		t.Fatalf("err %v, want a ListenError that names the door and address", err)
	}
	d := offline.Diagnose(err)
	if len(d) != 1 || !strings.Contains(d[0].Hint, "another process is using this address") {
		t.Errorf("diagnosis %+v", d)
	}
}

// Two doors with the same address are not mistaken for another process.
func TestAddressOfTwoDoors(t *testing.T) {
	f := newFixture(t, loginRules, hello)
	address := redistest.FreeAddress(t)
	for _, row := range []struct{ grpc, proxy, want string }{
		{address, "127.0.0.1:0", "listen.grpc: " + address + " is taken by listen.api"},
		{config.Off, address, "proxy.listen: " + address + " is taken by listen.api"},
	} {
		f.config.Door("api").Address, f.config.Door("grpc").Address, f.config.Door("proxy").Address = address, row.grpc, row.proxy
		_, err := app.New(app.Options{Config: f.config, Logger: f.journal.logger()})
		if err == nil || err.Error() != row.want {
			t.Errorf("%+v: %v", row, err)
		}
	}
}

// An error about a setting shows its position in the file.
func TestSettingsAreShownInTheirFile(t *testing.T) {
	folder := t.TempDir()
	writeFile(t, filepath.Join(folder, "rules.yaml"), loginRules)
	for text, want := range map[string]string{
		"store: http://x\n":                  `2:8: store: redis: unknown URL scheme "http"`,
		"store: redis://127.0.0.1:x\n":       `2:8: store: redis: the port of "127.0.0.1" is not a number`,
		"store: {redis: {tls_ca: nofile}}\n": `2:9: store.redis: `,
		"jwt: {keys: nofile}\n":              `2:13: jwt.keys: keys in `,
		"proxy: {upstream: 'http://127.0.0.1:9', listen: '127.0.0.1:0', domain: apii}\n":                           `2:72: proxy.domain: no rule has the domain "apii"`,
		"proxy: {upstream: 'http://127.0.0.1:9', listen: '127.0.0.1:0', adaptive: {headroom: {critical: 20%}}}\n":  `2:85: proxy.adaptive.headroom: set, but the domain of the proxy has no "priorities"`,
		"proxy: {upstream: 'http://127.0.0.1:9', listen: '127.0.0.1:0', adaptive: {headroom: {critical: 20}}}\n":   `2:85: proxy.adaptive.headroom: "20" is not a part of the limit`,
		"proxy: {upstream: 'http://127.0.0.1:9', listen: '127.0.0.1:0', adaptive: {headroom: {a: 60%, b: 50%}}}\n": `2:85: proxy.adaptive.headroom: 100% or more is kept`,
	} {
		file := filepath.Join(folder, "headgate.yaml")
		writeFile(t, file, "rules: [rules.yaml]\n"+text+"listen: {api: '127.0.0.1:0', grpc: off, resp: off, admin: off}\n")
		c, err := config.Load(config.Sources{Doors: app.Sections(), File: file, Environment: func(string) (string, bool) { return "", false }})
		if err == nil { // some are found when the file is read, others when a door or the store opens
			err = startAlone(t, c)
		}
		if d := offline.Diagnose(err); len(d) != 1 || !strings.Contains(d[0].Position+": "+d[0].Message, "headgate.yaml:"+want) {
			t.Errorf("%s: %+v", text, d)
		}
	}
}

func TestNewRefusesBadRules(t *testing.T) {
	f := newFixture(t, loginRules, hello)
	writeFile(t, f.config.Rules[0], badRules)
	_, err := app.New(app.Options{Config: f.config, Logger: f.journal.logger()})
	d := offline.Diagnose(err)
	if len(d) != 1 || d[0].Line != 3 || d[0].Excerpt == "" || !strings.Contains(d[0].Message, `did you mean "match"?`) {
		t.Errorf("diagnosis %+v", d)
	}
}

func TestAnAppWithoutDoorsIsAMistake(t *testing.T) {
	f := newFixture(t, loginRules, nil)
	f.config.Door("api").Address = config.Off
	options := app.Options{Config: f.config, Logger: f.journal.logger()}
	if _, err := app.New(options); err == nil || !strings.Contains(err.Error(), "every listener is off") {
		t.Errorf("err %v", err)
	}
	if _, err := app.New(app.Quickstart(options)); err != nil {
		t.Errorf("the quickstart has its proxy: %v", err)
	}
}

func TestProxyNeedsToKnowItsDomain(t *testing.T) {
	two := loginRules + "---\ndomain: other\nlimits:\n  - {name: x, rate: 1/second}\n"
	f := newFixture(t, loginRules, hello)
	writeFile(t, f.config.Rules[0], two)
	rows := []struct{ domain, want string }{
		{"", `the rules have several domains: ["api" "other"]`},
		{"apii", `no rule has the domain "apii"`},
		{"other", ""},
	}
	for _, row := range rows {
		proxyOf(f.config).Domain = row.domain
		_, err := app.New(app.Options{Config: f.config, Logger: f.journal.logger()})
		if (err == nil) != (row.want == "") || err != nil && !strings.Contains(err.Error(), row.want) {
			t.Errorf("domain %q: %v, want %q", row.domain, err, row.want)
		}
	}
}

// Rules without the classes of the proxy's headroom are not taken into use.
func TestHeadroomOfTheProxyNeedsItsClasses(t *testing.T) {
	f := newFixture(t, loginRules, hello)
	writeFile(t, f.config.Rules[0], "priorities: {classes: [critical, default]}\n"+loginRules)
	for class, want := range map[string]string{
		"critcal": `the domain of the proxy has no class "critcal", did you mean "critical"?`, "default": `no class is below "default"`, "critical": "",
	} {
		proxyOf(f.config).Adaptive = proxy.Adaptive{Mode: "on", Headroom: []proxy.Kept{{Class: class, Part: 200_000}}}
		_, err := app.New(app.Options{Config: f.config, Logger: f.journal.logger()})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("class %q: %v, want %q", class, err, want)
		}
	}
}

func TestRunObeysSignals(t *testing.T) {
	f := newFixture(t, loginRules, hello)
	stop, reload := make(chan os.Signal), make(chan os.Signal)
	done := make(chan error, 1)
	started := make(chan struct{})
	go func() {
		done <- f.Run(context.Background(), app.Signals{Stop: stop, Reload: reload}, func() { close(started) })
	}()
	<-started
	reload <- syscall.SIGHUP
	f.journal.await(t, "rules reloaded")
	stop <- syscall.SIGTERM
	if err := <-done; err != nil {
		t.Errorf("Run: %v", err)
	}
	f.journal.await(t, "stopped")
}

func TestSecondSignalStopsAtOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t, loginRules, hello, func(c *config.Config) { c.ShutdownDelay = time.Hour })
	stop, reload := make(chan os.Signal), make(chan os.Signal, 1)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx, app.Signals{Stop: stop, Reload: reload}, nil) }()
	stop <- os.Interrupt
	f.journal.await(t, "draining")
	reload <- syscall.SIGHUP // a reload does not count as a second signal
	var err error
	for again := true; again; { // until it counts as a second signal
		select {
		case stop <- os.Interrupt:
		case err = <-done:
			again = false
		}
	}
	if !errors.Is(err, app.ErrForced) {
		t.Errorf("Run: %v, want ErrForced", err)
	}
	cancel() // a process would have exited
	f.journal.await(t, "stopped")
}

func TestQuickstartNeedsNothing(t *testing.T) {
	f := newFixture(t, loginRules, nil)
	a, err := app.New(app.Quickstart(app.Options{Config: f.config, Logger: f.journal.logger(), Clock: f.clock.Now}))
	if err != nil {
		t.Fatal(err)
	}
	f.App = a
	f.start(t)
	var status []int
	for range 6 {
		res, _ := f.get(t, f.proxyURL("/login"))
		status = append(status, res.StatusCode)
	}
	for i, got := range status {
		if want := map[bool]int{true: 200, false: 429}[i < 5]; got != want {
			t.Errorf("request %d: %d, want %d", i+1, got, want)
		}
	}
}

func TestQuickstartRulesAreTheExample(t *testing.T) {
	example, err := os.ReadFile("../../examples/quickstart/rules.yaml")
	if err != nil || string(example) != app.QuickstartRules() {
		t.Errorf("examples/quickstart/rules.yaml is not internal/app/quickstart.yaml: %v", err)
	}
}

func TestCheck(t *testing.T) {
	good := offline.Check(rulefile.Options{}, "../../examples/quickstart/rules.yaml")
	if !good.OK || good.Rules != 3 || good.Files != 1 || len(good.Domains) != 1 || len(good.Diagnoses) != 0 {
		t.Errorf("%+v", good)
	}
	if missing := offline.Check(rulefile.Options{}, "nowhere.yaml"); missing.OK || len(missing.Diagnoses) != 1 {
		t.Errorf("%+v", missing)
	}
}
