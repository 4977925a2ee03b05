package e2e

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/door/admin"
	"github.com/headgate/headgate/internal/door/httpapi"
	"github.com/headgate/headgate/internal/testkit/redistest"
)

// blockRules have two limits in blocks, of which only one gets a series.
const blockRules = `domain: api
limits:
  - name: plan
    key: client_ip
    rate: 1000/second
    sync: blocks
    tiers:
      by: tier
      paid: {rate: 10000/second}
  - {name: daily, key: client_ip, rate: 100_000/day, algorithm: fixed_window, sync: blocks}
`

// The metrics of blocks say by rule what is held and drawn, and how far off the limits
// can be. Rules beyond metrics.max_rules share a series.
func TestMetricsOfBlocks(t *testing.T) {
	server := redistest.Standalone(t)
	f := run(t, blockRules, nil, onRedis(server.Addr), withAdmin, func(c *config.Config) { c.Metrics.MaxRules = 2 })
	number := func(name, labels string) float64 {
		n, err := strconv.ParseFloat(f.metric(t, "headgate_"+name+"{"+labels+"}"), 64)
		if err != nil {
			return -1
		}
		return n
	}
	const plan, other = `domain="api",rule="plan"`, `domain="api",rule="(other)"`
	if n := number("block_keys", plan); n != -1 {
		t.Errorf("%v keys before the first request", n)
	}
	if _, text := f.get(t, f.adminURL("/v1/blocks")); strings.Contains(text, `"now":null`) {
		t.Errorf("before the first request: %s", text)
	}
	hammer(t, []*fixture{f}, "/", 50)
	for _, labels := range []string{plan, other} {
		if n := number("block_admitted_total", labels); n < 100 {
			t.Errorf("%s: %v admitted of 400", labels, n)
		}
		if n := number("block_draws_total", strings.Replace(labels, ",", `,result="granted",`, 1)); n < 1 || n > 100 {
			t.Errorf("%s: %v draws", labels, n)
		}
		if held, under := number("block_held_tokens", labels), number("under_admission_bound_tokens", labels); held < 0 || under < 0 {
			t.Errorf("%s: %v held, %v kept", labels, held, under)
		}
	}
	if over, none := number("over_admission_bound_tokens", plan), number("over_admission_bound_tokens", other); over != 50 || none != 0 {
		t.Errorf("bounds of %v and %v, want 50 and 0", over, none)
	}
}

// What other servers have drawn of a key ends soon after an operator resets it.
func TestResetEndsBlocksElsewhere(t *testing.T) {
	t.Parallel()
	server := redistest.Standalone(t)
	const text = "domain: api\nlimits: [{name: daily, key: client_ip, rate: 1_000_000/day, algorithm: fixed_window, sync: {mode: blocks, max_age: 1m}}]\n"
	one := run(t, text, nil, onRedis(server.Addr), withAdmin)
	two := run(t, text, nil, onRedis(server.Addr), withAdmin)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				hammer(t, []*fixture{two}, "/", 5)
			}
		}
	}()
	two.await(t, func() bool { return blockMetric(t, two, "admitted_total") > 100 })
	if n := blockMetric(t, two, "expired_tokens_total"); n != 0 {
		t.Errorf("%v expired before the reset", n)
	}
	one.mustKeys(t, "reset", `{"rule":"daily","key":"198.51.100.7"}`)
	two.await(t, func() bool { return blockMetric(t, two, "expired_tokens_total") > 0 })
	close(stop)
	<-stopped
}

// A rule that is removed takes its metrics with it, and gives back what it holds.
func TestReloadDropsBlocks(t *testing.T) {
	server := redistest.Standalone(t)
	f := run(t, blockRules, nil, onRedis(server.Addr), withAdmin)
	hammer(t, []*fixture{f}, "/", 50)
	const daily, plan = `headgate_block_draws_total{domain="api",result="granted",rule="daily"}`, `headgate_block_draws_total{domain="api",result="granted",rule="plan"}`
	if f.metric(t, daily) == "none" {
		t.Fatal("no metrics")
	}
	writeFile(t, f.config.Rules[0], strings.Split(blockRules, "  - {name: daily")[0])
	if err := f.Reload(); err != nil {
		t.Fatal(err)
	}
	if of, other := f.metric(t, daily), f.metric(t, plan); of != "none" || other == "none" {
		t.Errorf("%s draws of a rule that was removed, %s of the other", of, other)
	}
}

