package ownform

import (
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/rules/rate"
	"github.com/headgate/headgate/internal/rules/yamltext"
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

// SyncKeys returns the keys of sync.
func SyncKeys() []string { return []string{"mode", "max_age", "max_over"} }

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
	case l.IsSet(l.Keys, "count_denied"):
		l.Errorf(n, hint, "\"sync: blocks\" does not work with count_denied: the store has to see every refused request")
		return limit
	case !limit.Valid():
		return limit // reported elsewhere
	}
	made := limit.InBlocks(blocks)
	if err := made.Validate(); err != nil {
		l.Errorf(n, "", "%s", strings.TrimPrefix(err.Error(), headgate.ErrInvalidLimit.Error()+": "))
		return limit
	}
	l.warnOfSync(n, made)
	return made
}

// readSync reads sync: a word, or a mapping with one. It reports whether that is blocks.
func (l *LimitForm) readSync(n *yamltext.Node) (b headgate.Blocks, blocks bool) {
	b = headgate.Blocks{MaxAge: defaultBlockAge, MaxOver: defaultOver / 100.}
	if n.Kind != yamltext.Map {
		if n.Kind != yamltext.Text {
			l.Errorf(n, "", "\"sync\" must be exact or blocks, or a mapping, not %s", n.Kind)
			return b, false
		}
		word, _ := l.Choice(n, "sync", "exact", "blocks")
		return b, word == "blocks"
	}
	const hint = "for example sync: {mode: blocks, max_age: 1s}"
	f := l.Fields(n, "sync", SyncKeys())
	if f.Get("mode") == nil {
		if _, ok := f["mode"]; !ok {
			l.Errorf(n, hint, "sync has no \"mode\": exact or blocks")
		}
		return b, false
	}
	blocks = l.ChoiceOf(f, "mode", "exact", "blocks") == "blocks"
	for _, key := range SyncKeys()[1:] {
		if field, ok := f[key]; ok && !blocks {
			l.Errorf(field.Key, "", "%q only applies to mode: blocks", key)
		}
	}
	l.durationOf(f, "max_age", minBlockAge, maxBlockAge, &b.MaxAge)
	if field, ok := f["max_over"]; ok && blocks {
		if l.Algorithm != headgate.TokenBucket {
			l.Errorf(field.Key, "a window never admits more than its limit", "\"max_over\" does not apply to %s", l.Algorithm)
		} else if over, ok := l.percentage("max_over", field.Value); ok {
			b.MaxOver = over
		}
	}
	return b, blocks
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
	age := limit.BlockAge()
	if age == 0 {
		return
	}
	per := limit.Period()
	if tokens := float64(limit.N()) * float64(age) / float64(per); tokens < fewTokens {
		l.Warnf(n, "remove sync, or use a larger max_age or burst",
			"blocks save hardly any round trips here: in their age of %s, %.1f requests pass", rate.Short(age), tokens)
	}
}
