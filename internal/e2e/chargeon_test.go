package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/testkit/redistest"
)

const failedRules = `
domain: api
limits:
  - {name: failed, match: {path: /login}, key: ["header:X-User"], rate: 5/day, algorithm: fixed_window, on_store_error: deny, charge_on: {status: [401, 403]}}
  - {name: observed, match: {path: /login}, key: ["header:X-User"], rate: 1000/day, algorithm: fixed_window, mode: shadow, charge_on: {status: 401}}
`

// logins is a service with one password, which counts the guesses that reach it.
type logins struct {
	wrong, right atomic.Int64
	entered      chan struct{} // receives a request for /login?slow
	leave        chan struct{} // lets it continue
}

func newLogins() *logins { return &logins{entered: make(chan struct{}), leave: make(chan struct{})} }

func (l *logins) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	password, _ := io.ReadAll(r.Body)
	if r.URL.RawQuery == "slow" {
		l.entered <- struct{}{}
		<-l.leave
	}
	if string(password) == "right" {
		l.right.Add(1)
		return
	}
	l.wrong.Add(1)
	w.WriteHeader(http.StatusUnauthorized)
}

// logIn logs a user in through the proxy and returns the status.
func (f *fixture) logIn(t *testing.T, user, password, query string) int {
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.proxyURL("/login"+query), strings.NewReader(password))
	if err != nil {
		t.Error(err)
		return 0
	}
	r.Header.Set("X-User", user)
	res, err := f.client.Do(r)
	if err != nil {
		return 0
	}
	read(t, res)
	return res.StatusCode
}

// loginCheck is the answer to a check of a login over the API.
type loginCheck struct {
	Allowed   bool
	Remaining int64
	Report    string
	Reason    string
}

func (f *fixture) checkLogin(t *testing.T, user string, peek bool) (c loginCheck) {
	t.Helper()
	text := f.postJSON(t, "/v1/check", fmt.Sprintf(`{"domain":"api","peek":%t,"attributes":{"path":"/login","header:X-User":%q}}`, peek, user))
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return c
}

