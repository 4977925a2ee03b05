package ownform

import (
	"slices"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/base/clip"
	"github.com/headgate/headgate/internal/base/nearest"
	"github.com/headgate/headgate/internal/rules/form"
	"github.com/headgate/headgate/internal/rules/yamltext"
	"github.com/headgate/headgate/store"
)

// regionKeys are the keys of regions.
func (l *LimitForm) regionKeys(settings *store.Regions, shared *bool) form.Mapping {
	word := form.Switch(shared, "separate", "shared")
	return form.Mapping{
		Def: "regions", Doc: "Whether regions share the limit: separate (default) gives each region the whole limit, shared gives each a part, and regions give each other tokens. {home: eu} lets one region count for all, with any algorithm. See docs/many/regions.md.",
		Short: &word, Rows: []form.Row{
			{
				Key: "slack", Doc: "Of a token_bucket: how much all regions together may admit above the burst, as a part of it.",
				Type: form.Ref("part").ByPair("`0%` to `100%`", func(at yamltext.Pair) { settings.Slack = l.partOfBurst("slack", at) }).Or("0"),
			},
			{
				Key: "home", Doc: "The region whose Redis counts the limit for all: exact, with a round trip there for each decision, unless sync: blocks saves it.", See: "many/regions-home.md",
				Type: form.Ref("region").By("the name of a region", func(n *yamltext.Node) { settings.Home = l.readHome(n) }),
			},
		},
		Extra: `"not":{"required":["slack","home"]}`,
	}
}

// withRegions applies regions.
func (l *LimitForm) withRegions(limit headgate.Limit) headgate.Limit {
	n := l.Keys.Get("regions")
	if n == nil {
		return limit
	}
	before := l.Errors
	settings, shared := l.readRegions(n)
	if !shared || l.Errors > before {
		return limit
	}
	const hint = "write regions: {home: NAME} to let one region count for all"
	switch {
	case settings.Home != "":
	case l.Algorithm == headgate.LeakyBucket || l.Algorithm == headgate.SlidingLog || l.Algorithm == headgate.Distinct || l.Algorithm == headgate.Concurrency:
		l.Errorf(n, hint+", or use a token_bucket, fixed_window, sliding_window or sliding_buckets", "regions cannot share a limit of %s", l.Algorithm)
		return limit
	case l.countDenied:
		l.Errorf(n, hint, "regions cannot share a limit with count_denied: each refused request would have to reach all of them")
		return limit
	case l.anchor == headgate.AnchorFirstRequest:
		l.Errorf(n, hint+", or remove anchor", "regions cannot share windows that start at the first request, which each of them sees at another time")
		return limit
	}
	if !limit.Rule().Valid() {
		return limit // reported elsewhere
	}
	made := headgate.LimitOf(limit.Rule().InRegions(settings))
	if err := made.Validate(); err != nil {
		l.Errorf(n, hint, "%s", strings.TrimPrefix(err.Error(), headgate.ErrInvalidLimit.Error()+": "))
		return limit
	}
	if made.Rule().Shared() {
		l.checkParts(n, made)
	}
	return made
}

// readRegions reads regions: a word, or a mapping. It reports whether that shares.
func (l *LimitForm) readRegions(n *yamltext.Node) (settings store.Regions, shared bool) {
	keys := l.regionKeys(&settings, &shared)
	switch n.Kind {
	case yamltext.Text:
		form.ReadOne(l.Report, "regions", n, *keys.Short)
		return settings, shared
	case yamltext.Map:
	default:
		l.Errorf(n, "", "\"regions\" must be separate or shared, or a mapping, not %s", n.Kind)
		return settings, false
	}
	f := l.Fields(n, "regions", form.Keys(keys.Rows))
	_, home := f["home"]
	if slack, ok := f["slack"]; ok && home {
		l.Errorf(slack.Key, "remove it", "\"slack\" does not apply to a limit that one region counts")
		return settings, false
	}
	form.ReadFields(l.Report, f, keys.Rows)
	return settings, !home || settings.Home != ""
}

// maxRegion is the longest name of a region.
const maxRegion = 32

// readHome reads the name of the region that counts, or returns "" after an error.
func (l *LimitForm) readHome(n *yamltext.Node) string {
	if n.Kind != yamltext.Text || !IsRegion(n.Text) {
		l.Errorf(n, "for example regions: {home: eu}", "\"home\" must be the name of a region: up to %d lower-case letters, digits and hyphens", maxRegion)
		return ""
	}
	if l.Regions == nil {
		return n.Text // they are not known
	}
	if known := append([]string{l.Regions.Own}, l.Regions.Homes...); !slices.Contains(known, n.Text) {
		hint := nearest.DidYouMean(n.Text, known)
		l.Errorf(n, "add its Redis to regions.homes in the configuration of the server", "the region %s is neither that of this server nor one of regions.homes%s", clip.Quote(n.Text), hint)
		return ""
	}
	return n.Text
}

// IsRegion reports whether name can be the name of a region.
func IsRegion(name string) bool {
	return name != "" && len(name) <= maxRegion && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}
