package config_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/app"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/rules"
)

func loadText(t *testing.T, text string) (*config.Config, error) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "headgate.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return config.Load(config.Sources{Doors: app.Sections(), File: name, Environment: none})
}

func TestWrongRegions(t *testing.T) {
	t.Parallel()
	const redis = "store: redis://127.0.0.1:6379\n"
	for _, row := range []struct{ file, want string }{
		{redis + "regions: {homes: {us: redis://127.0.0.1:6380}}\n", "regions.name: the region of this process has no name"},
		{redis + "regions: {name: eu, homes: {eu: redis://127.0.0.1:6380}}\n", "regions.homes: eu is the region of this process"},
		{redis + "regions: {name: eu, homes: {us: \"user:open-sesame@127.0.0.1:6380\"}}\n", "regions.homes: the store of region us is not a URL"},
		{redis + "regions: {name: eu, homes: {us: redis://127.0.0.1:6380}, timeout: 0s}\n", "regions.timeout: 0s is too short"},
		{"regions: {name: eu, homes: {us: redis://127.0.0.1:6380}}\n", "regions.name: regions share limits through Redis"},
		{redis + "regions: {peers: {us: redis://127.0.0.1:6380}}\n", "regions.name: the region of this process has no name"},
		{redis + "regions: {name: eu, peers: {eu: redis://127.0.0.1:6380}}\n", "regions.peers: eu is the region of this process"},
		{redis + "regions: {name: eu, peers: {us: redis://127.0.0.1:6379}}\n", "regions.peers: the store of region us is the store of this region"},
		{"regions: {name: eu, peers: {us: redis://127.0.0.1:6380}}\n", "regions.name: regions share limits through Redis"},
		{redis + "regions: {name: EU, peers: {us: redis://127.0.0.1:6380}}\n", `regions.name: "EU" is not the name of a region`},
		{redis + "regions: {name: eu, peers: {u_s: redis://127.0.0.1:6380}}\n", `regions.peers: "u_s" is not the name of a region`},
		{redis + "regions: {name: eu, peers: {us: \"user:open-sesame@127.0.0.1:6380\"}}\n", "regions.peers: the store of region us is not a URL"},
		{redis + "regions: {name: eu, peers: {us: redis://127.0.0.1:6380}, interval: 1ms}\n", "regions.interval is not a setting any more"},
		{redis + "regions: {name: ap, peers: {eu: redis://127.0.0.1:6380, us: redis://127.0.0.1:6380}}\n", "regions.peers: the regions eu and us have the same store"},
		{redis + "regions: {name: ap, homes: {eu: redis://127.0.0.1:6380, us: redis://127.0.0.1:6380}}\n", "regions.homes: the regions eu and us have the same store"},
		{redis + "regions: {name: ap, homes: {eu: redis://127.0.0.1:6379}}\n", "regions.homes: the store of region eu is the store of this region"},
		{redis + "regions: {nam: eu}\n", `unknown key "nam" in regions, did you mean "name"?`},
	} {
		_, err := loadText(t, row.file)
		if err == nil || !strings.Contains(err.Error(), row.want) || strings.Contains(err.Error(), "open-sesame") {
			t.Errorf("%q: %v, want %q", row.file, err, row.want)
		}
	}
}

// check finds what is wrong with the names of regions, as the server does.
func TestCheckKnowsWrongRegions(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ regions, want string }{
		{"{peers: {us: redis://127.0.0.1:6380}}", "2:1: regions.name: the region of this process has no name"},
		{"{name: eu, peers: {eu: redis://127.0.0.1:6380}}", "regions.peers: eu is the region of this process"},
		{"{name: eu, homes: {eu: redis://127.0.0.1:6380}}", "regions.homes: eu is the region of this process"},
		{"{name: ap, peers: {eu: redis://127.0.0.1:6380, us: redis://127.0.0.1:6380}}", "regions.peers: the regions eu and us have the same store"},
		{"{name: ap, peers: {eu: redis://127.0.0.1:6380, us: redis://127.0.0.1:6381}}", ""},
	} {
		name := filepath.Join(t.TempDir(), "headgate.yaml")
		if err := os.WriteFile(name, []byte("store: redis://127.0.0.1:6379\nregions: "+row.regions+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := config.LoadOffline(config.Sources{Doors: app.Sections(), File: name, Environment: none})
		if row.want == "" && err != nil || row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)) {
			t.Errorf("%s: %v, want %q", row.regions, err, row.want)
		}
	}
}

