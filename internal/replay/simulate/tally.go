package simulate

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"strings"
	"sync"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/store"
)

// tally counts decisions. Its memory is bounded by the keys that have counts:
// others are folded into distributions, except those that were refused most.
type tally struct {
	Report // its counts
	rules  map[*rules.Rule]*ruleTally
	order  []*ruleTally
	keys   int // of all rules
	most   int // number of keys from which on some are folded
}

// ruleTally is the same for one rule.
type ruleTally struct {
	RuleReport // its counts
	rule       *rules.Rule
	delay      int64 // of all delayed requests, in microseconds, like longest
	longest    int64
	first      int64 // refusal
	last       int64
	outcomes   [engine.Outcomes]int64
	keys       map[string]*keyTally
	folded     struct { // keys that are no longer tracked
		keys, refused int64
	}
	lacking []int64 // requests that lacked each part of the key
}

// keyTally is the same for one key.
type keyTally struct {
	requests, refused, delayed int64
	first, last                int64  // refusals
	peak                       int64  // highest use after a decision
	limit                      int64  // that peak belongs to
	fresh                      int64  // time from which on the key equals an unused one
	window, count, busiest     int64  // requests per clock period
	lacks                      uint64 // missing parts of the key, as rules.Rule.Missing returns them
}

const (
	mostTracked = 1 << 18       // tracked keys from which on unused ones are folded
	keptRefused = 1 << 13       // how many refused keys among those are kept
	never       = math.MinInt64 // a time that has not occurred
)

func newTally(s Side, all bool) *tally { //nolint:revive // all is a user's option, passed on
	t := &tally{Report: Report{Domain: s.Domain, Rules: []RuleReport{}}, rules: map[*rules.Rule]*ruleTally{}, most: mostTracked}
	if all {
		t.most = math.MaxInt
	}
	for _, r := range s.Rules.Rules() {
		if r.Domain == s.Domain {
			t.of(r)
		}
	}
	return t
}

// of returns the tally of a rule.
func (t *tally) of(r *rules.Rule) *ruleTally {
	r = r.Base()
	rt := t.rules[r]
	if rt == nil {
		rt = &ruleTally{rule: r, first: never, last: never, keys: map[string]*keyTally{}, lacking: make([]int64, len(r.Key))}
		rt.Name, rt.Limit, rt.Mode = r.Name, r.LimitText(), r.Mode.String()
		t.rules[r] = rt
		t.order = append(t.order, rt)
	}
	return rt
}

// add counts the verdicts of a page.
func (t *tally) add(p *page) {
	rest := p.results
	for i := range p.verdicts {
		v := &p.verdicts[i]
		t.Requests++
		if v.allowed {
			t.Allowed++
			if v.delayed {
				t.Delayed++
			}
		} else {
			t.Refused++
		}
		if v.wouldRefuse {
			t.WouldRefuse++
		}
		if v.marked {
			t.Marked++
		}
		for j := range v.results {
			t.result(v.at, &rest[j])
		}
		rest = rest[v.results:]
	}
}

// result counts the decision of one rule.
func (t *tally) result(at int64, r *engine.Result) {
	rt := t.of(r.Rule)
	d := &r.Decision
	k := rt.keys[r.Key]
	if k == nil {
		if t.keys >= t.most {
			t.fold(at)
		}
		k = &keyTally{first: never, last: never, lacks: r.Rule.Missing(r.Key)}
		rt.keys[strings.Clone(r.Key)] = k
		t.keys++
	}
	rt.Requests++
	k.requests++
	for parts := k.lacks; parts != 0; parts &= parts - 1 {
		rt.lacking[bits.TrailingZeros64(parts)]++
	}
	outcome := r.Outcome()
	rt.outcomes[outcome]++
	refused := true
	switch {
	case !d.Allowed:
		rt.Refused++
	case outcome == engine.ShadowRefused:
		rt.Allowed++
		rt.WouldRefuse++
	default:
		refused = false
		rt.Allowed++
	}
	if refused {
		k.refused++
		k.last = at
		rt.last = at
		if k.first == never {
			k.first = at
		}
		if rt.first == never {
			rt.first = at
		}
	}
	if d.Delay > 0 {
		rt.Delayed++
		k.delayed++
		rt.delay += d.Delay.Microseconds()
		rt.longest = max(rt.longest, d.Delay.Microseconds())
	}
	if d.Reason != headgate.ReasonNoLimit {
		k.limit = d.Limit
		k.peak = max(k.peak, d.Limit-d.Remaining+r.Over)
		if d.Limit > 0 {
			rt.PeakUse = max(rt.PeakUse, float64(d.Limit-d.Remaining+r.Over)/float64(d.Limit))
		}
	}
	k.fresh = at + d.ResetAfter.Microseconds()
	rt.asked(k, at, min(r.Cost(), store.MaxLimit))
}

