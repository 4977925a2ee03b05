package e2e

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/app"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/replay/accesslog"
	"github.com/headgate/headgate/internal/replay/simulate"
	"github.com/headgate/headgate/internal/request/client"
	"github.com/headgate/headgate/internal/rules/rulefile"
	"github.com/headgate/headgate/internal/testkit/redistest"
)

// replayRules refill many times during the test, so decisions depend on the time to the
// microsecond. Even slow clients exceed the limits.
const replayRules = `
domain: site
limits:
  - {name: steady, key: client_ip, rate: 8/second, burst: 5}
  - {name: window, match: {path: /window/**}, key: [client_ip, method], rate: 2/400ms, algorithm: sliding_window}
  - {name: log, match: {path: /log/*}, key: client_ip, rate: 1/200ms, algorithm: sliding_log}
  - {name: queue, match: {path: /window/deep/**}, key: client_ip, rate: 4/second, burst: 1, algorithm: leaky_bucket}
`

// A log of nginx under load replays to the same decisions: the same requests are
// refused, and allowed ones have the same amount remaining. The log has the time of
// each decision, and no two requests of a key overlap, so their order is known.
func TestLogOfNginxReplaysToTheSameDecisions(t *testing.T) {
	t.Parallel()
	const clients, each = 16, 60
	run := func(t *testing.T) (*fixture, *httptest.Server) {
		t.Helper()
		backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Headgate-Time", "1") // must not be mistaken for ours
			_, _ = io.WriteString(w, "hello\n")
		}))
		t.Cleanup(backend.Close)
		f := newFixture(t, replayRules, nil, trust("127.0.0.1/32"), func(c *config.Config) {
			c.DecisionTime, proxyOf(c).Upstream = true, parseURL(t, backend.URL)
		})
		var err error
		f.App, err = app.New(app.Options{Config: f.config, Logger: f.journal.logger(), Clock: time.Now, PollInterval: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		f.start(t)
		return f, backend
	}
	t.Run("before the proxy", func(t *testing.T) {
		f, _ := run(t)
		p := startLogging(t, f, `
        location / {
            proxy_pass http://`+f.Addr(doorProxy)+`;
            proxy_set_header X-Forwarded-For $remote_addr;
        }`, "$upstream_http_x_headgate_time", "$upstream_http_x_ratelimit_remaining")
		p.load(t, clients, each)
		p.replay(t, clients*each)
	})
	t.Run("with forward-auth", func(t *testing.T) {
		f, backend := run(t)
		p := startLogging(t, f, `
        location / {
            auth_request /_headgate;
            auth_request_set $headgate_time $upstream_http_x_headgate_time;
            auth_request_set $left $upstream_http_x_ratelimit_remaining;
            error_page 403 = @limited;
            proxy_pass `+backend.URL+`;
        }
        location = /_headgate {
            internal;
            proxy_pass http://`+f.Addr(doorAPI)+`/v1/auth?deny=403;
            proxy_pass_request_body off;
            proxy_set_header Content-Length    "";
            proxy_set_header X-Original-Method $request_method;
            proxy_set_header X-Original-URI    $request_uri;
            proxy_set_header X-Forwarded-For   $remote_addr;
        }
        location @limited { return 429; }`, "$headgate_time", "$left")
		p.load(t, clients, each)
		p.replay(t, clients*each)
	})
}

// loggingNginx is nginx in front of Headgate, with a log.
type loggingNginx struct {
	*fixture
	address, folder string
}

// startLogging starts nginx with these locations. In addition to the combined format it
// logs the time of the decision, the remaining amount, and the client.
func startLogging(t *testing.T, f *fixture, locations, at, left string) *loggingNginx {
	t.Helper()
	p := &loggingNginx{fixture: f, address: redistest.FreeAddress(t), folder: t.TempDir()}
	path := program(t, "nginx")
	text := `daemon off;
master_process off;
pid nginx.pid;
error_log stderr;
events { worker_connections 1024; }
http {
    log_format replay '$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent '
        '"$http_referer" "$http_user_agent" ` + at + ` "` + left + `" $request_id';
    access_log access.log replay;
    server {
        listen ` + p.address + `;
        add_header X-Request-Id $request_id always;` + locations + `
    }
}
`
	text = strings.Replace(nginxHome(text, p.folder), "    access_log off;\n", "", 1)
	text = strings.Replace(text, "access.log replay", p.folder+"/access.log replay", 1)
	writeFile(t, filepath.Join(p.folder, "nginx.conf"), text)
	background(t, path, "-p", p.folder, "-c", "nginx.conf", "-e", "stderr")
	c := clientAt(t, "127.0.2.1")
	p.await(t, func() bool {
		res, err := c.Get("http://" + p.address + "/first")
		if err == nil {
			_ = read(t, res)
		}
		return err == nil
	})
	return p
}

