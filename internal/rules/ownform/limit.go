package ownform

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/base/clip"
	"github.com/headgate/headgate/internal/base/nearest"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/rate"
	"github.com/headgate/headgate/internal/rules/yamltext"
	"github.com/headgate/headgate/internal/rules/zone"
)

// The shortest and the longest lease.
const (
	minLease = 10 * time.Millisecond
	maxLease = 24 * time.Hour
)

// The shortest and the longest time between two refills.
const (
	minRefill = time.Millisecond
	maxRefill = 24 * time.Hour
)

// parseLimitOf returns the limit of a rule: a concurrency or a rate.
func (p *Parser) parseLimitOf(f yamltext.Fields, at *yamltext.Node) headgate.Limit {
	n := f.Get("concurrency")
	if n == nil {
		if field, ok := f["lease"]; ok {
			p.Errorf(field.Key, "add concurrency, such as concurrency: 20", "\"lease\" does not apply to a rate")
		}
		limit := p.parseRateAndOptions(f, at)
		return limit
	}
	l := LimitForm{Parser: p, Keys: f, At: at, Algorithm: headgate.Concurrency}
	l.RefuseBeside("concurrency", rateKeys()...)
	most, ok := p.Integer(n, "concurrency", 0, headgate.MaxConcurrent)
	if !ok {
		return headgate.Limit{}
	}
	limit := headgate.Concurrent(most)
	if n := f.Get("lease"); n != nil {
		text, ok := p.Span(n, "lease")
		if !ok {
			return headgate.Limit{}
		}
		d, err := duration(text, minLease, maxLease)
		if err != nil {
			p.Errorf(n, "for example lease: 60s", "\"lease\": %v", err)
			return headgate.Limit{}
		}
		limit = limit.Lease(d)
	}
	return l.withRegions(limit)
}

// inheritLimit removes from f, the keys that a tier inherits, those of the kind of limit
// that the tier replaces.
func inheritLimit(f, own yamltext.Fields) {
	if own.Get("concurrency") != nil {
		for _, key := range rateKeys() {
			delete(f, key)
		}
	}
	if own.Get("rate") != nil {
		delete(f, "concurrency")
		delete(f, "lease")
	}
}

// rateKeys returns the keys that concurrency does not have.
func rateKeys() []string {
	return slices.DeleteFunc(append(LimitKeys(), DistinctKeys()...), func(key string) bool { return key == "regions" })
}

// LimitKeys returns the keys of a headgate.Limit. Descriptors have them under
// rate_limit.
func LimitKeys() []string {
	return []string{"rate", "period", "algorithm", "burst", "refill", "delay_after", "anchor", "timezone", "buckets", "edge", "count_denied", "sync", "regions"}
}

// LimitForm reads those keys.
type LimitForm struct {
	*Parser
	Keys yamltext.Fields
	At   *yamltext.Node // the rule, for what is missing
	Rate rate.Rate

	Algorithm headgate.Algorithm
	anchor    headgate.Anchor
	Epoch     bool // counts days and longer units from the Unix epoch
	Own       bool // the zone may be the client's own
}

// parseRateAndOptions returns the limit, or reports errors.
func (p *Parser) parseRateAndOptions(f yamltext.Fields, at *yamltext.Node) headgate.Limit {
	l := LimitForm{Parser: p, Keys: f, At: at, Own: true}
	before := p.Errors
	l.ReadRate()
	l.ReadAlgorithm()
	l.readCount()
	if l.Rate.Unlimited {
		l.RefuseBeside("rate: unlimited", append(LimitKeys()[1:], DistinctKeys()...)...)
		return headgate.Unlimited()
	}
	return l.Finish(before)
}

// Finish returns the limit of what has been read. The limit's own check comes last, so
// that errors are not repeated.
func (l *LimitForm) Finish(before int) headgate.Limit {
	l.refuseStray()
	limit := l.build()
	if l.Errors == before && l.Rate.Period > 0 {
		l.validate(limit)
	}
	return limit
}