// asked records the demand of a key, allowed or not.
func (rt *ruleTally) asked(k *keyTally, at, cost int64) {
	if period := rt.rule.Limit.Period().Microseconds(); period > 0 {
		if window := at - at%period; window != k.window {
			k.window, k.count = window, 0
		}
		k.count = min(k.count+cost, math.MaxInt64-store.MaxLimit)
		k.busiest = max(k.busiest, k.count)
	}
}

// fold stops tracking keys that equal unused ones at a time.
func (t *tally) fold(at int64) {
	t.keys = 0
	for _, rt := range t.order {
		rt.fold(at)
		t.keys += len(rt.keys)
	}
	t.most = max(mostTracked, 2*t.keys)
}

func (rt *ruleTally) fold(at int64) {
	type refused struct {
		key string
		n   int64
	}
	var list []refused
	for key, k := range rt.keys {
		switch {
		case k.fresh > at:
		case k.refused > 0:
			list = append(list, refused{key, k.refused})
		default:
			rt.forget(key)
		}
	}
	if len(list) > keptRefused {
		slices.SortFunc(list, func(a, b refused) int { return cmp.Compare(b.n, a.n) })
		for _, r := range list[keptRefused:] {
			rt.forget(r.key)
		}
	}
}

func (rt *ruleTally) forget(key string) {
	k := rt.keys[key]
	rt.folded.keys++
	if k.refused > 0 {
		rt.folded.refused++
	}
	delete(rt.keys, key)
}

// books passes verdicts to the goroutine that counts them, so that decisions need
// not wait for counting.
type books struct {
	open  *page
	full  chan *page
	empty chan *page
	group sync.WaitGroup
	close func() // waits until everything is counted
}

// page is a group of verdicts. Their keys are in the memory of batches, which is
// not modified.
type page struct {
	verdicts []verdict
	results  []engine.Result
}

// verdict holds the counted part of an engine.Verdict, without its results.
type verdict struct {
	at                                    int64
	results                               int // number of results
	allowed, delayed, wouldRefuse, marked bool
}

const (
	pageVerdicts = 256 // verdicts per page
	maxPages     = 4   // limits how far counting may lag behind
)

// newBooks starts counting in t.
func newBooks(t *tally) *books {
	b := &books{open: new(page), full: make(chan *page, maxPages), empty: make(chan *page, maxPages+1)}
	for range maxPages {
		b.empty <- new(page)
	}
	b.group.Go(func() {
		for p := range b.full {
			t.add(p)
			p.verdicts, p.results = p.verdicts[:0], p.results[:0]
			b.empty <- p
		}
	})
	b.close = sync.OnceFunc(func() {
		b.full <- b.open
		close(b.full)
		b.group.Wait()
	})
	return b
}

// enter records a verdict.
func (b *books) enter(at int64, v *engine.Verdict) {
	results := v.Results()
	p := b.open
	p.verdicts = append(p.verdicts, verdict{at, len(results), v.Allowed, v.Delay > 0, v.WouldRefuse > 0, v.Marked > 0})
	p.results = append(p.results, results...)
	if len(p.verdicts) >= pageVerdicts {
		b.full <- p
		b.open = <-b.empty
	}
}
