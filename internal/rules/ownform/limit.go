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
	"github.com/headgate/headgate/internal/rules/form"
	"github.com/headgate/headgate/internal/rules/rate"
	"github.com/headgate/headgate/internal/rules/yamltext"
	"github.com/headgate/headgate/internal/rules/zone"
	"github.com/headgate/headgate/store"
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
	var most int64
	var lease time.Duration
	before := p.Errors
	form.ReadFields(p.Report, f, p.slotKeys(&most, &lease))
	if p.Errors > before {
		return headgate.Limit{}
	}
	limit := headgate.Concurrent(most)
	if lease > 0 {
		limit = limit.WithLease(lease)
	}
	return l.withRegions(limit)
}

// slotKeys are the keys of a limit of concurrency.
func (p *Parser) slotKeys(most *int64, lease *time.Duration) []form.Row {
	return []form.Row{
		{Key: "concurrency", Doc: "Up to this many concurrent requests, instead of a rate.", See: "more/concurrency.md", Type: form.Integer(0, store.MaxConcurrent, most)},
		{
			Key: "lease", Doc: "After this time without renewal a slot is free again, for example after a crash.",
			Type: form.Duration(minLease, maxLease, lease, "for example lease: 60s").Or("60s"),
		},
	}
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
	return slices.DeleteFunc(append(LimitKeys(), distinctNames()...), func(key string) bool { return key == "regions" })
}

// LimitKeys returns the names of the keys of a headgate.Limit. Descriptors have them under
// rate_limit.
func LimitKeys() []string { return form.Keys(new(LimitForm).Rows()) }

// limitNames is LimitKeys, made once.
func (p *Parser) limitNames() []string { return p.Names("a limit", new(LimitForm).Rows) }

// Rows are these keys.
func (l *LimitForm) Rows() []form.Row {
	algorithm := func(key, doc, add string, t form.Type, only ...headgate.Algorithm) form.Row {
		row := form.Row{Key: key, Doc: doc, Add: add, Type: t}
		for _, a := range only {
			row.Only = append(row.Only, a.String())
		}
		return row
	}
	const window, buckets = "add algorithm: fixed_window", "add algorithm: sliding_buckets"
	l.buckets = store.DefaultBuckets
	return []form.Row{
		{Key: "rate", Doc: "How many, and in which time.", See: "rules/rules.md#rate", Type: form.Ref("rate").Is("`5/minute`, `unlimited`")},
		{Key: "period", Doc: "The time of a rate that is only a count.", Type: form.Ref("period").Is("`30s`, `7d`")},
		{Key: "algorithm", Doc: "How the limit counts. token_bucket: bursts, then a steady rate. leaky_bucket: a queue that drains at a steady rate. fixed_window: windows on the clock or the calendar. sliding_log: exact. sliding_window: two counters. sliding_buckets: the window cut into sub-windows.", See: "rules/algorithms.md", Type: l.algorithms()},
		algorithm(
			"burst", "How many may pass at once (token_bucket), or the length of the queue (leaky_bucket).", "only token_bucket and leaky_bucket have a burst",
			form.Integer(1, store.MaxLimit, &l.burst).Or("the rate's count"), headgate.TokenBucket, headgate.LeakyBucket,
		),
		algorithm(
			"refill", "Tokens arrive in steps, at every multiple of this time since the Unix epoch, instead of continuously.", "only token_bucket refills in steps",
			form.Object(form.Mapping{Rows: l.refillKeys()}).By("`{every: 1s}`", l.readRefill), headgate.TokenBucket,
		),
		algorithm(
			"delay_after", "How many queued requests are served at once; later ones wait.", "add algorithm: leaky_bucket",
			form.Integer(1, store.MaxLimit, &l.delayAfter), headgate.LeakyBucket,
		),
		algorithm(
			"anchor", "Where windows start: on the clock, or with the first request.", window,
			form.Choice(&l.anchor, headgate.AnchorClock, headgate.AnchorFirstRequest), headgate.FixedWindow, headgate.Distinct,
		),
		algorithm(
			"timezone", "The zone of the calendar, by its IANA name.", window, form.Ref("zone").Is("`Europe/Berlin`").Or("UTC"), headgate.FixedWindow, headgate.Distinct,
		),
		algorithm("buckets", "The number of sub-windows.", buckets, form.Integer(1, store.MaxBuckets, &l.buckets), headgate.SlidingBuckets),
		algorithm(
			"edge", "How the oldest sub-window counts.", buckets,
			form.Choice(&l.edge, headgate.EdgeWeighted, headgate.EdgeLenient, headgate.EdgeStrict), headgate.SlidingBuckets,
		),
		algorithm(
			"count_denied", "Refused requests count too, so that a client that keeps hammering stays out.", "add algorithm: sliding_window, or another window", form.Flag(&l.countDenied),
			headgate.FixedWindow, headgate.SlidingLog, headgate.SlidingWindow, headgate.SlidingBuckets,
		),
		{Key: "sync", Type: form.Ref("sync").Is("`exact`, `blocks`, or a mapping").Or("exact"), Doc: "How servers share the limit.", See: "many/blocks.md"},
		{Key: "regions", Type: form.Ref("regions").Is("`separate`, `shared`, or a mapping").Or("separate"), Doc: "Whether regions share the limit.", See: "many/regions.md"},
	}
}

