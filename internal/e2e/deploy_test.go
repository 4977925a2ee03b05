package e2e

import (
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/observe/warning"
	"github.com/headgate/headgate/internal/testkit/redistest"
)

var (
	// metricName finds the names of our metrics in a file.
	metricName = regexp.MustCompile(`headgate_[a-z_]+`)
	typeLine   = regexp.MustCompile(`(?m)^# TYPE (\S+)`)
)

// scraped returns the names of all metrics of a process.
func scraped(t *testing.T, f *fixture) map[string]bool {
	t.Helper()
	f.login(t, "198.51.100.7")
	return scrapedAt(t, f)
}

// scrapedAt is scraped without a request before.
func scrapedAt(t *testing.T, f *fixture) map[string]bool {
	t.Helper()
	_, body := f.get(t, f.adminURL("/metrics"))
	names := map[string]bool{}
	for _, m := range typeLine.FindAllStringSubmatch(body, -1) {
		names[m[1]] = true
	}
	return names
}

// warned returns the names of all metrics of a process that warns.
func warned(t *testing.T, admin func(*config.Config)) map[string]bool {
	t.Helper()
	f := run(t, "domain: api\nlimits: [{name: login, rate: 1/minute}]\n", nil, admin, func(c *config.Config) {
		c.EarlyWarning = config.EarlyWarning{On: true, Policy: warning.Policy{Settings: warning.Default(), Webhook: &url.URL{Scheme: "http", Host: "127.0.0.1:1"}}}
	})
	f.await(t, func() bool {
		f.login(t, "198.51.100.7")
		return f.metric(t, `headgate_warnings_active{domain="api",kind="rule_near_limit",rule="login"}`) == "1"
	})
	return scraped(t, f)
}

// The alerts and the dashboard of the chart only use metrics that exist.
func TestDeployNamesRealMetrics(t *testing.T) {
	t.Parallel()
	const text = "domain: api\nlimits:\n  - {name: login, key: [client_ip], rate: 1/minute, on_limit: {action: queue}}\n"
	admin := func(c *config.Config) { c.Door("admin").Address, c.Door("resp").Address = "127.0.0.1:0", "127.0.0.1:0" }
	_, candidate := trying(t, text)
	queue := func(c *config.Config) {
		c.Queue = config.Queue{Path: filepath.Join(t.TempDir(), "queue.db"), StatusPath: config.DefaultQueueStatus}
	}
	queueing := run(t, text, http.NotFoundHandler(), admin, candidate, queue)
	for range 2 {
		queueing.get(t, queueing.proxyURL("/"))
	}
	queueing.mustKeys(t, "ban", `{"rule":"login","key":"198.51.100.7","for":"1h"}`)
	names := scraped(t, queueing)
	shared := scraped(t, run(t, "domain: api\nlimits:\n  - {name: login, key: [client_ip], rate: 1/minute}\n", nil, admin, func(c *config.Config) {
		c.Store.Kind, c.Store.Redis = config.InRedis, config.Redis{URL: "redis://127.0.0.1:1"}
	}))
	blocks := scraped(t, run(t, "domain: api\nlimits: [{name: login, rate: 1000/second, sync: blocks}]\n", nil, admin, onRedis(redistest.Standalone(t).Addr)))
	eu, us := redistest.Standalone(t), redistest.Standalone(t)
	regions := run(t, regionRules, nil, region("eu", eu.Addr, "us", us.Addr), admin)
	regions.await(t, func() bool { return regions.metric(t, `headgate_region_reachable{region="us"}`) == "1" })
	for _, more := range []map[string]bool{shared, blocks, scrapedAt(t, regions), warned(t, admin)} {
		maps.Copy(names, more)
	}
	files := 0
	for _, file := range []string{"helm/headgate/files/alerts.yaml", "prometheus/alerts_test.yaml", "helm/headgate/files/headgate.json"} {
		text, err := os.ReadFile("../../dist/" + file)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range metricName.FindAllString(string(text), -1) {
			files++
			if !names[name] && !names[strings.TrimSuffix(name, "_bucket")] {
				t.Errorf("%s: there is no %s", file, name)
			}
		}
	}
	if files < 30 {
		t.Errorf("only %d names found", files)
	}
}

// TestAlerts runs the tests of the alerts with Prometheus' own tool, from PATH or as
// installed by scripts/ensure-promtool.sh.
func TestAlerts(t *testing.T) {
	t.Parallel()
	tool, err := exec.LookPath("promtool")
	if err != nil {
		cache, none := os.UserCacheDir()
		tool = filepath.Join(cache, "headgate", "promtool")
		if _, err := os.Stat(tool); none != nil || err != nil {
			t.Skip("no promtool in PATH, and scripts/ensure-promtool.sh has fetched none")
		}
	}
	for _, args := range [][]string{{"check", "rules", "../helm/headgate/files/alerts.yaml"}, {"test", "rules", "alerts_test.yaml"}} {
		command := exec.CommandContext(t.Context(), tool, args...)
		command.Dir = "../../dist/prometheus"
		if out, err := command.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}
