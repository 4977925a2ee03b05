package storing

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/internal/observe/metrics"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/store/blocks"
)

// Blocks returns the counters of limits with sync: blocks, by rule. Without Redis they
// are nil: every decision is made in this process anyway. With Redis they never are.
func (s *Store) Blocks() (all []blocks.Stats) {
	if s.blocks != nil {
		all = []blocks.Stats{}
	}
	s.eachBlocks(func(b *blocks.Store) { all = append(all, b.Stats()...) })
	return all
}

// SetRules announces the rules that are active now. Blocks of other rules are given back.
func (s *Store) SetRules(rs *rules.Ruleset) {
	with := make(map[string]bool)
	for _, r := range rs.Rules() {
		if r.MayUseBlocks() {
			with[r.Scope] = true
		}
	}
	s.eachBlocks(func(b *blocks.Store) {
		b.Retain(func(scope string) bool { return with[scope] })
	})
}

// blockLabels are the labels domain and rule.
type blockLabels struct{ domain, rule string }

// DescribeBlocks adds the metrics of limits with sync: blocks to c. labels returns the
// labels of a limit's series, as [metrics.Observer.Labels] does.
func (s *Store) DescribeBlocks(c *metrics.Asked, labels func(domain, rule string) (d, r string, ok bool)) {
	admitted := c.Counter("headgate_block_admitted_total", "Tokens of limits with sync: blocks that were spent without asking the store.", "domain", "rule")
	direct := c.Counter("headgate_block_direct_total", "Tokens of limits with sync: blocks that the store admitted itself, request by request.", "domain", "rule")
	draws := c.Counter("headgate_block_draws_total", "Blocks asked for, by result: granted, refused (nothing left) or failed (no answer).", "domain", "rule", "result")
	back := c.Counter("headgate_block_returned_tokens_total", "Tokens of blocks that were given back unused.", "domain", "rule")
	expired := c.Counter("headgate_block_expired_tokens_total", "Tokens of blocks that ended unused.", "domain", "rule")
	held := c.Gauge("headgate_block_held_tokens", "Tokens that this process holds in blocks, of all keys.", "domain", "rule")
	keys := c.Gauge("headgate_block_keys", "Busy keys that this process has blocks for.", "domain", "rule")
	over := c.Gauge("headgate_over_admission_bound_tokens", "The most that all processes together can admit above the limit of a key with sync: blocks. Take the maximum of all processes.", "domain", "rule")
	under := c.Gauge("headgate_under_admission_bound_tokens", "The most that can be refused of a key with sync: blocks because of this process, although its limit has it. The sum of all processes is the bound.", "domain", "rule")
	c.Ask(func(out chan<- prometheus.Metric) {
		for at, b := range s.blocksByLabels(labels) {
			admitted(out, float64(b.Admitted), at.domain, at.rule)
			direct(out, float64(b.Direct), at.domain, at.rule)
			draws(out, float64(b.Granted), at.domain, at.rule, "granted")
			draws(out, float64(b.Refused), at.domain, at.rule, "refused")
			draws(out, float64(b.Failed), at.domain, at.rule, "failed")
			back(out, float64(b.Returned), at.domain, at.rule)
			expired(out, float64(b.Expired), at.domain, at.rule)
			held(out, float64(b.Held), at.domain, at.rule)
			keys(out, float64(b.Keys), at.domain, at.rule)
			over(out, float64(b.Over), at.domain, at.rule)
			under(out, float64(b.Under), at.domain, at.rule)
		}
	})
}

// blocksByLabels adds up the counters of limits that share a series. Of bounds, which
// are by key, it takes the largest.
func (s *Store) blocksByLabels(labels func(domain, rule string) (d, r string, ok bool)) map[blockLabels]blocks.Stats {
	by := make(map[blockLabels]blocks.Stats)
	for _, b := range s.Blocks() {
		domain, rule, ok := labels(rules.SplitScope(b.Scope))
		if !ok {
			continue
		}
		at := blockLabels{domain, rule}
		sum := by[at]
		sum.Admitted, sum.Direct = sum.Admitted+b.Admitted, sum.Direct+b.Direct
		sum.Granted, sum.Refused, sum.Failed = sum.Granted+b.Granted, sum.Refused+b.Refused, sum.Failed+b.Failed
		sum.Returned, sum.Expired = sum.Returned+b.Returned, sum.Expired+b.Expired
		sum.Held, sum.Keys = sum.Held+b.Held, sum.Keys+b.Keys
		sum.Over, sum.Under = max(sum.Over, b.Over), max(sum.Under, b.Under)
		by[at] = sum
	}
	return by
}