// LimitForm reads those keys.
type LimitForm struct {
	*Parser
	Keys yamltext.Fields
	At   *yamltext.Node // the rule, for what is missing
	Rate rate.Rate

	Algorithm headgate.Algorithm
	Epoch     bool // counts days and longer units from the Unix epoch
	Own       bool // the zone may be the client's own

	anchor            headgate.Anchor
	burst, delayAfter int64
	refill            time.Duration
	buckets           int
	edge              headgate.Edge
	countDenied       bool
}

// parseRateAndOptions returns the limit, or reports errors.
func (p *Parser) parseRateAndOptions(f yamltext.Fields, at *yamltext.Node) headgate.Limit {
	l := LimitForm{Parser: p, Keys: f, At: at, Own: true}
	before := p.Errors
	l.ReadRate()
	l.ReadAlgorithm()
	l.readCount()
	if l.Rate.Unlimited {
		l.RefuseBeside("rate: unlimited", append(LimitKeys()[1:], distinctNames()...)...)
		return headgate.Unlimited()
	}
	return l.Finish(before)
}

// Finish returns the limit of what has been read. The limit's own check comes last, so
// that errors are not repeated.
func (l *LimitForm) Finish(before int) headgate.Limit {
	const first = 3 // keys that are read before the options: rate, period and algorithm
	if options := l.limitNames()[first:]; slices.ContainsFunc(options, l.has) {
		rows := slices.DeleteFunc(l.Rows(), func(row form.Row) bool { return row.Key == "algorithm" })
		form.ReadFields(l.Report, l.Keys, rows)
		l.refuseStray(rows)
	}
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

// ReadAlgorithm reads algorithm, which the other keys depend on.
func (l *LimitForm) ReadAlgorithm() {
	switch n := l.Keys.Get("algorithm"); {
	case n == nil:
	case l.Own && n.Text == headgate.Distinct.String():
		l.Errorf(n, "write count: distinct, with of: and the attribute", "distinct is not an algorithm")
	default:
		form.ReadOne(l.Report, "algorithm", n, l.algorithms())
	}
}

func (l *LimitForm) algorithms() form.Type {
	return form.Choice(&l.Algorithm, store.Algorithms()...)
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
func (l *LimitForm) refuseStray(rows []form.Row) {
	form.Stray(l.Keys, rows, l.Algorithm.String(), func(row *form.Row, at *yamltext.Node) {
		if l.Algorithm == headgate.Distinct {
			l.Errorf(at, "remove it", "%q does not work with count: distinct", row.Key)
		} else {
			l.Errorf(at, row.Add, "%q does not apply to %s", row.Key, l.Algorithm)
		}
	})
	if windows := l.Algorithm == headgate.FixedWindow || l.Algorithm == headgate.Distinct; windows && l.anchor == headgate.AnchorFirstRequest {
		l.RefuseBeside("anchor: first_request", "timezone")
	}
}

// build makes the limit.
func (l *LimitForm) build() headgate.Limit {
	limit := headgate.Per(l.Rate.N, l.Rate.Period)
	switch l.Algorithm {
	case headgate.FixedWindow, headgate.Distinct:
		limit = l.fixedWindow().WithAlgorithm(l.Algorithm)
	default:
		limit = limit.WithAlgorithm(l.Algorithm)
	}
	if l.burst > 0 {
		limit = limit.WithBurst(l.burst)
	}
	if l.refill > 0 && l.Algorithm == headgate.TokenBucket {
		limit = limit.WithRefillEvery(l.refill)
	}
	if l.delayAfter > 0 && l.Algorithm == headgate.LeakyBucket {
		limit = limit.WithDelayAfter(l.delayAfter)
	}
	if l.Algorithm == headgate.SlidingBuckets && (l.has("buckets") || l.has("edge")) {
		limit = limit.WithBuckets(l.buckets, l.edge)
	}
	if l.countDenied {
		limit = limit.WithRefusalsCounted()
	}
	return l.withSync(l.withRegions(limit))
}

// has reports whether a key is given.
func (l *LimitForm) has(key string) bool { return l.Keys.Get(key) != nil }

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
		return headgate.Per(l.Rate.N, l.Rate.Period).WithAlgorithm(headgate.FixedWindow).WithAnchor(l.anchor)
	case unit >= headgate.Day && !l.Epoch || n != nil && unit != store.NoCalendar:
		limit := headgate.PerCalendar(l.Rate.N, unit, zone)
		if own {
			return limit.WithZone(zone)
		}
		return limit
	case n != nil && l.Rate.Period > 0:
		l.Errorf(n, "", "\"timezone\" needs a rate per minute, hour, day, week, month or year")
	}
	return headgate.Per(l.Rate.N, l.Rate.Period).WithAlgorithm(headgate.FixedWindow)
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

// refillKeys are the keys of refill.
func (l *LimitForm) refillKeys() []form.Row {
	return []form.Row{{
		Key: "every", Doc: "The time between two refills.", Missing: ", the time between two refills", Example: exampleRefill,
		Type: form.Duration(minRefill, maxRefill, &l.refill, ""),
	}}
}

const exampleRefill = "for example refill: {every: 1s}"

// readRefill reads refill.
func (l *LimitForm) readRefill(n *yamltext.Node) {
	if n.Kind != yamltext.Map {
		l.Errorf(n, exampleRefill, "\"refill\" must be a mapping, not %s", n.Kind)
		return
	}
	form.Read(l.Report, n, "refill", l.refillKeys())
}
