package redis_test

import (
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/rulefile"
	"github.com/headgate/headgate/internal/testkit/redistest"
	"github.com/headgate/headgate/store/redis"
)

// A request under a rule with charge_on runs two scripts if its answer does not count
// (decide, give back), and one if it does. A reservation or a report runs one to settle.
func TestScriptsOfAChargeOnRule(t *testing.T) {
	server := redistest.Standalone(t)
	rs, diagnostics := rulefile.Parse(rulefile.Source{Name: "test.yaml", Data: []byte(`
domain: api
limits:
  - {name: failed, key: [user], rate: 1000/minute, charge_on: {status: [401, 403]}}
`)})
	if rs == nil {
		t.Fatal(diagnostics)
	}
	e := engine.New(open(t, redis.Options{Addresses: []string{server.Addr}, Timeout: patient}), rs)
	const requests = 20
	now := time.Now().UnixMicro()
	request := func(after func(*engine.Verdict) error) {
		t.Helper()
		v, err := e.Again(t.Context(), "api", []engine.Claim{{Rule: "failed", Key: "ann", Cost: 1}}, now)
		if err != nil || !v.Allowed {
			t.Fatalf("%+v, %v", v.Decision, err)
		}
		if err := after(&v); err != nil {
			t.Fatal(err)
		}
		v.Release()
	}
	answer := func(status int) func(*engine.Verdict) error {
		return func(v *engine.Verdict) error {
			return e.SettleAnswer(t.Context(), v, now+1, rules.Answer{Status: status})
		}
	}
	request(answer(200)) // loads the scripts
	for _, row := range []struct {
		name  string
		after func(*engine.Verdict) error
		want  int
	}{
		{"counted", answer(401), requests},
		{"given back", answer(200), 2 * requests},
		{"given up", func(v *engine.Verdict) error { return e.Refund(t.Context(), v, now+1) }, 2 * requests},
		{"reported", func(v *engine.Verdict) error {
			token, err := e.ReportToken(t.Context(), v, now)
			if err != nil {
				return err
			}
			_, err = e.Report(t.Context(), token, rules.Answer{Status: 200}, now+1)
			return err
		}, 2 * requests},
	} {
		request(row.after) // its secret and scripts
		server.Do("CONFIG", "RESETSTAT")
		for range requests {
			request(row.after)
		}
		calls := 0
		for _, n := range regexp.MustCompile(`cmdstat_eval(?:sha)?:calls=(\d+)`).FindAllStringSubmatch(server.Do("INFO", "commandstats"), -1) {
			more, _ := strconv.Atoi(n[1])
			calls += more
		}
		if calls != row.want {
			t.Errorf("%s: %d scripts for %d requests, want %d", row.name, calls, requests, row.want)
		}
	}
}
