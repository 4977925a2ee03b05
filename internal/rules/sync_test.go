package rules_test

import (
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/rules/rulefile"
	"github.com/headgate/headgate/store"
)

// TestSync: what sync makes of a limit.
func TestSync(t *testing.T) {
	standard := store.Blocks{MaxAge: time.Second, MaxOver: 0.05}
	busy := headgate.PerSecond(10_000)
	for _, c := range []struct {
		text string
		want headgate.Limit
	}{
		{"sync: exact", busy},
		{"sync: {mode: exact}", busy},
		{"sync: blocks", headgate.LimitOf(busy.Rule().InBlocks(standard))},
		{"sync: {mode: blocks}", headgate.LimitOf(busy.Rule().InBlocks(standard))},
		{"sync: {mode: blocks, max_age: 20ms}", headgate.LimitOf(busy.Rule().InBlocks(store.Blocks{MaxAge: 20 * time.Millisecond, MaxOver: 0.05}))},
		{"sync: {mode: blocks, max_over: 0.5%}", headgate.LimitOf(busy.Rule().InBlocks(store.Blocks{MaxAge: time.Second, MaxOver: 0.005}))},
		{"sync: {mode: blocks, max_over: 0, max_age: 20ms}", headgate.LimitOf(busy.Rule().InBlocks(store.Blocks{MaxAge: 20 * time.Millisecond}))},
		{"sync: blocks\n    burst: 20_000", headgate.LimitOf(busy.WithBurst(20_000).Rule().InBlocks(standard))},
		{"sync: blocks\n    algorithm: sliding_log", headgate.LimitOf(busy.WithAlgorithm(headgate.SlidingLog).Rule().InBlocks(standard))},
		{"sync: blocks\n    algorithm: fixed_window", headgate.LimitOf(busy.WithAlgorithm(headgate.FixedWindow).Rule().InBlocks(standard))},
	} {
		set, diagnostics := rulefile.Parse(rulefile.Source{Name: "r.yaml", Data: []byte("domain: d\nlimits:\n  - name: r\n    key: client_ip\n    rate: 10000/s\n    " + c.text + "\n")})
		if set == nil || len(diagnostics) > 0 {
			t.Fatalf("%s: %v", c.text, diagnostics)
		}
		if got := set.Rules()[0].Limit; !got.Equal(c.want) || got.String() != c.want.String() {
			t.Errorf("%s: %s, want %s", c.text, got, c.want)
		}
	}
}

// TestOverridesKeepBlocks: an override of a limit in blocks is in blocks too, unless it
// is too small for that.
func TestOverridesKeepBlocks(t *testing.T) {
	set, diagnostics := rulefile.Parse(rulefile.Source{Name: "r.yaml", Data: []byte(strings.TrimSpace(`
domain: d
limits:
  - {name: over, key: client_ip, rate: 10000/s, sync: blocks}
  - {name: none, key: client_ip, rate: 10000/s, burst: 5000, sync: {mode: blocks, max_over: 0, max_age: 20ms}}
  - {name: window, key: client_ip, rate: 10000/s, algorithm: fixed_window, sync: blocks}
`))})
	if set == nil {
		t.Fatal(diagnostics)
	}
	for i, c := range []struct {
		rate string
		age  time.Duration
		most int64
	}{
		{"20000/s", 50 * time.Millisecond, 20_000},
		{"20000/s", 20 * time.Millisecond, 4600},
		{"500/m", time.Second, 500},
	} {
		r, err := set.Rules()[i].WithLimit(c.rate, 0)
		if err != nil {
			t.Fatal(err)
		}
		if r.Limit.Rule().BlockAge() != c.age || r.Limit.Burst() != c.most {
			t.Errorf("%s: %s, age %s, most %d", r.Name, r.Limit, r.Limit.Rule().BlockAge(), r.Limit.Burst())
		}
	}
	if r, err := set.Rules()[1].WithLimit("1000000/s", 0); err != nil || r.Limit.Rule().BlockAge() != 0 || r.Limit.Burst() != 5000 {
		t.Errorf("%v, %v", r, err)
	}
}
