//go:build linux

package engine_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/store/memory"
)

// cpu returns how long this thread has run.
func cpu() time.Duration {
	const thread = 1 // RUSAGE_THREAD
	var u syscall.Rusage
	_ = syscall.Getrusage(thread, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// benchRows is the number of rows, benchKeys a prefix that makes a key as long as a UUID.
const (
	benchRows = 1_000_000
	benchKey  = "customer-%027d"
)

// benchRulesets returns the same rule without and with a table of a million rows.
func benchRulesets(b *testing.B) (plain, table *rules.Ruleset) {
	b.Helper()
	var csv strings.Builder
	csv.WriteString("key,rate,burst\n")
	for i := range benchRows {
		fmt.Fprintf(&csv, benchKey+",%d/minute,\n", i, 1_000_000+i%50)
	}
	const rule = "domain: api\nlimits:\n  - {name: a, key: [user], rate: %s}\n"
	start := time.Now()
	table = tabled(b, fmt.Sprintf(rule, "{table: customers.csv, default: 1000000/minute}"), csv.String())
	b.Logf("%d rows read in %v, %.1f bytes a row", benchRows, time.Since(start), float64(table.Tables()[0].Rows.Size())/benchRows)
	return tabled(b, fmt.Sprintf(rule, "1000000/minute"), ""), table
}

// one is a request whose user is set without allocating.
type one struct{ user string }

func (o *one) Attribute(a rules.Attribute) (string, bool) {
	if a.Name == "user" {
		return o.user, true
	}
	return "", false
}

func (o *one) ClientIP() netip.Addr { return netip.Addr{} }

// BenchmarkTable compares a decision by a rule with a table of a million rows and by the
// same rule without one. The two take turns, so that both see the same machine, and the
// time is that of the processor.
func BenchmarkTable(b *testing.B) {
	plain, table := benchRulesets(b)
	users := make([]string, benchRows)
	for i := range users {
		users[i] = fmt.Sprintf(benchKey, i)
	}
	for name, keys := range map[string]int{"hot": 100, "uniform": benchRows} {
		b.Run(name, func(b *testing.B) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			var spent [2]time.Duration
			engines := [2]*engine.Engine{engine.New(memory.New(), plain), engine.New(memory.New(), table)}
			requests := [2]*one{{}, {}}
			random := rand.New(rand.NewPCG(1, 2))
			order := make([]string, 1<<12)
			done := 0
			round := func(count bool) {
				for i := range order {
					order[i] = users[random.IntN(keys)]
				}
				for k := range engines {
					i := (k + done) % 2
					e, r := engines[i], requests[i]
					q := engine.Query{Domain: "api", Part: engine.Part{Request: r, Cost: 1}, At: start}
					begun := cpu()
					for _, r.user = range order {
						v, err := e.Decide(context.Background(), q)
						if err != nil || !v.Allowed {
							b.Fatal(v.Decision, err)
						}
						v.Release()
					}
					if count {
						spent[i] += cpu() - begun
					}
				}
				done++
			}
			for range 2 * keys / len(order) {
				round(false)
			}
			requests[1].user = users[7]
			v, _ := engines[1].Decide(context.Background(), engine.Query{Domain: "api", Part: engine.Part{Request: requests[1], Cost: 1}, At: start})
			if v.Rule.Base() == v.Rule || v.Rule.Limit.N() != 1_000_007 {
				b.Fatal("the premise is wrong: the key has no row")
			}
			v.Release()
			done = 0
			for b.Loop() {
				round(true)
			}
			n := float64(done * len(order))
			b.ReportMetric(float64(spent[0])/n, "ns/plain")
			b.ReportMetric(float64(spent[1])/n, "ns/table")
			b.ReportMetric(float64(spent[1])/float64(spent[0]), "ratio")
		})
	}
}