func (f *fixture) postJSON(t *testing.T, path, body string) string {
	t.Helper()
	res, err := f.client.Post(f.apiURL(path), "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(read(t, res))
}

// leftFor returns how many failed logins a user has left.
func (f *fixture) leftFor(t *testing.T, user string) int64 {
	t.Helper()
	return f.checkLogin(t, user, true).Remaining
}

// report reports an answer and compares what is said.
func (f *fixture) report(t *testing.T, token, answer, want string) {
	t.Helper()
	if got := f.postJSON(t, "/v1/report", fmt.Sprintf(`{"report":%q,%s}`, token, answer)); got != want {
		t.Errorf("%s: %s, want %s", answer, got, want)
	}
}

// parallel logs a user in n times at once, at all nodes in turn, and counts the
// statuses.
func parallel(t *testing.T, nodes []*fixture, user, password string, n int) map[int]int {
	t.Helper()
	var wg sync.WaitGroup
	var mu sync.Mutex
	count := map[int]int{}
	for i := range n {
		wg.Go(func() {
			status := nodes[i%len(nodes)].logIn(t, user, password, "")
			mu.Lock()
			count[status]++
			mu.Unlock()
		})
	}
	wg.Wait()
	return count
}

// Of 100 parallel guesses exactly five reach the service. Right logins are given back,
// so nobody is locked out by them.
func TestParallelGuesses(t *testing.T) {
	t.Parallel()
	for name, size := range map[string]int{"memory": 1, "redis": 1, "two nodes on one redis": 2} {
		t.Run(name, func(t *testing.T) {
			service := newLogins()
			var change []set
			if name != "memory" {
				server := redistest.Standalone(t)
				change = append(change, onRedis(server.Addr), func(c *config.Config) { c.Store.Redis.Timeout = 20 * time.Second })
			}
			var nodes []*fixture
			for range size {
				f := run(t, failedRules, service, change...)
				f.await(t, func() bool { return f.checkLogin(t, "nobody", true).Allowed })
				nodes = append(nodes, f)
			}
			if got := parallel(t, nodes, "ann", "wrong", 100); got[401] != 5 || got[429] != 95 || service.wrong.Load() != 5 {
				t.Errorf("100 guesses: %v, %d of them reached the service", got, service.wrong.Load())
			}
			if got := parallel(t, nodes, "bob", "right", 100); got[200]+got[429] != 100 || got[200] < 5 || int64(got[200]) != service.right.Load() {
				t.Errorf("100 right logins: %v", got)
			}
			// Its deny cache may repeat a refusal from when the other node held the places.
			nodes[0].await(t, func() bool { return nodes[0].logIn(t, "bob", "right", "") == http.StatusOK })
			for i := range 20 {
				if got := nodes[0].logIn(t, "bob", "right", ""); got != http.StatusOK {
					t.Errorf("then, right login %d: %d", i, got)
				}
			}
			service.wrong.Store(0)
			var mixed sync.WaitGroup
			for _, password := range []string{"right", "wrong", "right"} {
				mixed.Go(func() { parallel(t, nodes, "cid", password, 30) })
			}
			mixed.Wait()
			if got, reached := nodes[0].leftFor(t, "cid"), service.wrong.Load(); got != 5-reached || reached > 5 {
				t.Errorf("%d wrong guesses among right ones reached the service, and %d are left", reached, got)
			}
			if a, b := nodes[0].leftFor(t, "ann"), nodes[0].leftFor(t, "bob"); a != 0 || b != 5 {
				t.Errorf("%d left for who guessed, want 0; %d for who was right, want 5", a, b)
			}
		})
	}
}

// A restart or a reload between the request and its answer neither loses a count nor
// gives one away. After a stop that cut requests off, earlier reports are unknown.
func TestAnswersAcrossRestarts(t *testing.T) {
	service := newLogins()
	f := newFixture(t, failedRules, service, snapshot(t.TempDir()+"/counts"))
	f.start(t)
	reports := map[string]string{}
	for _, user := range []string{"right", "wrong", "silent", "reloaded", "gone", "late"} {
		reports[user] = f.checkLogin(t, user, false).Report
	}
	if err := f.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.renew(t)
	f.start(t)
	f.report(t, reports["right"], `"status":200`, `{"reported":true,"counted":false}`)
	f.report(t, reports["wrong"], `"status":401`, `{"reported":true,"counted":true}`)
	done := make(chan int)
	slow := func(user string) {
		go func() { done <- f.logIn(t, user, "right", "?slow") }()
		<-service.entered
	}
	slow("in flight")
	writeFile(t, f.config.Rules[0], "domain: api\nlimits:\n  - {name: other, rate: 5/day}\n")
	if err := f.Reload(); err != nil {
		t.Fatal(err)
	}
	service.leave <- struct{}{}
	if status := <-done; status != http.StatusOK {
		t.Errorf("across a reload: %d", status)
	}
	f.report(t, reports["gone"], `"status":200`, `{"reported":true,"rules_gone":["failed","observed"],"counted":false}`)
	writeFile(t, f.config.Rules[0], failedRules)
	if err := f.Reload(); err != nil {
		t.Fatal(err)
	}
	f.report(t, reports["reloaded"], `"status":200`, `{"reported":true,"counted":false}`)
	slow("cut")
	f.config.ShutdownTimeout = 50 * time.Millisecond
	stop, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := f.Stop(stop); err == nil {
		t.Error("no request was cut off")
	}
	service.leave <- struct{}{}
	<-done
	f.renew(t)
	f.start(t)
	if got := f.postJSON(t, "/v1/report", fmt.Sprintf(`{"report":%q,"status":200}`, reports["late"])); !strings.Contains(got, "is unknown") {
		t.Errorf("a report from before a stop that was not clean: %s", got)
	}
	for user, want := range map[string]int64{"right": 5, "wrong": 4, "silent": 4, "reloaded": 5, "gone": 4, "in flight": 5, "cut": 4, "late": 4} {
		if got := f.leftFor(t, user); got != want {
			t.Errorf("%s: %d left, want %d", user, got, want)
		}
	}
}

// After a fail-over to a replica that has what was taken, reports settle it as before.
func TestAnswersAcrossAFailover(t *testing.T) {
	t.Parallel()
	redis := redistest.Sentinel(t)
	f := run(t, failedRules, newLogins(), func(c *config.Config) {
		c.Store.Kind = config.InRedis
		c.Store.Redis = config.Redis{URL: config.Secret("redis+sentinel://" + strings.Join(redis.Addrs(), ",") + "/" + redistest.MasterName), Timeout: 20 * time.Second}
	})
	f.await(t, func() bool { return f.checkLogin(t, "nobody", true).Reason == "ok" })
	right, wrong := f.checkLogin(t, "right", false), f.checkLogin(t, "wrong", false)
	redis.Primary.Do("WAIT", "2", "10000")
	redis.KillPrimary()
	redis.AwaitFailover()
	f.await(t, func() bool { return f.checkLogin(t, "nobody", true).Reason == "ok" })
	f.report(t, right.Report, `"status":200`, `{"reported":true,"counted":false}`)
	f.report(t, wrong.Report, `"status":401`, `{"reported":true,"counted":true}`)
	if a, b := f.leftFor(t, "right"), f.leftFor(t, "wrong"); a != 5 || b != 4 {
		t.Errorf("%d and %d left, want 5 and 4", a, b)
	}
}

// A Redis that has lost what was taken, as after a fail-over to an empty replica, gives back
// once what each request took, at the proxy and by a report, and never more.
func TestAnswersOfARedisThatLostItsData(t *testing.T) {
	server := redistest.Standalone(t)
	service := newLogins()
	f := run(t, failedRules, service, onRedis(server.Addr), func(c *config.Config) { c.Store.Redis.Timeout = 20 * time.Second })
	f.await(t, func() bool { return f.checkLogin(t, "nobody", true).Reason == "ok" })
	report := f.checkLogin(t, "ann", false).Report
	done := make(chan int)
	go func() { done <- f.logIn(t, "bob", "right", "?slow") }()
	<-service.entered
	server.Do("FLUSHALL")
	for _, user := range []string{"ann", "bob"} {
		for range 2 {
			f.checkLogin(t, user, false)
		}
	}
	service.leave <- struct{}{}
	if status := <-done; status != http.StatusOK {
		t.Errorf("%d", status)
	}
	f.report(t, report, `"status":200`, `{"reported":true,"counted":false}`)
	f.report(t, report, `"status":200`, `{"reported":false,"reason":"settled"}`)
	if a, b := f.leftFor(t, "ann"), f.leftFor(t, "bob"); a != 4 || b != 4 {
		t.Errorf("%d and %d left, want 4 of each: 2 taken since, and 1 given back", a, b)
	}
}

// A client that hangs up does not change what its request counts.
func TestHangingUpBeforeTheAnswer(t *testing.T) {
	service := newLogins()
	f := run(t, failedRules, service)
	for _, password := range []string{"right", "wrong"} {
		ctx, leave := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, f.proxyURL("/login?slow"), strings.NewReader(password))
			if err != nil {
				t.Error(err)
				return
			}
			r.Header.Set("X-User", password)
			if res, err := f.client.Do(r); err == nil {
				read(t, res)
			}
		}()
		<-service.entered
		leave()
		<-done
		service.leave <- struct{}{}
	}
	f.await(t, func() bool { return f.leftFor(t, "right") == 5 })
	if got := f.leftFor(t, "wrong"); got != 4 {
		t.Errorf("%d left after a wrong guess, want 4", got)
	}
}

