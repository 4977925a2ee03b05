package setup_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/app"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/counts/storing"
	"github.com/headgate/headgate/internal/operate/setup"
	"github.com/headgate/headgate/internal/replay/offline"
	"github.com/headgate/headgate/internal/testkit/redistest"
)

// everyAnswer returns all combinations of fronts, stores and limits.
func everyAnswer() (all []setup.Answers) {
	for _, front := range setup.Fronts() {
		for _, store := range []string{"memory", "redis://127.0.0.1:6379"} {
			for chosen := 1; chosen < 1<<len(setup.Limits()); chosen++ {
				a := setup.Answers{Front: front.Name, Store: store, Upstream: "http://127.0.0.1:9000"}
				for i, limit := range setup.Limits() {
					if chosen&(1<<i) != 0 {
						a.Limits = append(a.Limits, limit.Name)
					}
				}
				all = append(all, a)
			}
		}
	}
	return all
}

// written writes the files for a to a new folder.
func written(t *testing.T, a setup.Answers) (folder string) {
	t.Helper()
	folder = filepath.Join(t.TempDir(), "new")
	if err := a.Check(); err != nil {
		t.Fatal(err)
	}
	if err := setup.Write(folder, a.Files(), setup.Keep); err != nil {
		t.Fatal(err)
	}
	return folder
}

func none(string) (string, bool) { return "", false }

// Whatever is answered, the configuration loads, the rules pass check, and the rule tests
// pass, one for each limit.
func TestEveryCombinationIsValid(t *testing.T) {
	t.Parallel()
	count := 0
	for _, a := range everyAnswer() {
		count++
		name := fmt.Sprint(a)
		folder := written(t, a)
		c, err := config.Load(config.Sources{File: filepath.Join(folder, "headgate.yaml"), Doors: app.Sections(), Environment: none})
		if err != nil || len(c.Warnings) > 0 {
			t.Errorf("%s: %v, %v", name, err, c)
			continue
		}
		report := offline.Check(c.RuleOptions, c.Rules...)
		if !report.OK || report.Rules != len(a.Limits) || report.Tests != len(a.Limits) {
			t.Errorf("%s: %+v", name, report)
		}
		for _, d := range report.Diagnoses {
			t.Errorf("%s: %+v", name, d)
		}
		tests, err := offline.RuleTests{Paths: []string{folder}, Reading: c.RuleOptions}.Run(t.Context())
		if err != nil || !tests.OK || tests.Passed != len(a.Limits) {
			t.Errorf("%s: %+v, %v", name, tests, err)
		}
	}
	if count != 6*2*7 {
		t.Errorf("%d combinations", count)
	}
}

// What is written serves: the sixth login from an address is refused.
func TestEveryFrontServes(t *testing.T) {
	t.Parallel()
	upstream := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer upstream.Close()
	redis := redistest.Standalone(t)
	for db, front := range setup.Fronts() { // each has its own counts
		for _, store := range []string{"memory", fmt.Sprintf("redis://%s/%d", redis.Addr, db)} {
			a := setup.Answers{Front: front.Name, Store: store, Limits: []string{"logins", "addresses"}, Upstream: upstream.URL}
			serves(t, a)
		}
	}
}

