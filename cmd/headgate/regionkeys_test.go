package main

import (
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/door/admin"
	"github.com/headgate/headgate/internal/door/httpapi"
	"github.com/headgate/headgate/internal/observe/metrics"
	"github.com/headgate/headgate/internal/replay/offline"
)

// A key of a limit that regions share is shown with what this region has of it.
func TestKeysOfRegionsInWords(t *testing.T) {
	parts := []httpapi.RegionPart{{Region: "ap", Limit: 200}, {Region: "eu", Limit: 200}, {Region: "us", Limit: 200}}
	key := metrics.Key{}
	for want, k := range map[string]admin.KeyAnswer{
		"50 of 200 remaining in eu (600/minute)\n  shared by all regions: eu has 200 of 600, and asks the others when they run low; for what they have left, ask a server in ap and us\n": {
			Limit: 600, Remaining: 50, InRegions: &httpapi.Regions{Region: "eu", Limit: 600, Parts: parts},
		},
		"230 remaining in eu with granted credit (600/minute)\n  shared by": {
			Limit: 600, Remaining: 230, InRegions: &httpapi.Regions{Region: "eu", Limit: 600, Parts: parts},
		},
		"50 of 600 remaining (600/minute)\n  shared by regions, but this server knows no others: it has all 600\n": {
			Limit: 600, Remaining: 50, InRegions: &httpapi.Regions{Limit: 600, Parts: []httpapi.RegionPart{}},
		},
		"50 of 600 remaining (600/minute)\n  counted in eu for all regions: this is the count there\n": {
			Limit: 600, Remaining: 50, InRegions: &httpapi.Regions{Region: "us", Home: "eu", Limit: 600},
		},
		"50 of 600 remaining (600/minute)\n  counted here, in eu, for all regions\n": {
			Limit: 600, Remaining: 50, InRegions: &httpapi.Regions{Region: "eu", Home: "eu", Limit: 600},
		},
		"50 of 600 remaining (600/minute)\n  its home is eu, but this server has no region: it counts for itself\n": {
			Limit: 600, Remaining: 50, InRegions: &httpapi.Regions{Home: "eu", Limit: 600},
		},
		"50 of 600 remaining (600/minute)\n  created": {Limit: 600, Remaining: 50},
	} {
		k.Domain, k.Rule, k.Key, k.LimitText, k.Allowed = "api", "search", key, "600/minute", true
		var out strings.Builder
		printKey(&out, "peek", &k, time.Now())
		if _, got, _ := strings.Cut(out.String(), "  "); !strings.Contains(got, want) {
			t.Errorf("%q does not contain %q", got, want)
		}
	}
}

// explain says that a count is unknown rather than what on_store_error decides as if it were.
func TestExplainWithoutTheStore(t *testing.T) {
	for reason, want := range map[string]string{
		"fail_open":   "unknown: the store did not answer, so on_store_error decides",
		"fail_closed": "unknown: the store did not answer, so on_store_error decides",
		"ok":          "3 of 10 used, 7 remaining",
	} {
		r := httpapi.ExplainedRule{Count: &httpapi.LimitCount{Reason: reason, Limit: 10, Used: 3, Remaining: 7}}
		if got := (explanation{live: true}).now(&r); got != want {
			t.Errorf("%s: %q, want %q", reason, got, want)
		}
	}
	for reason, want := range map[string]string{
		"fail_open": "allowed: the store did not answer, and login lets requests pass\n",
		"unlimited": "allowed: login is unlimited\n",
		"ok":        "allowed: login has the least remaining\n",
	} {
		x := &offline.Explained{Counts: "live"}
		x.Known, x.Allowed, x.Rule, x.Reason = true, true, "login", reason
		var out strings.Builder
		explanation{paint: paint{w: &out}, live: true}.verdict(x)
		if got := out.String(); got != want {
			t.Errorf("%s: %q, want %q", reason, got, want)
		}
	}
}
