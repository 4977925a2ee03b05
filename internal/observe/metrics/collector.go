package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/internal/decide/engine"
)

// durations has histograms of decision latency, by door.
type durations struct {
	vec    *prometheus.HistogramVec
	byDoor [engine.Doors]prometheus.Observer
}

// nativeFactor is the growth of native buckets: values are exact to within a tenth.
const nativeFactor = 1.1

// Histogram returns the options of a histogram of durations in seconds, with native
// and classic buckets.
func Histogram(name, help string, buckets []float64) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{
		Name: name, Help: help, Buckets: buckets,
		NativeHistogramBucketFactor:     nativeFactor,
		NativeHistogramMaxBucketNumber:  160,
		NativeHistogramMinResetDuration: time.Hour,
	}
}

func newDurations() durations {
	d := durations{vec: prometheus.NewHistogramVec(Histogram(
		"headgate_decision_duration_seconds",
		"Latency of decisions in seconds, from matching rules to the store's answer. Sampled: at most one decision per core and millisecond.",
		[]float64{250e-9, 500e-9, 1e-6, 2.5e-6, 5e-6, 10e-6, 25e-6, 50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 100e-3},
	), []string{"door"})}
	for door := range engine.Doors {
		d.byDoor[door] = d.vec.WithLabelValues(door.String())
	}
	return d
}

func (d *durations) observe(door engine.Door, took time.Duration) {
	if door < engine.Doors {
		d.byDoor[door].Observe(took.Seconds())
	}
}

// collector exports the counts of an Observer.
type collector struct {
	Asked
	m                                                                                                                                     *Observer
	decisions, near, degraded, banned, missing, givenBack, zoneless, rateless, requests, inForce, overflow, descriptorCount, listed, shed Value
}

// Collector returns a collector of m's counts for Prometheus.
func (m *Observer) Collector() prometheus.Collector {
	c := &collector{m: m}
	c.decisions = c.Counter("headgate_decisions_total",
		"Decisions of rules, by outcome: allowed, refused, delayed, queued, shadow_banned, shadow_refused or marked. A request counts once for every rule that applies to it.", "domain", "rule", "outcome")
	c.near = c.Counter("headgate_near_limit_total",
		"Requests allowed with at most a fifth of the rule's limit remaining.", "domain", "rule")
	c.degraded = c.Counter("headgate_degraded_decisions_total",
		"Decisions made without the store, by the rule's on_store_error: allow, deny or local.", "domain", "rule", "policy")
	c.banned = c.Counter("headgate_banned_total",
		"Requests refused by a ban of the key. They are decisions too.", "domain", "rule")
	c.missing = c.Counter("headgate_key_missing_total",
		"Requests that lacked a part of the rule's key and were counted together.", "domain", "rule")
	c.givenBack = c.Counter("headgate_given_back_total",
		"Requests that a rule with charge_on gave back, because it does not count their answer.", "domain", "rule")
	c.zoneless = c.Counter("headgate_unknown_timezone_total",
		"Requests that name a time zone that does not exist, so that the rule's default applied.", "domain", "rule")
	c.rateless = c.Counter("headgate_invalid_rate_total",
		"Requests whose token has an invalid rate, so that the rule's default applied.", "domain", "rule")
	c.requests = c.Counter("headgate_requests_total",
		"Requests, each counted once, by outcome and door: api, grpc (with POST /json), resp, forward_auth, proxy, grpc_api (headgate.v1.Limiter) or none.", "door", "outcome")
	c.inForce = c.Gauge("headgate_rules", "Active rules.")
	c.overflow = c.Gauge("headgate_rules_without_series",
		"Active rules beyond metrics.max_rules, which share the series of rule (other).")
	c.descriptorCount = c.Counter("headgate_descriptor_decisions_total",
		"Decisions of rules with detailed_metric or value_to_metric, by descriptor with its values (the first 100 of a rule).",
		"domain", "rule", "descriptor", "outcome")
	c.listed = c.Counter("headgate_list_decisions_total",
		"Requests on an allow or deny list, by attribute; with mode shadow, those that would have been denied. They are not decisions of rules.", "domain", "list", "attribute", "mode")
	c.shed = c.Counter("headgate_shed_total",
		"Requests refused although they are over no limit of their own, by class and reason: headroom, because what is left is kept for a higher class, or adaptive, because the upstream cannot work on more.", "class", "reason")
	return c
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	c.Asked.Describe(out)
	c.m.timing.vec.Describe(out)
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	list, overflow := c.m.shownSeries()
	for i := range list {
		c.rule(out, &list[i])
	}
	t := c.m.totals()
	for door := range engine.Doors {
		c.door(out, door, &t.requests[door])
	}
	c.unknown(out, &t)
	c.inForce(out, float64(len(c.m.table.Load().rules)))
	c.overflow(out, float64(overflow))
	c.values(out)
	c.lists(out)
	c.m.shed.collect(func(class, reason string, n uint64) { c.shed(out, float64(n), class, reason) })
	c.m.timing.vec.Collect(out)
}