// ReadRate reads rate, with period if the rate is only a count.
func (l *LimitForm) ReadRate() {
	n, period := l.Keys.Get("rate"), l.Keys.Get("period")
	if n == nil {
		if !yamltext.HasKey(l.At, "rate") {
			l.Errorf(l.At, "for example rate: 5/minute, or rate: unlimited", "\"rate\" is missing")
		}
		return
	}
	if n.Kind != yamltext.Text && n.Kind != yamltext.Number {
		l.Errorf(n, "", "\"rate\" must be N/unit, such as 5/minute, not %s", n.Kind)
		return
	}
	source := n.Text
	if period != nil {
		if strings.Contains(source, "/") {
			l.Errorf(period, "", "the period is given twice, here and in the rate %s", clip.Quote(source))
			return
		}
		if period.Kind != yamltext.Text && period.Kind != yamltext.Number {
			l.Errorf(period, "", "\"period\" must be a duration such as 30s, not %s", period.Kind)
			return
		}
		if _, _, err := rate.ParsePeriod(period.Text); err != nil {
			l.Errorf(period, "", "%v", err)
			return
		}
		source += "/" + period.Text
	}
	var err error
	if l.Rate, err = rate.Parse(source); err != nil {
		l.Errorf(n, "", "%v", err)
	}
}

// ReadAlgorithm reads algorithm and anchor, which the other keys depend on.
func (l *LimitForm) ReadAlgorithm() {
	if n := l.Keys.Get("algorithm"); l.Own && n != nil && n.Text == headgate.Distinct.String() {
		l.Errorf(n, "write count: distinct, with of: and the attribute", "distinct is not an algorithm")
		return
	}
	var names []string
	for _, a := range headgate.Algorithms() {
		names = append(names, a.String())
	}
	if word := l.ChoiceOf(l.Keys, "algorithm", names...); word != "" {
		l.Algorithm, _ = headgate.ParseAlgorithm(word)
	}
	if l.ChoiceOf(l.Keys, "anchor", "clock", "first_request") == "first_request" {
		l.anchor = headgate.AnchorFirstRequest
	}
}

// RefuseBeside reports those of the keys that are given.
func (l *LimitForm) RefuseBeside(what string, keys ...string) {
	for _, key := range keys {
		if field, ok := l.Keys[key]; ok {
			l.Errorf(field.Key, "", "%q cannot be combined with %s", key, what)
		}
	}
}

// refuseStray reports options that belong to another algorithm.
func (l *LimitForm) refuseStray() {
	owner := func(key, hint string, algorithms ...headgate.Algorithm) {
		field, ok := l.Keys[key]
		switch {
		case !ok || slices.Contains(algorithms, l.Algorithm):
		case l.Algorithm == headgate.Distinct:
			l.Errorf(field.Key, "remove it", "%q does not work with count: distinct", key)
		default:
			l.Errorf(field.Key, hint, "%q does not apply to %s", key, l.Algorithm)
		}
	}
	owner("burst", "only token_bucket and leaky_bucket have a burst", headgate.TokenBucket, headgate.LeakyBucket)
	owner("refill", "only token_bucket refills in steps", headgate.TokenBucket)
	owner("delay_after", "add algorithm: leaky_bucket", headgate.LeakyBucket)
	owner("anchor", "add algorithm: fixed_window", headgate.FixedWindow, headgate.Distinct)
	owner("timezone", "add algorithm: fixed_window", headgate.FixedWindow, headgate.Distinct)
	owner("buckets", "add algorithm: sliding_buckets", headgate.SlidingBuckets)
	owner("edge", "add algorithm: sliding_buckets", headgate.SlidingBuckets)
	owner(
		"count_denied", "add algorithm: sliding_window, or another window",
		headgate.FixedWindow, headgate.SlidingLog, headgate.SlidingWindow, headgate.SlidingBuckets,
	)
	if windows := l.Algorithm == headgate.FixedWindow || l.Algorithm == headgate.Distinct; windows && l.anchor == headgate.AnchorFirstRequest {
		l.RefuseBeside("anchor: first_request", "timezone")
	}
}

// build makes the limit.
func (l *LimitForm) build() headgate.Limit {
	limit := headgate.Per(l.Rate.N, l.Rate.Period)
	switch l.Algorithm {
	case headgate.FixedWindow, headgate.Distinct:
		limit = l.fixedWindow().Using(l.Algorithm)
	default:
		limit = limit.Using(l.Algorithm)
	}
	var n int64
	if l.IntegerOf(l.Keys, "burst", 0, headgate.MaxLimit, &n) {
		limit = limit.Burst(n)
	}
	limit = l.withRefill(limit)
	if l.IntegerOf(l.Keys, "delay_after", 1, headgate.MaxLimit, &n) && l.Algorithm == headgate.LeakyBucket {
		limit = limit.DelayAfter(n)
	}
	limit = l.withBuckets(limit)
	if l.IsSet(l.Keys, "count_denied") {
		limit = limit.CountingDenied()
	}
	return l.withSync(l.withRegions(limit))
}

