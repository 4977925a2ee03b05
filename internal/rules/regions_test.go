package rules_test

import (
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/rulefile"
	"github.com/headgate/headgate/store"
)

// TestRegions: what regions makes of a limit.
func TestRegions(t *testing.T) {
	busy := headgate.PerSecond(10_000)
	for _, c := range []struct {
		text string
		want headgate.Limit
	}{
		{"regions: separate", busy},
		{"regions: shared", headgate.LimitOf(busy.Rule().InRegions(store.Regions{}))},
		{"regions: {}", headgate.LimitOf(busy.Rule().InRegions(store.Regions{}))},
		{"regions: {slack: 0}", headgate.LimitOf(busy.Rule().InRegions(store.Regions{}))},
		{"regions: {slack: 5%}", headgate.LimitOf(busy.Rule().InRegions(store.Regions{Slack: 0.05}))},
		{"regions: shared\n    algorithm: sliding_buckets", headgate.LimitOf(busy.WithAlgorithm(headgate.SlidingBuckets).Rule().InRegions(store.Regions{}))},
		{"regions: shared\n    algorithm: sliding_window\n    sync: blocks", headgate.LimitOf(busy.WithAlgorithm(headgate.SlidingWindow).Rule().InRegions(store.Regions{}).InBlocks(store.Blocks{MaxAge: 1e9, MaxOver: 0.05}))},
		{"regions: {home: eu}", headgate.LimitOf(busy.Rule().InRegions(store.Regions{Home: "eu"}))},
		{"regions: {home: eu}\n    sync: blocks", headgate.LimitOf(busy.Rule().InRegions(store.Regions{Home: "eu"}).InBlocks(store.Blocks{MaxAge: 1e9, MaxOver: 0.05}))},
		{"regions: {home: us-west-2}\n    algorithm: sliding_log\n    count_denied: true", headgate.LimitOf(busy.WithAlgorithm(headgate.SlidingLog).WithRefusalsCounted().Rule().InRegions(store.Regions{Home: "us-west-2"}))},
		{"regions: {home: eu}\n    algorithm: leaky_bucket", headgate.LimitOf(busy.WithAlgorithm(headgate.LeakyBucket).Rule().InRegions(store.Regions{Home: "eu"}))},
		{"regions: {home: eu}\n    algorithm: fixed_window\n    anchor: first_request", headgate.LimitOf(busy.WithAlgorithm(headgate.FixedWindow).WithAnchor(headgate.AnchorFirstRequest).Rule().InRegions(store.Regions{Home: "eu"}))},
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
			if _, is := changed.Limit.Rule().Regions(); !is || changed.Limit.Rule().Home() != c.want.Rule().Home() {
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

// TestHomesOfOtherKinds: slots and values can have a home too, and a tier inherits it.
func TestHomesOfOtherKinds(t *testing.T) {
	set, diagnostics := rulefile.Parse(rulefile.Source{Name: "r.yaml", Data: []byte(`domain: d
limits:
  - {name: slots, key: client_ip, concurrency: 5, lease: 10s, regions: {home: eu}}
  - {name: values, key: client_ip, rate: 5/day, count: distinct, of: path, regions: {home: eu}}
  - name: tiers
    rate: 5/second
    regions: {home: eu}
    tiers: {by: "header:Plan", pro: {rate: 9/second}, few: {concurrency: 3}, here: {regions: separate}}
`)})
	if set == nil || len(diagnostics) > 0 {
		t.Fatal(diagnostics)
	}
	homes := map[string]string{}
	for _, r := range set.Rules() {
		homes[r.Name] = r.Limit.Rule().Home()
	}
	for name, home := range homes {
		if want := map[bool]string{true: "", false: "eu"}[strings.HasSuffix(name, "here")]; home != want {
			t.Errorf("%s is at home in %q, want %q", name, home, want)
		}
	}
	if len(homes) < 5 {
		t.Errorf("rules: %v", homes)
	}
}

// TestUnknownHome: a home that this process cannot write to is an error where it is
// written, with the nearest name. Without known regions there is none.
func TestUnknownHome(t *testing.T) {
	file := rulefile.Source{Name: "r.yaml", Data: []byte("domain: d\nlimits:\n  - name: r\n    rate: 5/s\n    regions: {home: eu-wset}\n")}
	const want = `r.yaml:5:21: the region "eu-wset" is neither that of this server nor one of regions.homes, did you mean "eu-west"?`
	set, diagnostics := rulefile.Options{Regions: &rules.Regions{Own: "ap", Homes: []string{"eu-west"}}}.Parse(file)
	if set != nil || len(diagnostics) != 1 || !strings.HasPrefix(diagnostics[0].String(), want) {
		t.Errorf("%v, want %s", diagnostics, want)
	}
	for _, known := range []*rules.Regions{nil, {Own: "eu-wset"}, {Own: "ap", Homes: []string{"us", "eu-wset"}}} {
		if set, diagnostics := (rulefile.Options{Regions: known}).Parse(file); set == nil {
			t.Errorf("%v: %v", known, diagnostics)
		}
	}
}
