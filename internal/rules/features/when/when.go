// Package when lets a rule apply only while the upstream is slow: when.
//
// The time to the header of the upstream's answers is measured where it is known, in the proxy,
// and only for rules that ask for it. They hold in the process that measures, at all of its
// doors; anywhere else they never do.
package when

import (
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/base/clip"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/feature"
	"github.com/headgate/headgate/internal/rules/form"
	"github.com/headgate/headgate/internal/rules/rate"
	"github.com/headgate/headgate/internal/rules/yamltext"
)

const (
	name    = "when"
	measure = "upstream_p90"
	example = `for example when: {upstream_p90: ">200ms"}`

	leastAbove = time.Millisecond
	mostAbove  = time.Minute
)

// Feature is when, for those who know no feature by name.
func Feature() feature.Feature {
	return feature.Feature{
		Row: func() form.Row {
			return form.Row{Key: name, Doc: "Applies the rule only while the proxy's upstream is slow.", See: "run/overload.md#rules-for-a-slow-upstream", Type: form.Ref(name).Is("a mapping")}
		},
		Keys: func() form.Mapping { return keys(nil, new(time.Duration)) },
		Read: read,
	}
}

func keys(r *yamltext.Report, above *time.Duration) form.Mapping {
	return form.Mapping{Def: name, Doc: "What a rule waits for.", Rows: []form.Row{{
		Key: measure, Doc: "The time to the header within which the upstream sends 90% of its answers. The rule holds while it is longer.", Example: example,
		Type: form.Type{Schema: `"type":"string","pattern":"^\\s*>\\s*[0-9]","not":{"pattern":"^\\s*>\\s*[0.]*[a-zµμ]"}`}.
			By("`>1ms` to `>1m`", func(n *yamltext.Node) { *above = readAbove(r, n) }).Or(form.Required),
	}}}
}

func read(r *feature.Reading) {
	n := r.Fields.Get(name)
	if n == nil {
		return
	}
	before, s := r.Errors, new(Slow)
	form.Read(r.Report, n, name, keys(r.Report, &s.above).Rows)
	if r.Errors > before {
		return
	}
	r.Rule.AddTrait(s)
	switch at := r.Fields[name].Key; {
	case r.NoProxy:
		r.Warnf(at, "set proxy.upstream, or remove the rule", "the rule never applies: only the proxy measures its upstream, and no proxy is configured")
	case r.ProxyDomain != "" && r.ProxyDomain != r.Rule.Domain:
		r.Warnf(at, "move it to that domain", "the rule never applies: the proxy measures its upstream for the domain %s", clip.Quote(r.ProxyDomain))
	}
}

// readAbove reads what the measure must exceed.
func readAbove(r *yamltext.Report, n *yamltext.Node) time.Duration {
	if n.Kind != yamltext.Text && n.Kind != yamltext.Number {
		r.Errorf(n, example, "%q must be > and a time, not %s", measure, n.Kind)
		return 0
	}
	sign := n.Text[:len(n.Text)-len(strings.TrimLeft(n.Text, "<>=! "))]
	d, err := form.ParseDuration(strings.TrimSpace(n.Text[len(sign):]), leastAbove, mostAbove)
	switch over := strings.TrimSpace(sign) == ">"; {
	case !over && err == nil:
		r.Errorf(n, fmt.Sprintf("write %s: \">%s\"", measure, form.Short(d)), "%q must be > and a time, not %s", measure, clip.Quote(n.Text))
	case !over:
		r.Errorf(n, example, "%q must be > and a time, not %s", measure, clip.Quote(n.Text))
	case err != nil:
		r.Errorf(n, example, "%q: %v", measure, err)
	}
	return d
}

// What a rule needs to begin and to end.
const (
	// lingers is for how long the upstream must be fast for the rule to end: the measure is below
	// endsBelow of the limit, in percent, or there are too few answers to know it.
	lingers   = 5 * time.Second
	endsBelow = 80
	fewest    = 20 // answers in a window
)

// Slow is the trait of a rule that applies while the upstream is slow.
type Slow struct {
	above time.Duration
	until atomic.Int64 // when it ends, unless the upstream is still slow, in microseconds since the Unix epoch
	p90   atomic.Int64 // as last measured, in microseconds; 0 if there were too few answers
	at    atomic.Int64 // when; 0 for never
	told  atomic.Bool  // the log has said that it holds
}

var _ rules.When = (*Slow)(nil)

// String implements rules.When.
func (s *Slow) String() string { return measure + " >" + rate.Short(s.above) }

// Holds implements rules.When.
func (s *Slow) Holds(at int64) bool {
	left := s.until.Load() - at
	return left > 0 && left <= lingers.Microseconds() // a clock that was set back ends it
}

// Now implements rules.When.
func (s *Slow) Now(at int64) string {
	p90, measured := s.p90.Load(), s.at.Load()
	switch {
	case measured == 0:
		return "not measured yet: the proxy of the domain does, from its first answer on"
	case p90 == 0 || at-measured > window.Microseconds():
		return fmt.Sprintf("not known: fewer than %d answers in %s", fewest, rate.Short(window))
	}
	return shown(p90)
}

// shown is a measure for people, as exact as it is.
func shown(p90 int64) string {
	d := time.Duration(p90) * time.Microsecond
	if d >= 10*time.Millisecond {
		return rate.Short(d.Round(time.Millisecond))
	}
	return rate.Short(d.Round(10 * time.Microsecond))
}

// measured tells s what has been measured.
func (s *Slow) measured(at, p90 int64) {
	above := s.above.Microseconds()
	s.p90.Store(p90)
	s.at.Store(at)
	if p90 > above || p90 >= above*endsBelow/100 && s.Holds(at) {
		s.until.Store(at + lingers.Microseconds())
	}
}

// Lacks returns what a rule needs to apply that only a running proxy knows; empty for nothing.
func Lacks(r *rules.Rule) string {
	if rules.TraitOf[*Slow](r) == nil {
		return ""
	}
	return measure
}
