package simulate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/request/client"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/rulefile"
)

// SuggestOptions are the options of Suggest.
type SuggestOptions struct {
	Reading
	Domain     string     // of the suggested rules
	Keys       [][]string // lists of attributes to count by, as in rules; one rule for each
	Unaffected float64    // share of the keys, from 0 to 1, that no rule may ever refuse
}

// Suggestion is the result of Suggest.
type Suggestion struct {
	Domain    string         `json:"domain"`
	Requests  int64          `json:"requests"`
	Skipped   int64          `json:"skipped"`
	NoClient  int64          `json:"no_client,omitempty"` // requests without a client address, although a key has it
	From      *time.Time     `json:"from"`
	To        *time.Time     `json:"to"`
	Logs      []LogReport    `json:"logs"`
	Samples   []Sample       `json:"samples,omitempty"`
	Promise   float64        `json:"unaffected"`
	Proposals []ProposedRule `json:"rules"`
}

// ProposedRule is a suggested rule with the numbers behind it.
type ProposedRule struct {
	Name string   `json:"name"`
	Key  []string `json:"key"`
	Rate string   `json:"rate"`
	// Burst is Needed, rounded up.
	Burst    int64 `json:"burst"`
	Needed   int64 `json:"needed"`
	Keys     int   `json:"keys"`
	Affected int   `json:"affected"` // number of keys that are sometimes refused
	// Steady and AtOnce are the shares of their requests that the rule refuses clients that
	// stay below its rate: those that send single requests, and those that send 10 at once.
	Steady float64 `json:"steady_refused"`
	AtOnce float64 `json:"at_once_refused"`
	// Busiest are quantiles over the keys of the requests in each key's busiest
	// clock minute.
	Busiest  []Quantile `json:"busiest_minute"`
	Choices  []Choice   `json:"choices"`  // the bursts that each rate needs
	Examples []string   `json:"examples"` // the keys that need the largest bursts
}

// Quantile is a value that a share of the keys does not exceed.
type Quantile struct {
	Share float64 `json:"share"`
	Value int64   `json:"value"`
}

// Choice is a rate and the burst that it needs.
type Choice struct {
	Rate  string `json:"rate"`
	Burst int64  `json:"burst"`
}

// refill is a rate to choose from: one token takes token units, of which leak
// drain in a microsecond, as in package algorithm.
type refill struct {
	text        string
	limit       headgate.Limit
	leak, token int64
	perMinute   int64
}

// refills are the rates to choose from, the slowest first.
func refills() []refill {
	var out []refill
	for _, n := range []int64{1, 2, 5, 10, 20, 30} {
		out = append(out, newRefill(n, time.Minute, "minute"))
	}
	for _, n := range []int64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 10_000} {
		out = append(out, newRefill(n, time.Second, "second"))
	}
	return out
}

func newRefill(n int64, period time.Duration, unit string) refill {
	r := refill{text: fmt.Sprintf("%d/%s", n, unit), limit: headgate.Per(n, period), leak: n, token: period.Microseconds(), perMinute: n * int64(time.Minute/period)}
	a, b := r.leak, r.token
	for b > 0 {
		a, b = b, a%b
	}
	r.leak, r.token = r.leak/a, r.token/a
	return r
}

// rates is the number of refills.
const rates = 17

// habits describe a key: for each rate the current and highest level of an
// unlimited bucket.
type habits struct {
	last           int64
	level, most    [rates]int64
	window         int64
	count, busiest int64
	requests       int64
}

func (h *habits) add(at int64, all []refill) {
	elapsed := at - h.last
	if h.requests == 0 {
		elapsed = 0
	}
	h.last = at
	h.requests++
	for i := range all {
		r := &all[i]
		left := int64(0)
		if elapsed < h.level[i]/r.leak+1 { // otherwise it is empty; this keeps the product small
			left = max(0, h.level[i]-elapsed*r.leak)
		}
		h.level[i] = left + r.token
		h.most[i] = max(h.most[i], h.level[i])
	}
	const minute = int64(time.Minute / time.Microsecond)
	if window := at - at%minute; window != h.window {
		h.window, h.count = window, 0
	}
	h.count++
	h.busiest = max(h.busiest, h.count)
}

// mostKeys limits the keys of a suggestion.
const mostKeys = 2_000_000

var errTooManyKeys = fmt.Errorf("more than %d keys: count by fewer or coarser attributes", mostKeys)

