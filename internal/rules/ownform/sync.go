package ownform

import (
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/rules/form"
	"github.com/headgate/headgate/internal/rules/rate"
	"github.com/headgate/headgate/internal/rules/yamltext"
	"github.com/headgate/headgate/store"
)

// The ages that a block may be given, and what applies otherwise.
const (
	minBlockAge     = time.Millisecond
	maxBlockAge     = time.Minute
	defaultBlockAge = time.Second
	defaultOver     = 5 // percent of the burst
)

// fewTokens is how many tokens have to be refilled in a block's age, so that two
// processes draw more than one each.
const fewTokens = 4

// syncKeys are the keys of sync.
func (l *LimitForm) syncKeys(b *store.Blocks, blocks *bool) form.Mapping {
	*b = store.Blocks{MaxAge: defaultBlockAge, MaxOver: defaultOver / 100.}
	word := form.Switch(blocks, "exact", "blocks")
	return form.Mapping{
		Def: "sync", Doc: "How servers share the limit: exact (default) asks the store for each request, blocks draws tokens for busy keys in advance. See docs/many/blocks.md.",
		Short: &word, By: "mode", Rows: []form.Row{
			{Key: "mode", Doc: "exact or blocks.", Type: word, Missing: ": exact or blocks", Example: "for example sync: {mode: blocks, max_age: 1s}"},
			{
				Key: "max_age", Doc: "The longest time between drawing a token and using it.",
				Type: form.Duration(minBlockAge, maxBlockAge, &b.MaxAge, ""), Only: []string{"blocks"},
			},
			{
				Key: "max_over", Doc: "Of a token_bucket: how much may be admitted above the burst, as a part of it. With 0, nothing; the burst is then smaller.",
				Type: form.Ref("part").ByPair("`0%` to `100%`", func(at yamltext.Pair) {
					if *blocks {
						b.MaxOver = l.partOfBurst("max_over", at)
					}
				}).Or("5%"), Only: []string{"blocks"},
			},
		},
	}
}

// withSync applies sync.
func (l *LimitForm) withSync(limit headgate.Limit) headgate.Limit {
	n := l.Keys.Get("sync")
	if n == nil {
		return limit
	}
	before := l.Errors
	blocks, is := l.readSync(n)
	if !is || l.Errors > before {
		return limit
	}
	const hint = "remove sync: the store decides each request"
	switch {
	case l.Algorithm == headgate.LeakyBucket:
		l.Errorf(n, hint, "\"sync: blocks\" does not work with leaky_bucket, whose queue has to know every request")
		return limit
	case l.Algorithm == headgate.Distinct:
		l.Errorf(n, hint, "\"sync: blocks\" does not work with count: distinct: the store has to see every value")
		return limit
	case l.countDenied:
		l.Errorf(n, hint, "\"sync: blocks\" does not work with count_denied: the store has to see every refused request")
		return limit
	case !limit.Rule().Valid():
		return limit // reported elsewhere
	}
	made := headgate.LimitOf(limit.Rule().InBlocks(blocks))
	if err := made.Validate(); err != nil {
		l.Errorf(n, "", "%s", strings.TrimPrefix(err.Error(), headgate.ErrInvalidLimit.Error()+": "))
		return limit
	}
	l.warnOfSync(n, made)
	return made
}

// readSync reads sync: a word, or a mapping with one. It reports whether that is blocks.
func (l *LimitForm) readSync(n *yamltext.Node) (b store.Blocks, blocks bool) {
	keys := l.syncKeys(&b, &blocks)
	switch n.Kind {
	case yamltext.Text:
		form.ReadOne(l.Report, "sync", n, *keys.Short)
		return b, blocks
	case yamltext.Map:
	default:
		l.Errorf(n, "", "\"sync\" must be exact or blocks, or a mapping, not %s", n.Kind)
		return b, false
	}
	f := form.Read(l.Report, n, "sync", keys.Rows)
	if f.Get("mode") != nil && !blocks {
		form.Stray(f, keys.Rows, "exact", func(row *form.Row, at *yamltext.Node) {
			l.Errorf(at, "", "%q only applies to mode: blocks", row.Key)
		})
	}
	return b, blocks
}

// partOfBurst reads a part of the burst, which only a token_bucket has.
func (l *LimitForm) partOfBurst(key string, at yamltext.Pair) float64 {
	if l.Algorithm != headgate.TokenBucket {
		l.Errorf(at.Key, "a window never admits more than its limit", "%q does not apply to %s", key, l.Algorithm)
		return 0
	}
	part, _ := l.percentage(key, at.Value)
	return part
}

// percentage reads a part of the burst: 5%, 0.5% or 0.
func (l *LimitForm) percentage(key string, n *yamltext.Node) (float64, bool) {
	number, percent := strings.CutSuffix(n.Text, "%")
	v, err := strconv.ParseFloat(number, 64)
	digits := strings.Trim(number, "0123456789.") == ""
	if n.Kind != yamltext.Text && n.Kind != yamltext.Number || err != nil || !digits || !percent && v != 0 || v > 100 {
		l.Errorf(n, "for example 5%", "%q must be from 0%% to 100%% of the burst", key)
		return 0, false
	}
	return v / 100, true
}

// warnOfSync warns of blocks that hold next to nothing.
func (l *LimitForm) warnOfSync(n *yamltext.Node, limit headgate.Limit) {
	age := limit.Rule().BlockAge()
	if age == 0 {
		return
	}
	per := limit.Period()
	if tokens := float64(limit.N()) * float64(age) / float64(per); tokens < fewTokens {
		l.Warnf(n, "remove sync, or use a larger max_age or burst",
			"blocks save hardly any round trips here: in their age of %s, %.1f requests pass", rate.Short(age), tokens)
	}
}