// validate reports the limit's own error at the key that caused it.
func (l *LimitForm) validate(limit headgate.Limit) {
	err, hint := limit.Validate(), ""
	if mode := l.Keys.Get("mode"); err == nil && (mode == nil || mode.Text != rules.Shadow.String()) {
		err, hint = rules.CanEnforce(limit), "choose at most 65536, or add mode: shadow"
	}
	if err == nil {
		return
	}
	at := l.At
	for _, key := range []string{"requests_per_unit", "rate", "refill", "burst", "delay_after", "buckets"} {
		if n := l.Keys.Get(key); n != nil {
			at = n
		}
	}
	reason := err.Error()
	if errors.Is(err, headgate.ErrInvalidLimit) {
		reason = strings.TrimPrefix(reason, headgate.ErrInvalidLimit.Error()+": ")
	}
	l.Errorf(at, hint, "%s", reason)
}

// fixedWindow returns a window of the calendar where the rate names one: a
// day, week, month or year on the clock, or any unit with a timezone.
func (l *LimitForm) fixedWindow() headgate.Limit {
	zone := time.UTC
	n := l.Keys.Get("timezone")
	own := isOwnZone(n)
	switch {
	case own:
		zone = l.ownZoneOf(n)
	case n != nil:
		zone = l.Zone(n)
	}
	unit := l.Rate.Unit
	switch {
	case l.anchor == headgate.AnchorFirstRequest:
		return headgate.Per(l.Rate.N, l.Rate.Period).Using(headgate.FixedWindow).Anchored(l.anchor)
	case unit >= headgate.Day && !l.Epoch || n != nil && unit != headgate.NoCalendar:
		limit := headgate.PerCalendar(l.Rate.N, unit, zone)
		if own {
			return limit.InZone(zone)
		}
		return limit
	case n != nil && l.Rate.Period > 0:
		l.Errorf(n, "", "\"timezone\" needs a rate per minute, hour, day, week, month or year")
	}
	return headgate.Per(l.Rate.N, l.Rate.Period).Using(headgate.FixedWindow)
}

// Zone loads a time zone of the IANA database.
func (p *Parser) Zone(n *yamltext.Node) *time.Location {
	name, ok := p.Word(n, "timezone")
	if !ok {
		return time.UTC
	}
	if at := p.zones[name]; at != nil {
		return at
	}
	at, err := time.LoadLocation(name)
	if err != nil || name == "Local" {
		near, hint := nearest.DidYouMean(name, zone.Names()), ""
		if near == "" {
			hint = "use an IANA time zone name, such as Europe/Berlin"
		}
		p.Errorf(n, hint, "unknown timezone %s%s", clip.Quote(name), near)
		return time.UTC
	}
	if name == "UTC" {
		at = time.UTC
	}
	p.zones[name] = at
	return at
}

// RefillKeys returns the keys of refill.
func RefillKeys() []string { return []string{"every"} }

// withRefill applies refill.
func (l *LimitForm) withRefill(limit headgate.Limit) headgate.Limit {
	n := l.Keys.Get("refill")
	if n == nil {
		return limit
	}
	const hint = "for example refill: {every: 1s}"
	if n.Kind != yamltext.Map {
		l.Errorf(n, hint, "\"refill\" must be a mapping, not %s", n.Kind)
		return limit
	}
	before := l.Errors
	f := l.Fields(n, "refill", RefillKeys())
	var every time.Duration
	switch {
	case !l.durationOf(f, "every", minRefill, maxRefill, &every):
		if l.Errors == before {
			l.Errorf(n, hint, "refill has no \"every\", the time between two refills")
		}
	case l.Algorithm == headgate.TokenBucket:
		return limit.RefillEvery(every)
	}
	return limit
}

// withBuckets applies buckets and edge.
func (l *LimitForm) withBuckets(limit headgate.Limit) headgate.Limit {
	count, edge := int64(headgate.DefaultBuckets), headgate.EdgeWeighted
	l.IntegerOf(l.Keys, "buckets", 1, headgate.MaxBuckets, &count)
	switch l.ChoiceOf(l.Keys, "edge", "weighted", "lenient", "strict") {
	case "lenient":
		edge = headgate.EdgeLenient
	case "strict":
		edge = headgate.EdgeStrict
	}
	if (l.Keys.Get("buckets") != nil || l.Keys.Get("edge") != nil) && l.Algorithm == headgate.SlidingBuckets {
		return limit.Buckets(int(count), edge)
	}
	return limit
}
