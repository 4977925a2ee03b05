package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/door/admin"
	"github.com/headgate/headgate/internal/observe/metrics"
)

// TestTheTruth: under a mixed load through every door, all reported numbers match
// those that the callers counted.
func TestTheTruth(t *testing.T) {
	t.Parallel()
	f := newTruth(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	live := f.watchLive(ctx)
	calls := truthCalls()
	counted := f.load(calls)
	if t.Failed() {
		return
	}
	for _, outcome := range []string{"allowed", "refused", "delayed", "shadow_banned", "shadow_refused"} {
		if counted.totals[outcome] == 0 {
			t.Errorf("nothing was %s", outcome)
		}
	}
	f.checkMetrics(counted)
	f.checkTop(counted)
	ticks := <-live(counted.sent)
	totals := metrics.Totals{}
	for i := range ticks {
		totals.Add(&ticks[i].Totals)
	}
	checkTotals(t, "/v1/live", counted, totals)
	checkRules(t, "/v1/live", counted, metrics.AddTicks(ticks, "", ""))
	f.checkTopCommand(counted)
}

// checkMetrics compares with /metrics.
func (f *truth) checkMetrics(c *tally) {
	f.t.Helper()
	var text string
	if err := f.get("/metrics", &text); err != nil {
		f.t.Fatal(err)
	}
	got, want := map[string]uint64{}, map[string]uint64{}
	for _, m := range regexp.MustCompile(`(?m)^headgate_(decisions|near_limit|requests)_total\{(.*)\} (\d+)$`).FindAllStringSubmatch(text, -1) {
		labels := map[string]string{}
		for _, l := range regexp.MustCompile(`(\w+)="([^"]*)"`).FindAllStringSubmatch(m[2], -1) {
			labels[l[1]] = l[2]
		}
		n, _ := strconv.ParseUint(m[3], 10, 64)
		if n == 0 {
			continue
		}
		switch m[1] {
		case "requests":
			got[labels["door"]+" "+labels["outcome"]] = n
		case "decisions":
			got[labels["domain"]+" "+labels["rule"]+" "+labels["outcome"]] = n
		default:
			got[labels["domain"]+" "+labels["rule"]+" near"] = n
		}
	}
	maps.Copy(want, c.requests)
	for rule, outcomes := range c.rules {
		for outcome, n := range outcomes {
			want[rule+" "+outcome] = n
		}
	}
	if !maps.Equal(got, want) {
		f.t.Errorf("/metrics says %v, want %v", got, want)
	}
}

// checkTop compares with /v1/top.
func (f *truth) checkTop(c *tally) {
	f.t.Helper()
	for by, rules := range c.keys {
		var list admin.TopRules
		if err := f.get("/v1/top?n=64&by="+by, &list); err != nil {
			f.t.Fatal(err)
		}
		checkKeys(f.t, "/v1/top?by="+by, rules, list.Rules)
	}
}

func checkKeys(t *testing.T, where string, want map[string]map[string]int64, list []admin.TopRule) {
	t.Helper()
	if len(list) != len(want) {
		t.Errorf("%s reports %d rules, want %d", where, len(list), len(want))
	}
	for _, r := range list {
		got := map[string]int64{}
		for _, k := range r.Keys {
			got[*k.Parts[len(k.Parts)-1]] = k.Count
		}
		if rule := r.Domain + " " + r.Rule; r.Sampled == 0 && !maps.Equal(got, want[rule]) {
			t.Errorf("%s says of %s %v, want %v", where, rule, got, want[rule])
		}
	}
}

// watchLive reads /v1/live. The function it returns waits until a number of
// requests has been reported.
func (f *truth) watchLive(ctx context.Context) func(sent uint64) <-chan []metrics.Tick {
	f.t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+f.admin+"/v1/live", http.NoBody)
	if err != nil {
		f.t.Fatal(err)
	}
	res, err := (&http.Client{}).Do(r) //nolint:bodyclose // closed by the reader below
	if err != nil {
		f.t.Fatal(err)
	}
	ticks := make(chan metrics.Tick, 300)
	go func() {
		defer close(ticks)
		defer func() { _ = res.Body.Close() }()
		_ = readEvents(res.Body, func(event string, data []byte) error {
			var t metrics.Tick
			if event != "tick" {
				return nil
			}
			if err := json.Unmarshal(data, &t); err != nil {
				return err
			}
			ticks <- t
			return nil
		})
	}()
	return func(sent uint64) <-chan []metrics.Tick {
		out := make(chan []metrics.Tick, 1)
		go func() {
			var list []metrics.Tick
			var sum uint64
			for t := range ticks {
				list = append(list, t)
				if sum += t.Totals.Requests; sum >= sent {
					break
				}
			}
			out <- list
		}()
		return out
	}
}