// Rules may name the region of the process and its homes; without a region, any.
func TestHomesAreKnownToRules(t *testing.T) {
	t.Parallel()
	const redis = "store: redis://127.0.0.1:6379\n"
	for text, want := range map[string]string{
		"": "", "regions: {name: eu}\n": "eu []", "regions: {name: eu, peers: {us: redis://127.0.0.1:6380}}\n": "eu []",
		"regions: {name: us, timeout: 1s, homes: {eu: \"rediss://headgate-us:open-sesame@127.0.0.1:6380\", ap: redis://127.0.0.1:6381}}\n": "us [ap eu]",
	} {
		c, err := loadText(t, redis+text)
		if err != nil {
			t.Fatal(err)
		}
		if shown := fmt.Sprintf("%+v", c.Store.Regions); strings.Contains(shown, "open-sesame") {
			t.Error("a password shows itself:", shown)
		}
		name := filepath.Join(t.TempDir(), "headgate.yaml")
		if err := os.WriteFile(name, []byte(redis+text), 0o600); err != nil {
			t.Fatal(err)
		}
		offline, err := config.LoadOffline(config.Sources{Doors: app.Sections(), File: name, Environment: none})
		if err != nil {
			t.Fatal(err)
		}
		for what, known := range map[string]*rules.Regions{"serve": c.RuleOptions.Regions, "check": offline.RuleOptions.Regions} {
			got := ""
			if known != nil {
				got = fmt.Sprintf("%s %v", known.Own, known.Homes)
			}
			if got != want {
				t.Errorf("%s: for %s, rules may name %q, want %q", text, what, got, want)
			}
		}
	}
}

func TestRegionsThatAreRight(t *testing.T) {
	t.Parallel()
	c, err := loadText(t, "store: redis://127.0.0.1:6379\nregions: {name: eu, peers: {us: \"rediss://reader:open-sesame@127.0.0.1:6380\"}}\n")
	if err != nil {
		t.Fatal(err)
	}
	r := c.Store.Regions
	if r.Name != "eu" || len(r.Peers) != 1 || string(r.Peers["us"]) != "rediss://reader:open-sesame@127.0.0.1:6380" {
		t.Errorf("%s, %d peers", r.Name, len(r.Peers))
	}
	if among := c.RuleOptions.Regions; among == nil || !slices.Equal(among.Names(), []string{"eu", "us"}) || among.Own != "eu" {
		t.Errorf("rules are read for %+v", among)
	}
	if text := fmt.Sprintf("%+v", r); strings.Contains(text, "open-sesame") {
		t.Error("a password shows itself:", text)
	}
}

// TestRegionsForCheck: commands that only read rules learn the regions from the file and
// the environment.
func TestRegionsForCheck(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "headgate.yaml")
	if err := os.WriteFile(name, []byte("store: redis://127.0.0.1:6379\nregions: {name: eu, peers: {us: \"redis://127.0.0.1:6380\"}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, environment := range map[string]func(string) (string, bool){
		"[eu us]": none,
		"[ap us]": manifest("HEADGATE_REGIONS_NAME", "ap").Environment,
	} {
		offline, err := config.LoadOffline(config.Sources{Doors: app.Sections(), File: name, Environment: environment})
		if err != nil || fmt.Sprint(offline.RuleOptions.Regions.Names()) != want {
			t.Errorf("%+v, %v, want %s", offline, err, want)
		}
	}
}