// serves starts the server that a describes and sends logins to its door.
func serves(t *testing.T, a setup.Answers) {
	t.Helper()
	own := map[string]string{"listen.admin": "127.0.0.1:0", "listen.api": "127.0.0.1:0"}
	switch a.Front {
	case "none":
		own["proxy.listen"], own["listen.api"] = "127.0.0.1:0", "off"
	case "envoy":
		own["listen.grpc"] = "127.0.0.1:0" // the API serves the same as JSON
	}
	c, err := config.Load(config.Sources{File: filepath.Join(written(t, a), "headgate.yaml"), Doors: app.Sections(), Environment: none, Flags: own})
	if err != nil {
		t.Fatal(err)
	}
	server, err := app.New(app.Options{Config: c, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Stop(t.Context()) }()
	var got []int
	for n := range 6 {
		got = append(got, login(t, server, a.Front, n))
	}
	if want := "[200 200 200 200 200 429]"; fmt.Sprint(got) != want {
		t.Errorf("%v: %v, want %s", a, got, want)
	}
}

// login sends the n-th login as a front does, and returns the status. Those that Envoy sends
// come from several addresses of one network.
func login(t *testing.T, server *app.App, front string, n int) int {
	t.Helper()
	url, body := "http://"+server.Addr("api")+"/v1/auth?domain=site", ""
	header := http.Header{"X-Forwarded-Method": {"POST"}, "X-Forwarded-Uri": {"/login?next=%2F"}, "X-Forwarded-For": {"198.51.100.7"}}
	switch front {
	case "none":
		url, header = "http://"+server.Addr("proxy")+"/login?next=%2F", nil
	case "nginx":
		header = http.Header{"X-Original-Method": {"POST"}, "X-Original-Uri": {"/login?next=%2F"}, "X-Forwarded-For": {"198.51.100.7"}}
	case "envoy": // the entries of envoy.yaml
		url = "http://" + server.Addr("api") + "/json"
		address := fmt.Sprintf("2001:db8::%d", n)
		body = `{"domain":"site","descriptors":[{"entries":[{"key":"remote_address","value":"` + address + `"},{"key":"method","value":"POST"},{"key":"path","value":"/login?next=%2F"}]}]}`
	case "go": // its program has no server; this is the server with the same rules
		url, body = "http://"+server.Addr("api")+"/v1/check", `{"domain":"site","attributes":{"method":"POST","path":"/login","client_ip":"198.51.100.7"}}`
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if header != nil {
		r.Header = header
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	return answer.StatusCode
}

// The configurations of proxies are those of examples/, which other tests run.
func TestSnippetsAreTheExamples(t *testing.T) {
	t.Parallel()
	for front, names := range map[string][]string{"nginx": {"nginx.conf"}, "traefik": {"traefik.yml", "dynamic.yml"}, "caddy": {"Caddyfile"}} {
		a := setup.Answers{Front: front, Store: "memory", Limits: []string{"logins"}}
		texts := map[string]string{}
		for _, f := range a.Files() {
			texts[f.Name] = f.Text
		}
		for _, name := range names {
			want, err := os.ReadFile(filepath.Join("../../../examples", front+"-forward-auth", name))
			if err != nil {
				t.Fatal(err)
			}
			comment, rest, _ := strings.Cut(texts[name], "127.0.0.1:9000.\n")
			if rest != string(want) || !strings.HasPrefix(comment, "# Fails closed:") {
				t.Errorf("%s is not the example: copy it to internal/operate/setup/front", name)
			}
		}
	}
}

// The program compiles with either store.
func TestProgramCompiles(t *testing.T) {
	t.Parallel()
	for _, store := range []string{"memory", "redis://127.0.0.1:6379"} {
		folder := written(t, setup.Answers{Front: "go", Store: store, Limits: []string{"logins"}})
		name := filepath.Join(folder, "main.go")
		if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(folder, "program"), name).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", store, err, out)
		}
		if out, err := exec.CommandContext(t.Context(), "gofmt", "-l", name).CombinedOutput(); err != nil || len(bytes.TrimSpace(out)) > 0 {
			t.Errorf("%s: gofmt: %v %s", store, err, out)
		}
	}
}

// Nothing is overwritten unless asked for, and then nothing is left half done.
func TestKeepsFiles(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	a := setup.Answers{Front: "nginx", Store: "memory", Limits: []string{"logins"}}
	last := filepath.Join(folder, "nginx.conf")
	if err := os.WriteFile(last, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := setup.Write(folder, a.Files(), setup.Keep); !errors.Is(err, setup.ErrExists) || !strings.Contains(err.Error(), last) {
		t.Errorf("%v", err)
	}
	if files, _ := os.ReadDir(folder); len(files) != 1 {
		t.Errorf("%d files", len(files))
	}
	if err := setup.Write(folder, a.Files(), setup.Replace); err != nil {
		t.Error(err)
	}
	other := t.TempDir()
	if err := os.Mkdir(filepath.Join(other, "nginx.conf"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := setup.Write(other, a.Files(), setup.Replace); err == nil || !strings.Contains(err.Error(), "is a folder") {
		t.Errorf("%v", err)
	}
	if files, _ := os.ReadDir(other); len(files) != 1 {
		t.Errorf("%d files", len(files))
	}
	if text, _ := os.ReadFile(last); !strings.HasPrefix(string(text), "# Fails closed") {
		t.Errorf("%s", text)
	}
}

func TestWrongAnswers(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*setup.Answers){
		`--front: "apache" is not one of nginx`:       func(a *setup.Answers) { a.Front = "apache" },
		`--limit: "login" is unknown`:                 func(a *setup.Answers) { a.Limits = []string{"login"} },
		`--limit: "logins" is unknown or a duplicate`: func(a *setup.Answers) { a.Limits = []string{"logins", "logins"} },
		`--limit: there is nothing to limit`:          func(a *setup.Answers) { a.Limits = nil },
		`--store: it is neither memory nor`:           func(a *setup.Answers) { a.Store = "redis:6379" },
		`--store: the URL has a user or a password`:   func(a *setup.Answers) { a.Store = "redis://:sesame@h" },
		`--store: redis: path "/x"`:                   func(a *setup.Answers) { a.Store = "redis://h/x" },
		`--store: redis: unknown URL parameter "foo"`: func(a *setup.Answers) { a.Store = "redis://h?foo=1" },
		`--store: redis: the port of "h"`:             func(a *setup.Answers) { a.Store = "redis://h:99999" },
		`--store: it is neither`:                      func(a *setup.Answers) { a.Store = "redis://" },
		`--store: the URL has a user or a`:            func(a *setup.Answers) { a.Store = "redis+sentinel://h/m?sentinel_password=sesame" },
		`--upstream: "x" does not start with http`:    func(a *setup.Answers) { a.Upstream = "x" },
		`--upstream: the URL must not have a user`:    func(a *setup.Answers) { a.Upstream = "http://u:sesame@h" },
		`--upstream: the URL must not have`:           func(a *setup.Answers) { a.Upstream = "http://h/?q" },
		`--upstream: the port of`:                     func(a *setup.Answers) { a.Upstream = "http://h:99999" },
		`--upstream: 127.0.0.1:8000 is the address`:   func(a *setup.Answers) { a.Upstream = "http://127.0.0.1:8000" },
	} {
		a := setup.Answers{Front: "none", Store: "memory", Limits: []string{"logins"}, Upstream: "http://h"}
		if change(&a); a.Check() == nil || !strings.HasPrefix(a.Check().Error(), want) || strings.Contains(a.Check().Error(), "sesame") {
			t.Errorf("%v, want %s", a.Check(), want)
		}
	}
}

// What the server accepts is accepted: other arrangements of Redis, and other services.
func TestOtherAnswers(t *testing.T) {
	t.Parallel()
	for _, a := range []setup.Answers{
		{Front: "go", Store: "redis+cluster://a:1,b:2", Upstream: "not needed"},
		{Front: "nginx", Store: "valkeys+sentinel://a,b,c/mymaster/2"},
		{Front: "none", Store: "memory", Upstream: "h2c://127.0.0.1:9000"},
		{Front: "none", Store: "redis://h?timeout=50ms", Upstream: "unix:/run/site.sock"},
	} {
		a.Limits = []string{"logins"}
		if err := a.Check(); err != nil {
			t.Errorf("%+v: %v", a, err)
			continue
		}
		file := filepath.Join(written(t, a), "headgate.yaml")
		c, err := config.Load(config.Sources{File: file, Doors: app.Sections(), Environment: none})
		if err != nil {
			t.Errorf("%+v: %v", a, err)
		} else if _, err := storing.RedisOptions(&c.Store.Redis); a.Store != "memory" && err != nil {
			t.Errorf("%+v: %v", a, err)
		}
	}
}

// The command works in a shell, also for folders with spaces and quotes.
func TestNextInAShell(t *testing.T) {
	t.Parallel()
	for folder, want := range map[string]string{
		"limits":      "headgate serve --config limits/headgate.yaml",
		".":           "headgate serve --config headgate.yaml",
		"my rules":    "headgate serve --config 'my rules/headgate.yaml'",
		"ann's $HOME": `headgate serve --config 'ann'\''s $HOME/headgate.yaml'`,
	} {
		a := setup.Answers{Front: "none"}
		if got, _ := a.Next(filepath.FromSlash(folder)); got != filepath.FromSlash(want) {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