// An explanation says what the limit can be off by, and what this server holds now.
func TestExplainBlocks(t *testing.T) {
	t.Parallel()
	server := redistest.Standalone(t)
	f := run(t, blockRules, nil, onRedis(server.Addr), withAdmin)
	const question = `{"domain":"api","attributes":{"client_ip":"198.51.100.7"}}`
	explain := func(path func(string) string) map[string]*httpapi.Blocks {
		res, err := f.client.Post(path("/v1/explain"), "application/json", strings.NewReader(question))
		if err != nil {
			t.Fatal(err)
		}
		var x httpapi.Explanation
		if body := read(t, res); res.StatusCode != http.StatusOK || json.Unmarshal([]byte(body), &x) != nil {
			t.Fatal(res.StatusCode, body)
		}
		found := make(map[string]*httpapi.Blocks)
		for _, r := range x.Parts[0].Rules {
			if r.Applies {
				found[r.Rule] = r.Blocks
			}
		}
		return found
	}
	for _, b := range explain(f.apiURL) {
		if b == nil || b.Now == nil || *b.Now != (httpapi.BlocksNow{}) {
			t.Fatalf("before the first request: %+v", b)
		}
	}
	hammer(t, []*fixture{f}, "/", 50)
	// The counters never go down: those of a caller who put tokens back while they were read
	// are in them until others are admitted. There were eight callers.
	all := func(b *httpapi.BlocksNow) bool {
		sum := b.Admitted + b.Direct
		return sum >= 400 && sum <= 400+8
	}
	for _, path := range []func(string) string{f.apiURL, f.adminURL} {
		x := explain(path)
		if b := x["plan"]; b.Over != 50 || b.AgeUS != 50_000 || !all(b.Now) || b.Now.Admitted == 0 {
			t.Errorf("%+v, %+v", b, b.Now)
		}
		if b := x["daily"]; b.Over != 0 || b.Now.Under < 0 || !all(b.Now) {
			t.Errorf("%+v, %+v", b, b.Now)
		}
	}
}

// GET /v1/blocks lists the rules in blocks, each tier with its own bound.
func TestBlocksForOperators(t *testing.T) {
	t.Parallel()
	type answer struct{ Rules []admin.RuleBlocks }
	server := redistest.Standalone(t)
	const exact = "  - {name: exact, key: client_ip, rate: 5/minute}\n"
	f := run(t, blockRules+exact, nil, onRedis(server.Addr), withAdmin)
	hammer(t, []*fixture{f}, "/", 50)
	var over []int64
	for _, b := range answerOf[answer](t, f, "/v1/blocks?domain=api").Rules {
		over = append(over, b.Over)
		if b.Now == nil || b.Now.Admitted+b.Now.Direct == 0 || b.Line < 3 || b.Bound == "" {
			t.Errorf("%+v, %+v", b, b.Now)
		}
	}
	if !slices.Equal(over, []int64{500, 50, 0}) {
		t.Errorf("bounds of %v, want 500 and 50 for the tiers of plan, and 0 for daily", over)
	}
	if res, body := f.get(t, f.adminURL("/v1/blocks?domain=apu")); res.StatusCode != http.StatusNotFound || !strings.Contains(body, "api") {
		t.Errorf("%d %s", res.StatusCode, body)
	}
	alone := run(t, blockRules, nil, withAdmin)
	for _, b := range answerOf[answer](t, alone, "/v1/blocks").Rules {
		if b.Now != nil {
			t.Errorf("without Redis: %+v", b.Now)
		}
	}
}

// blockMetric returns a metric of the rule daily.
func blockMetric(t *testing.T, f *fixture, name string) float64 {
	t.Helper()
	n, err := strconv.ParseFloat(f.metric(t, `headgate_block_`+name+`{domain="api",rule="daily"}`), 64)
	if err != nil {
		return -1
	}
	return n
}
