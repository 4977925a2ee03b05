package rules

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/base/clip"
	"github.com/headgate/headgate/internal/rules/yamltext"
)

// limitKeys are the keys that make up a headgate.Limit. The descriptor form
// allows them under its rate_limit.
func limitKeys() []string {
	return []string{"rate", "period", "algorithm", "burst", "delay_after", "anchor", "timezone", "buckets", "edge", "count_denied"}
}

// limitForm reads those keys.
type limitForm struct {
	*parser
	f    yamltext.Fields
	at   *yamltext.Node // the rule, for what is missing
	rate Rate

	algorithm headgate.Algorithm
	anchor    headgate.Anchor
	// plain counts days and longer units from the Unix epoch.
	plain bool
}

// parseRateAndOptions returns the limit, and false if it has reported why
// there is none.
func (p *parser) parseRateAndOptions(f yamltext.Fields, at *yamltext.Node) (headgate.Limit, bool) {
	l := limitForm{parser: p, f: f, at: at}
	before := p.Errors
	l.readRate()
	l.readAlgorithm()
	if l.rate.Unlimited {
		l.refuseBeside("rate: unlimited", limitKeys()[1:]...)
		return headgate.Unlimited(), p.Errors == before
	}
	return l.finish(before), p.Errors == before
}

// finish makes the limit of what has been read. The limit's own check comes
// last, so that it repeats nothing.
func (l *limitForm) finish(before int) headgate.Limit {
	l.refuseStray()
	limit := l.build()
	if l.Errors == before && l.rate.Period > 0 {
		l.validate(limit)
	}
	return limit
}

// readRate reads rate, with period if the rate is only a count.
func (l *limitForm) readRate() {
	n, period := l.f.Get("rate"), l.f.Get("period")
	if n == nil {
		if !yamltext.HasKey(l.at, "rate") {
			l.Errorf(l.at, "for example rate: 5/minute, or rate: unlimited", "\"rate\" is missing")
		}
		return
	}
	if n.Kind != yamltext.Text && n.Kind != yamltext.Number {
		l.Errorf(n, "", "\"rate\" must be text such as 5/minute, not %s", n.Kind)
		return
	}
	source := n.Text
	if period != nil {
		if strings.Contains(source, "/") {
			l.Errorf(period, "", "the period is given twice, here and in the rate %s", clip.Quote(source))
			return
		}
		if period.Kind != yamltext.Text && period.Kind != yamltext.Number {
			l.Errorf(period, "", "\"period\" must be text such as 30s, not %s", period.Kind)
			return
		}
		if _, _, err := parsePeriod(period.Text); err != nil {
			l.Errorf(period, "", "%v", err)
			return
		}
		source += "/" + period.Text
	}
	var err error
	if l.rate, err = ParseRate(source); err != nil {
		l.Errorf(n, "", "%v", err)
	}
}

// readAlgorithm reads algorithm and anchor, which the other keys depend on.
func (l *limitForm) readAlgorithm() {
	if n := l.f.Get("algorithm"); n != nil {
		var names []string
		for _, a := range headgate.Algorithms() {
			names = append(names, a.String())
		}
		if word, ok := l.Choice(n, "algorithm", names...); ok {
			l.algorithm, _ = headgate.ParseAlgorithm(word)
		}
	}
	if n := l.f.Get("anchor"); n != nil {
		if word, ok := l.Choice(n, "anchor", "clock", "first_request"); ok && word == "first_request" {
			l.anchor = headgate.AnchorFirstRequest
		}
	}
}

// refuseBeside reports those of the keys that are given.
func (l *limitForm) refuseBeside(what string, keys ...string) {
	for _, key := range keys {
		if field, ok := l.f[key]; ok {
			l.Errorf(field.Key, "", "%q has no meaning beside %s", key, what)
		}
	}
}

// refuseStray reports options that belong to another algorithm.
func (l *limitForm) refuseStray() {
	owner := func(key, hint string, algorithms ...headgate.Algorithm) {
		if field, ok := l.f[key]; ok && !slices.Contains(algorithms, l.algorithm) {
			l.Errorf(field.Key, hint, "%q has no meaning for %s", key, l.algorithm)
		}
	}
	owner("burst", "only token_bucket and leaky_bucket have a burst", headgate.TokenBucket, headgate.LeakyBucket)
	owner("delay_after", "add algorithm: leaky_bucket", headgate.LeakyBucket)
	owner("anchor", "add algorithm: fixed_window", headgate.FixedWindow)
	owner("timezone", "add algorithm: fixed_window", headgate.FixedWindow)
	owner("buckets", "add algorithm: sliding_buckets", headgate.SlidingBuckets)
	owner("edge", "add algorithm: sliding_buckets", headgate.SlidingBuckets)
	owner("count_denied", "add algorithm: sliding_log", headgate.SlidingLog)
	if l.algorithm == headgate.FixedWindow && l.anchor == headgate.AnchorFirstRequest {
		l.refuseBeside("anchor: first_request", "timezone")
	}
}

