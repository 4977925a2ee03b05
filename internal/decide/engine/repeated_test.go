package engine_test

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/store/memory"
)

var unneeded = regexp.MustCompile(`the rule "(\w+)" (?:can never refuse|repeats)`)

// twoRules returns two rules with the same key; sometimes one is redundant.
func twoRules(r *rand.Rand) string {
	var src strings.Builder
	src.WriteString("domain: api\nlimits:\n")
	for _, name := range []string{"first", "second"} {
		pick := func(of ...string) string { return of[r.IntN(len(of))] }
		fmt.Fprintf(&src, "  - {name: %s, key: user, rate: %d/minute%s}\n", name, 1+r.IntN(4), strings.Join([]string{
			pick("", "", "", ", match: {path: /now}"),
			pick("", "", ", cost: 2", `, cost: {from: "header:X-Cost"}`, ", cost: {from_response: X-Tokens}"),
			pick("", "", "", ", on_limit: shadow_ban", ", on_limit: queue", ", on_limit: {status: 503}"),
			pick("", "", "", ", on_store_error: deny", ", on_store_error: local", ", on_store_error: {policy: local, share: 0.5}"),
			pick("", "", "", ", mode: shadow", ", percent: 50"),
			pick("", "", "", ", algorithm: fixed_window", ", algorithm: sliding_window", ", burst: 3"),
		}, ""))
	}
	return src.String()
}

// Without a rule that is reported as never refusing or as repeating another, every
// request gets the same answer: whatever its cost, before or after, and while the store
// is down.
func TestRulesThatAreSaidToBeNeedless(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 1))
	said, refusals := 0, 0
	for range 6000 {
		src := twoRules(r)
		set := parse(t, src)
		for _, w := range set.Warnings() {
			found := unneeded.FindStringSubmatch(w.Message)
			if found == nil {
				continue
			}
			said++
			name := found[1]
			with, without := replayed(set), replayed(parse(t, dropped(src, name)))
			now := 0.0
			for i := range 60 {
				now += 10 * r.Float64()
				q := ask(request{"path": []string{"/now", "/later"}[r.IntN(2)], "user": "ann", "header:X-Cost": fmt.Sprint(r.IntN(3))}, now)
				q.Cost = int64(1 + r.IntN(2))
				down, tokens := i/10%3 == 2, int64(r.IntN(4))
				got, want := with.decide(t, q, down, tokens), without.decide(t, q, down, tokens)
				if got != want {
					t.Fatalf("%s\n%s: request %d is %v; without it, %v", src, w, i, got, want)
				}
				if got.outcome == engine.Refused {
					refusals++
				}
			}
		}
	}
	if said < 100 || refusals < 1000 {
		t.Errorf("%d warnings and %d refusals: too few to tell", said, refusals)
	}
}

// dropped returns src without the line of that rule.
func dropped(src, name string) string {
	lines := strings.SplitAfter(src, "\n")
	kept := ""
	for _, line := range lines {
		if !strings.Contains(line, "name: "+name+",") {
			kept += line
		}
	}
	return kept
}

// replay decides under one set of rules; its store can be down.
type replay struct {
	store  *counted
	engine *engine.Engine
}

// answered is the outcome and, of a refusal, its status.
type answered struct {
	outcome engine.Outcome
	status  int
}

func replayed(set *rules.Ruleset) replay {
	store := &counted{Store: memory.New()}
	return replay{store, engine.New(store, set, engine.WithFallback(memory.New()))}
}

func (p replay) decide(t *testing.T, q engine.Query, down bool, tokens int64) answered {
	t.Helper()
	p.store.down = down
	v, _ := p.engine.Decide(t.Context(), q)
	defer v.Release()
	a := answered{outcome: v.Outcome()}
	if !v.Allowed && v.Decision.Reason != headgate.ReasonFailClosed { // answered with 503
		a.status = v.Rule.OnLimit.Status
	}
	if v.Allowed {
		_ = p.engine.SettleCosts(t.Context(), &v, q.At, told(tokens, engine.CostKnown))
	}
	return a
}
