package ownform

import (
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/rules/yamltext"
)

// RegionKeys returns the keys of regions.
func RegionKeys() []string { return []string{"slack"} }

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
	const hint = "remove regions: each region counts for itself"
	switch {
	case l.Algorithm == headgate.LeakyBucket || l.Algorithm == headgate.SlidingLog || l.Algorithm == headgate.Distinct:
		l.Errorf(n, "use token_bucket, fixed_window, sliding_window or sliding_buckets", "regions cannot share a limit of %s", l.Algorithm)
		return limit
	case l.IsSet(l.Keys, "count_denied"):
		l.Errorf(n, hint, "regions cannot share a limit with count_denied: each refused request would have to reach all of them")
		return limit
	case l.anchor == headgate.AnchorFirstRequest:
		l.Errorf(n, "remove anchor", "regions cannot share windows that start at the first request, which each of them sees at another time")
		return limit
	case !limit.Valid():
		return limit // reported elsewhere
	}
	made := limit.InRegions(settings)
	if err := made.Validate(); err != nil {
		l.Errorf(n, hint, "%s", strings.TrimPrefix(err.Error(), headgate.ErrInvalidLimit.Error()+": "))
		return limit
	}
	l.checkParts(n, made)
	return made
}

// readRegions reads regions: a word, or a mapping. It reports whether that shares.
func (l *LimitForm) readRegions(n *yamltext.Node) (settings headgate.Regions, shared bool) {
	switch n.Kind {
	case yamltext.Text:
		word, _ := l.Choice(n, "regions", "separate", "shared")
		return settings, word == "shared"
	case yamltext.Map:
	default:
		l.Errorf(n, "", "\"regions\" must be separate or shared, or a mapping, not %s", n.Kind)
		return settings, false
	}
	f := l.Fields(n, "regions", RegionKeys())
	if field, ok := f["slack"]; ok {
		if l.Algorithm != headgate.TokenBucket {
			l.Errorf(field.Key, "a window never admits more than its limit", "\"slack\" does not apply to %s", l.Algorithm)
		} else if slack, ok := l.percentage("slack", field.Value); ok {
			settings.Slack = slack
		}
	}
	return settings, true
}