// build makes the limit.
func (l *limitForm) build() headgate.Limit {
	limit := headgate.Per(l.rate.N, l.rate.Period)
	if l.algorithm == headgate.FixedWindow {
		limit = l.fixedWindow()
	} else {
		limit = limit.Using(l.algorithm)
	}
	if n := l.f.Get("burst"); n != nil {
		if burst, ok := l.Integer(n, "burst", 0, headgate.MaxLimit); ok {
			limit = limit.Burst(burst)
		}
	}
	if n := l.f.Get("delay_after"); n != nil {
		if places, ok := l.Integer(n, "delay_after", 1, headgate.MaxLimit); ok && l.algorithm == headgate.LeakyBucket {
			limit = limit.DelayAfter(places)
		}
	}
	limit = l.withBuckets(limit)
	if n := l.f.Get("count_denied"); n != nil {
		if yes, ok := l.Boolean(n, "count_denied"); ok && yes {
			limit = limit.CountingDenied()
		}
	}
	return limit
}

// validate reports what the limit itself finds wrong, at the key to blame.
func (l *limitForm) validate(limit headgate.Limit) {
	err := limit.Validate()
	if err == nil {
		return
	}
	at := l.at
	for _, key := range []string{"requests_per_unit", "rate", "burst", "delay_after", "buckets"} {
		if n := l.f.Get(key); n != nil {
			at = n
		}
	}
	reason := err.Error()
	if errors.Is(err, headgate.ErrInvalidLimit) {
		reason = strings.TrimPrefix(reason, headgate.ErrInvalidLimit.Error()+": ")
	}
	l.Errorf(at, "", "%s", reason)
}

// fixedWindow returns a window of the calendar where the rate names one: a
// day, week, month or year on the clock, or any unit with a timezone.
func (l *limitForm) fixedWindow() headgate.Limit {
	zone := time.UTC
	n := l.f.Get("timezone")
	if n != nil {
		zone = l.zone(n)
	}
	unit := l.rate.Unit
	switch {
	case l.anchor == headgate.AnchorFirstRequest:
		return headgate.Per(l.rate.N, l.rate.Period).Using(headgate.FixedWindow).Anchored(l.anchor)
	case unit >= headgate.Day && !l.plain || n != nil && unit != headgate.NoCalendar:
		return headgate.PerCalendar(l.rate.N, unit, zone)
	case n != nil && l.rate.Period > 0:
		l.Errorf(n, "", "\"timezone\" needs a rate per minute, hour, day, week, month or year")
	}
	return headgate.Per(l.rate.N, l.rate.Period).Using(headgate.FixedWindow)
}

// zone loads a time zone of the IANA database.
func (l *limitForm) zone(n *yamltext.Node) *time.Location {
	name, ok := l.Word(n, "timezone")
	if !ok {
		return time.UTC
	}
	if zone := l.zones[name]; zone != nil {
		return zone
	}
	zone, err := time.LoadLocation(name)
	if err != nil || name == "Local" {
		l.Errorf(n, "use a name of the IANA database, such as Europe/Berlin", "unknown timezone %s", clip.Quote(name))
		return time.UTC
	}
	if name == "UTC" {
		zone = time.UTC
	}
	l.zones[name] = zone
	return zone
}

// withBuckets applies buckets and edge.
func (l *limitForm) withBuckets(limit headgate.Limit) headgate.Limit {
	count, edge := int64(headgate.DefaultBuckets), headgate.EdgeWeighted
	n, e := l.f.Get("buckets"), l.f.Get("edge")
	if n != nil {
		if v, ok := l.Integer(n, "buckets", 1, headgate.MaxBuckets); ok {
			count = v
		}
	}
	if e != nil {
		word, _ := l.Choice(e, "edge", "weighted", "lenient", "strict")
		switch word {
		case "lenient":
			edge = headgate.EdgeLenient
		case "strict":
			edge = headgate.EdgeStrict
		}
	}
	if (n != nil || e != nil) && l.algorithm == headgate.SlidingBuckets {
		return limit.Buckets(int(count), edge)
	}
	return limit
}