// Behind nginx, with the lines of the page, the service reports its answers.
func TestNginxWithReports(t *testing.T) {
	page := readFile(t, "../../docs/more/charge-on.md")
	_, after, _ := strings.Cut(page, "```nginx\n")
	lines, _, ok := strings.Cut(after, "```")
	if !ok {
		t.Fatal("the page has no lines for nginx")
	}
	p := &forwardProxy{}
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status := http.StatusOK
		if r.URL.RawQuery == "wrong" {
			status = http.StatusUnauthorized
		}
		if token := r.Header.Get("X-Headgate-Report"); token != "" && token != "forged" {
			p.report(t, token, fmt.Sprintf(`"status":%d`, status), fmt.Sprintf(`{"reported":true,"counted":%t}`, status == http.StatusUnauthorized))
		} else {
			t.Errorf("reported by %q", token)
		}
		w.WriteHeader(status)
	}))
	t.Cleanup(backend.Close)
	p.fixture = run(t, strings.ReplaceAll(failedRules, "domain: api", "domain: site"), nil, func(c *config.Config) {
		c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
	})
	p.startNginx(t, backend, func(text, folder string) string {
		const before = "            proxy_pass http://" // the backend
		at := strings.Index(text, before)
		return nginxHome(text[:at]+lines+text[at:], folder)
	})
	var got []int
	for _, query := range []string{"?right", "?right", "?wrong", "?right", "?wrong", "?wrong", "?wrong", "?right", "?wrong", "?right", "?wrong"} {
		res, _ := p.get(t, "http://"+p.address+"/login"+query, "X-User", "ann", "X-Headgate-Report", "forged")
		if res.Header.Get("X-Headgate-Report") != "" {
			t.Error("the client got the token")
		}
		got = append(got, res.StatusCode)
	}
	if want := "[200 200 401 200 401 401 401 200 401 429 429]"; fmt.Sprint(got) != want {
		t.Errorf("%v, want %s", got, want)
	}
}