// values exports the counts by descriptor.
func (c *collector) values(out chan<- prometheus.Metric) {
	for _, r := range c.m.table.Load().all {
		if v := r.values.Load(); v != nil {
			v.each(func(descriptor string, o engine.Outcome, n uint64) {
				c.descriptorCount(out, float64(n), r.domain, r.name, descriptor, o.String())
			})
		}
	}
}

// rule exports the counts of one rule. Allowed and refused always exist, so that the
// first increase is visible; other outcomes appear when they first occur.
func (c *collector) rule(out chan<- prometheus.Metric, s *series) {
	for o, n := range s.outcomes() {
		if o := engine.Outcome(o); n > 0 || s.own && (o == engine.Allowed || o == engine.Refused) {
			c.decisions(out, float64(n), s.domain, s.rule, o.String())
		}
	}
	if s.own || s.sums[near] > 0 {
		c.near(out, float64(s.sums[near]), s.domain, s.rule)
	}
	if n := s.sums[banned]; n > 0 {
		c.banned(out, float64(n), s.domain, s.rule)
	}
	if n := s.sums[missing]; n > 0 {
		c.missing(out, float64(n), s.domain, s.rule)
	}
	if n := s.sums[refunded]; n > 0 {
		c.givenBack(out, float64(n), s.domain, s.rule)
	}
	if n := s.sums[zoneless]; n > 0 {
		c.zoneless(out, float64(n), s.domain, s.rule)
	}
	if n := s.sums[rateless]; n > 0 {
		c.rateless(out, float64(n), s.domain, s.rule)
	}
	for p, name := range policyNames() {
		if n := s.sums[degraded+p]; n > 0 {
			c.degraded(out, float64(n), s.domain, s.rule, name)
		}
	}
}

// door exports the counts of one door.
func (c *collector) door(out chan<- prometheus.Metric, d engine.Door, n *[engine.Outcomes]uint64) {
	for o, count := range n {
		if o := engine.Outcome(o); count > 0 || d != engine.DoorNone && (o == engine.Allowed || o == engine.Refused) {
			c.requests(out, float64(count), d.String(), o.String())
		}
	}
}

// unknown exports requests in domains without rules. Callers choose these names, so
// they are not labels.
func (c *collector) unknown(out chan<- prometheus.Metric, t *totals) {
	c.decisions(out, float64(t.unknown[0]), unknownDomain, noRule, engine.Allowed.String())
	c.decisions(out, float64(t.unknown[1]), unknownDomain, noRule, engine.Refused.String())
}

// series has the counts under one pair of labels.
type series struct {
	domain, rule string
	own          bool // of a single rule
	sums
}

// shownSeries returns the counts to export, and how many active rules have no own series.
func (m *Observer) shownSeries() (list []series, overflow int) {
	t := m.table.Load()
	at := map[[2]string]int{}
	for _, c := range t.all {
		if c.list != nil {
			continue // which is no rule
		}
		s := series{domain: c.domain, rule: c.name, own: c.named, sums: c.read()}
		if !c.named && !c.shared {
			s.rule = otherRules
		}
		key := [2]string{s.domain, s.rule}
		if i, ok := at[key]; ok {
			for j, n := range s.sums {
				list[i].sums[j] += n
			}
			continue
		}
		at[key] = len(list)
		list = append(list, s)
	}
	for _, c := range t.entries {
		if !c.named {
			overflow++
		}
	}
	return list, overflow
}
