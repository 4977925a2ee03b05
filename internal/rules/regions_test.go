package rules_test

import (
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/rulefile"
)

// TestRegions: what regions makes of a limit.
func TestRegions(t *testing.T) {
	busy := headgate.PerSecond(10_000)
	for _, c := range []struct {
		text string
		want headgate.Limit
	}{
		{"regions: separate", busy},
		{"regions: shared", busy.InRegions(headgate.Regions{})},
		{"regions: {}", busy.InRegions(headgate.Regions{})},
		{"regions: {slack: 0}", busy.InRegions(headgate.Regions{})},
		{"regions: {slack: 5%}", busy.InRegions(headgate.Regions{Slack: 0.05})},
		{"regions: shared\n    algorithm: sliding_buckets", busy.Using(headgate.SlidingBuckets).InRegions(headgate.Regions{})},
		{"regions: shared\n    algorithm: sliding_window\n    sync: blocks", busy.Using(headgate.SlidingWindow).InRegions(headgate.Regions{}).InBlocks(headgate.Blocks{MaxAge: 1e9, MaxOver: 0.05})},
	} {
		set, diagnostics := rulefile.Parse(rulefile.Source{Name: "r.yaml", Data: []byte("domain: d\nlimits:\n  - name: r\n    key: client_ip\n    rate: 10000/s\n    " + c.text + "\n")})
		if set == nil || len(diagnostics) > 0 {
			t.Fatalf("%s: %v", c.text, diagnostics)
		}
		rule := set.Rules()[0]
		if got := rule.Limit; !got.Equal(c.want) || got.String() != c.want.String() {
			t.Errorf("%s: %s, want %s", c.text, got, c.want)
		}
		if _, shared := c.want.Rule().Regions(); shared {
			changed, err := rule.WithLimit("500/s", 0)
			if err != nil {
				t.Fatal(err)
			}
			if _, is := changed.Limit.Rule().Regions(); !is {
				t.Errorf("%s: an override is %s", c.text, changed.Limit)
			}
		}
	}
}

// TestPartsOfRegions: check knows how many regions there are, if it has read the
// configuration, and says which limits cannot be divided among them.
func TestPartsOfRegions(t *testing.T) {
	three := &rules.Regions{Own: "eu", Others: []string{"us", "ap"}}
	for _, c := range []struct {
		text    string
		regions *rules.Regions
		want    string
	}{
		{"rate: 2/hour, algorithm: fixed_window", nil, ""},
		{"rate: 2/hour, algorithm: fixed_window", three, "warning: a region without a part of this limit refuses everything: it is 2, for 3 regions"},
		{"rate: 3/hour, algorithm: fixed_window", three, ""},
		{"rate: 1000/hour, burst: 1", nil, "warning: a region without a part of this limit refuses everything: it is 1, for 2 regions"},
		{"rate: 0/hour, algorithm: fixed_window", three, "warning: a limit of 0 refuses every request"},
		{"rate: 1000/150d", nil, ""},
		{"rate: 1000/150d", three, "3 regions cannot share this bucket"},
		{"rate: 1000/150d, algorithm: sliding_window", three, ""},
	} {
		text := "domain: d\nlimits:\n  - {name: r, key: client_ip, regions: shared, " + c.text + "}\n"
		_, diagnostics := rulefile.Options{Regions: c.regions}.Parse(rulefile.Source{Name: "r.yaml", Data: []byte(text)})
		got := ""
		for _, d := range diagnostics {
			got += d.String()
		}
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.text, got, c.want)
		}
	}
}