// load sends requests from concurrent clients, each one after another.
func (p *loggingNginx) load(t *testing.T, clients, each int) {
	t.Helper()
	var group sync.WaitGroup
	for i := range clients {
		c := clientAt(t, fmt.Sprintf("127.0.1.%d", i+1))
		group.Go(func() {
			rnd := rand.New(rand.NewPCG(8, uint64(i)))
			paths := []string{"/", "/window/a", "/log/b?x=1", "/window/deep/c"}
			for range each {
				r, err := http.NewRequestWithContext(t.Context(), []string{"GET", "POST"}[rnd.IntN(2)], "http://"+p.address+paths[rnd.IntN(len(paths))], http.NoBody)
				if err != nil {
					t.Error(err)
					return
				}
				res, err := c.Do(r)
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, res.Body)
				_ = res.Body.Close()
				if res.StatusCode != http.StatusOK && res.StatusCode != http.StatusTooManyRequests {
					t.Errorf("status %d", res.StatusCode)
				}
			}
		})
	}
	group.Wait()
}

// logged is the decision in a line of the log.
type logged struct{ status, left string }

// replay simulates the log and compares each decision with the live one.
func (p *loggingNginx) replay(t *testing.T, requests int) {
	t.Helper()
	name := filepath.Join(p.folder, "access.log")
	// nginx writes a line after its answer, when the request is done.
	p.await(t, func() bool { return strings.Count(readFile(t, name), "\n") >= requests+1 })
	live, refusals := map[string]logged{}, 0
	for line := range strings.Lines(readFile(t, name)) {
		_, rest, _ := strings.Cut(line, `HTTP/1.1" `)
		f := strings.Fields(line)
		live[f[len(f)-1]] = logged{rest[:3], strings.Trim(f[len(f)-2], `"`)}
		if rest[:3] == "429" {
			refusals++
		}
	}
	if refusals < requests/20 || refusals > requests*19/20 {
		t.Errorf("the premise: %d of %d were refused", refusals, requests)
	}
	// A new user reads the format from the configuration.
	format, err := accesslog.New(filepath.Join(p.folder, "nginx.conf"), nil)
	if err != nil {
		t.Fatal(err)
	}
	rs, problems := rulefile.Parse(rulefile.Source{Name: "rules.yaml", Data: []byte(replayRules)})
	who, err := client.New(client.Config{})
	if rs == nil || err != nil {
		t.Fatal(problems, err)
	}
	wrong := 0
	report, err := simulate.Run(t.Context(), simulate.Options{
		Side: simulate.Side{Rules: rs, Domain: "site"},
		Reading: simulate.Reading{
			Format: format, Clients: who, Reorder: 10 * time.Second,
			Logs: []simulate.Log{{Name: name, Open: func() (io.ReadCloser, error) { return os.Open(name) }}},
		},
		Decided: func(r simulate.Request) {
			id, _ := r.Field("request_id")
			got := logged{"200", strconv.FormatInt(r.Verdict.Decision.Remaining, 10)}
			if !r.Verdict.Allowed {
				got.status = "429"
			}
			if want := live[id]; got != want && wrong < 10 {
				wrong++
				t.Errorf("%s at %d: %+v, live it was %+v", id, r.At, got, want)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if report.Requests != int64(len(live)) || report.Skipped > 0 || report.Logs[0].Late > 0 {
		t.Errorf("%d of %d requests, %d skipped, %d late", report.Requests, len(live), report.Skipped, report.Logs[0].Late)
	}
	for _, r := range report.Rules {
		if r.Allowed == 0 {
			t.Errorf("the premise: the rule %s allowed none of %d", r.Name, r.Requests)
		}
	}
	t.Logf("%d requests, %d refused", report.Requests, report.Refused)
}