// candidate is a rule that is being computed.
type candidate struct {
	key  []string
	keys map[string]*habits
}

// Suggest computes limits from the traffic in logs: for each element of o.Keys a
// token bucket that o.Unaffected of the keys have never emptied.
func Suggest(ctx context.Context, o SuggestOptions) (*Suggestion, error) {
	rs, byRule, err := o.counting()
	if err != nil {
		return nil, err
	}
	all := refills()
	out := &Suggestion{Domain: o.Domain, Promise: o.Unaffected, Proposals: []ProposedRule{}}
	first, last := int64(math.MaxInt64), int64(math.MinInt64)
	keys := 0
	byClient := slices.ContainsFunc(o.Keys, func(key []string) bool { return slices.Contains(key, rules.ClientIP.String()) })
	sides := []Side{{Rules: rs, Domain: o.Domain}}
	read, err := o.read(ctx, sides, func(at int64, it item) error {
		first, last = min(first, at), max(last, at)
		out.Requests++
		if byClient && it.entry.group == client.Unknown {
			out.NoClient++
		}
		for _, c := range it.matched(0).Checks {
			one := byRule[c.Rule.Name]
			h := one.keys[c.Key]
			if h == nil {
				if keys++; keys > mostKeys {
					return errTooManyKeys
				}
				h = new(habits)
				one.keys[strings.Clone(c.Key)] = h
			}
			h.add(at, all)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	out.Logs, out.Samples = read.logs, read.samples
	for _, l := range read.logs {
		out.Skipped += l.Skipped
	}
	if err := o.inVain(rs, read.logged); err != nil && out.Requests > 0 {
		return nil, err
	}
	if out.Requests > 0 {
		out.From, out.To = moment(first), moment(last)
		for _, r := range rs.Rules() {
			out.Proposals = append(out.Proposals, byRule[r.Name].propose(r, o.Unaffected, all))
		}
	}
	return out, nil
}

// inVain returns an error if no request has an attribute of a key: all requests
// would share one limit.
func (o *SuggestOptions) inVain(rs *rules.Ruleset, logged *logged) error {
	for _, r := range rs.Rules() {
		for _, k := range r.Key {
			if !logged.has(k.Attribute) {
				return fmt.Errorf("no request in the logs has %s: cannot count by it", k.Attribute)
			}
		}
	}
	return nil
}

// counting returns rules that count by the keys of o and limit nothing.
func (o *SuggestOptions) counting() (*rules.Ruleset, map[string]*candidate, error) {
	byRule := map[string]*candidate{}
	var src strings.Builder
	fmt.Fprintf(&src, "domain: %s\nlimits:\n", strconv.Quote(o.Domain))
	for _, key := range o.Keys {
		name := ruleName(key)
		if byRule[name] != nil {
			return nil, nil, fmt.Errorf("duplicate key %s", strings.Join(key, ", "))
		}
		byRule[name] = &candidate{key: key, keys: map[string]*habits{}}
		fmt.Fprintf(&src, "  - {name: %s, key: %s, rate: unlimited}\n", name, yamlList(key))
	}
	rs, problems := rulefile.Parse(rulefile.Source{Name: "the keys", Data: []byte(src.String())})
	if rs == nil {
		var list []error
		for _, p := range problems {
			list = append(list, errors.New(p.Message))
		}
		return nil, nil, errors.Join(list...)
	}
	return rs, byRule, nil
}

// ruleName derives a rule name from a key.
func ruleName(key []string) string {
	return "per-" + regexp.MustCompile("[^a-z0-9]").ReplaceAllString(strings.ToLower(strings.Join(key, "-")), "-")
}

func yamlList(list []string) string {
	var quoted []string
	for _, text := range list {
		quoted = append(quoted, strconv.Quote(text))
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// propose picks the slowest refill that fills its bucket within a minute.
func (c *candidate) propose(r *rules.Rule, unaffected float64, all []refill) ProposedRule {
	n := len(c.keys)
	affected := int(float64(n) * (1 - unaffected) * (1 + 1e-12)) // 1 - 0.9 is slightly below 0.1
	affected = min(affected, n-1)
	p := ProposedRule{Name: ruleName(c.key), Key: c.key, Keys: n, Examples: []string{}}
	needs := make([]int64, 0, n)
	for i := range all {
		needs = needs[:0]
		for _, h := range c.keys {
			needs = append(needs, (h.most[i]+all[i].token-1)/all[i].token)
		}
		slices.SortFunc(needs, func(a, b int64) int { return cmp.Compare(b, a) })
		p.Choices = append(p.Choices, Choice{all[i].text, needs[affected]})
		if needs[affected] <= all[i].perMinute {
			break
		}
	}
	chosen := len(p.Choices) - 1
	p.Rate, p.Needed = p.Choices[chosen].Rate, p.Choices[chosen].Burst
	p.Burst = roundUp(p.Needed)
	limit := all[chosen].limit.WithBurst(p.Burst)
	p.Steady, p.AtOnce = refusedOf(limit, 1, steadyLoad), refusedOf(limit, atOnce, atOnceLoad)
	p.Busiest = c.busiest()
	type needing struct {
		key  string
		most int64
	}
	var over []needing
	for key, h := range c.keys {
		if h.most[chosen] > p.Burst*all[chosen].token {
			over = append(over, needing{key, h.most[chosen]})
		}
	}
	p.Affected = len(over)
	slices.SortFunc(over, func(a, b needing) int { return cmp.Or(cmp.Compare(b.most, a.most), strings.Compare(a.key, b.key)) })
	for _, one := range over[:min(5, len(over))] {
		p.Examples = append(p.Examples, keyText(r, one.key))
	}
	return p
}

// busiest returns quantiles of the keys' busiest minutes.
func (c *candidate) busiest() []Quantile {
	var list []int64
	for _, h := range c.keys {
		list = append(list, h.busiest)
	}
	slices.Sort(list)
	var out []Quantile
	for _, share := range []float64{0.5, 0.9, 0.99, 0.999, 1} {
		at := max(int(math.Ceil(share*float64(len(list))))-1, 0)
		out = append(out, Quantile{share, list[at]})
	}
	return out
}

// roundUp rounds up to two significant digits, and from 20 on to a step of 5.
func roundUp(n int64) int64 {
	unit := int64(1)
	for n/unit >= 100 {
		unit *= 10
	}
	if n/unit >= 20 {
		unit *= 5
	}
	return (n + unit - 1) / unit * unit
}

// Text returns the rule file, with comments that explain the numbers.
func (s *Suggestion) Text() string {
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format, args...) }
	p("# Suggested by headgate suggest from %s", Plural(s.Requests, "request"))
	if s.From != nil {
		p(",\n# %s to %s", s.From.Format(time.DateTime), s.To.Format(time.DateTime))
	}
	p(".\n# Test it on other days: headgate simulate --rules THIS_FILE LOG...\n" +
		"# Not for logins: traffic does not tell how many guesses are too many (docs/more/charge-on.md).\n")
	p("domain: %s\nlimits:\n", strconv.Quote(s.Domain))
	for i := range s.Proposals {
		r := &s.Proposals[i]
		p("  # %s by %s. Requests in the busiest minute:\n", Plural(int64(r.Keys), "key"), strings.Join(r.Key, " and "))
		for _, q := range r.Busiest {
			p("  #   %-15s at most %s\n", shareText(q.Share)+" of keys", Thousands(q.Value))
		}
		p("  # To never refuse at least %s of the keys, each rate needs:\n", shareText(s.Promise))
		for _, c := range r.Choices {
			p("  #   %-12s a burst of %s\n", c.Rate, Thousands(c.Burst))
		}
		p("  # Chosen: the slowest rate that fills its bucket within a minute")
		if r.Needed != r.Burst {
			p("; %s is rounded up to %s", Thousands(r.Needed), Thousands(r.Burst))
		}
		p(".\n  # Below the rate it refuses %s of the requests of steady clients, and %s of\n  # clients that send %d at once", percent(int64(math.Round(r.Steady*simulated)), simulated), percent(int64(math.Round(r.AtOnce*simulated)), simulated), atOnce)
		p(".\n  # In these logs the rule would have refused requests of %s", Plural(int64(r.Affected), "key"))
		for j, key := range r.Examples {
			p("%s\n  #   %s", map[bool]string{true: ":", false: ""}[j == 0], key)
		}
		p("\n  - name: %s\n    key: %s\n    rate: %s\n    burst: %d\n    # mode: shadow    # observe before enforcing\n", r.Name, yamlList(r.Key), r.Rate, r.Burst)
	}
	return b.String()
}

func shareText(share float64) string { return strconv.FormatFloat(100*share, 'g', 6, 64) + "%" }