func checkTotals(t *testing.T, where string, c *tally, got metrics.Totals) {
	t.Helper()
	want := metrics.Totals{Requests: c.sent, Outcomes: outcomesOf(c.totals)}
	if got != want {
		t.Errorf("%s says %+v, want %+v", where, got, want)
	}
}

func outcomesOf(n map[string]uint64) metrics.Outcomes {
	return metrics.Outcomes{
		Allowed: n["allowed"], Refused: n["refused"], Delayed: n["delayed"],
		ShadowBanned: n["shadow_banned"], ShadowRefused: n["shadow_refused"],
	}
}

func checkRules(t *testing.T, where string, c *tally, list []metrics.RuleTick) {
	t.Helper()
	if len(list) != len(c.rules) {
		t.Errorf("%s reports %d rules, want %d", where, len(list), len(c.rules))
	}
	for _, got := range list {
		counts := c.rules[got.Domain+" "+got.Rule]
		want := metrics.RuleTick{Domain: got.Domain, Rule: got.Rule, Outcomes: outcomesOf(counts), Near: counts["near"]}
		if got != want {
			t.Errorf("%s says %+v, want %+v", where, got, want)
		}
	}
}

// checkTopCommand compares with headgate top, as JSON and for people.
func (f *truth) checkTopCommand(c *tally) {
	f.t.Helper()
	top := func(args ...string) string {
		args = append([]string{"top", "--once", "--interval", "5m", "-n", "64", "--address", f.admin}, args...)
		out, err := exec.CommandContext(f.t.Context(), filepath.Join(f.dir, "headgate"), args...).Output()
		if err != nil {
			f.t.Fatal(err)
		}
		return string(out)
	}
	var v sight
	if err := json.Unmarshal([]byte(top("--json")), &v); err != nil {
		f.t.Fatal(err)
	}
	checkTotals(f.t, "top --json", c, v.Totals)
	checkRules(f.t, "top --json", c, v.Rules)
	checkKeys(f.t, "top --json", c.keys["refused"], v.Top)

	plain := top("--by", "active")
	span := regexp.MustCompile(`last (\d+)s`).FindStringSubmatch(plain)
	if span == nil {
		f.t.Fatalf("top says %s", plain)
	}
	seconds, _ := strconv.Atoi(span[1])
	per := func(n uint64) string { return perSecond(n, seconds) }
	lines := map[string]bool{}
	for line := range strings.Lines(plain) {
		lines[strings.Join(strings.Fields(line), " ")] = true
	}
	for rule, n := range c.rules {
		want := strings.Join([]string{
			rule, per(n["allowed"]), per(n["refused"]), per(n["delayed"]), per(0), per(n["shadow_banned"]), per(n["shadow_refused"]), per(n["near"]),
		}, " ")
		if !lines[want] {
			f.t.Errorf("top does not say %q in\n%s", want, plain)
		}
		var all int64
		for _, k := range c.keys["active"][rule] {
			all += k
		}
		for key, k := range c.keys["active"][rule] {
			if want := fmt.Sprintf("%d %.1f%% %s", k, 100*float64(k)/float64(all), key); !lines[want] {
				f.t.Errorf("top does not say %q of %s in\n%s", want, rule, plain)
			}
		}
	}
}
