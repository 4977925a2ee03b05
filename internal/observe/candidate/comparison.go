package candidate

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/observe/top"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/store"
)

const (
	maxRules    = 1000      // rules counted separately in a comparison; the rest count as Other
	maxSamples  = 20        // how many differences are kept as samples
	sampleEvery = 1_000_000 // once there are maxSamples, the pause in microseconds before the next is kept
	maxText     = 256       // the longest path or method in a sample, in bytes
)

// Other is the rule name for differences when there are too many rules to count
// separately.
const Other = "(other)"

// Report is the result of a comparison.
type Report struct {
	Since  time.Time       // when it started
	Counts [Changes]uint64 // the requests of each Change
	// By lists the rules that cause the differences, most differences first.
	By      []RuleChange
	Samples []Sample // some of the differences, oldest first
}

// RuleChange is what one rule changes.
type RuleChange struct {
	Domain string
	// Rule is the candidate's rule that refuses or, for a newly allowed request, the
	// live rule that does. It is empty if no rule caused the refusal.
	Rule   string
	Change Change
	Keys   top.Top // the number of requests, and the most affected keys
}

// Sample is one difference.
type Sample struct {
	At           time.Time
	Door         engine.Door
	Domain       string
	Change       Change
	Rule, Key    string         // Rule is as in RuleChange, Key is the key it counted
	Method, Path string         // from the request, if present, shortened
	Decision     store.Decision // that of Rule
}

// comparison counts differences from its start on.
type comparison struct {
	since  time.Time
	shards []shard

	// Differences should be rare, so one lock is enough.
	mu       sync.Mutex
	rules    map[reason]*top.Counter
	samples  []Sample
	next     int   // the oldest sample, once there are maxSamples
	sampled  int64 // when the last one was kept
	overflow [Changes]*top.Counter
}

// reason is a rule and its effect. Rules are identified by name, since rules that come
// with their request are never the same object.
type reason struct {
	domain, rule string
	change       Change
}

func newComparison(now time.Time) *comparison {
	return &comparison{since: now, shards: newShards(), rules: map[reason]*top.Counter{}}
}

// difference is one difference.
type difference struct {
	change   Change
	at       int64
	door     engine.Door
	domain   string
	request  rules.Request
	hidden   bool // the path of request, which a rule of the domain hashes
	rule     *rules.Rule
	key      string
	decision store.Decision
}

// differ adds n if the verdicts differ, under the rule that refuses: the old one or the
// new one.
func (c *comparison) differ(n *difference, before, after *engine.Verdict) {
	v := before
	if n.change == NewlyRefused {
		v = after
	} else if n.change != NewlyAllowed {
		return
	}
	if v.Rule != nil {
		n.rule, n.decision = v.Rule, v.Decision
		if r := v.Refuser(); r != nil {
			n.key = r.Key
		}
	}
	c.add(n)
}

func (c *comparison) add(n *difference) {
	r := reason{domain: n.domain, change: n.change}
	if n.rule != nil {
		r.rule = n.rule.Name
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counter(r).Add(n.key)
	full := len(c.samples) == maxSamples
	if since := n.at - c.sampled; full && since >= 0 && since < sampleEvery {
		return
	}
	c.sampled = n.at
	s := n.sample(r)
	if !full {
		c.samples = append(c.samples, s)
		return
	}
	c.samples[c.next] = s
	c.next = (c.next + 1) % maxSamples
}

// counter returns the counter of differences for a reason. c.mu must be held.
func (c *comparison) counter(r reason) *top.Counter {
	t := c.rules[r]
	switch {
	case t != nil:
	case len(c.rules) < maxRules:
		t = top.NewCounter()
		c.rules[reason{strings.Clone(r.domain), strings.Clone(r.rule), r.change}] = t
	default:
		if c.overflow[r.change] == nil {
			c.overflow[r.change] = top.NewCounter()
		}
		t = c.overflow[r.change]
	}
	return t
}

func (n *difference) sample(r reason) Sample {
	s := Sample{
		At: time.UnixMicro(n.at).UTC(), Door: n.door, Domain: strings.Clone(r.domain), Change: r.change,
		Rule: strings.Clone(r.rule), Key: strings.Clone(n.key), Decision: n.decision,
	}
	if n.request != nil {
		method, _ := n.request.Attribute(rules.Attribute{Kind: rules.Method})
		s.Method = shortened(method)
		if !n.hidden {
			path, _ := n.request.Attribute(rules.Attribute{Kind: rules.Path})
			s.Path = shortened(path)
		}
	}
	return s
}

// shortened returns a copy of at most maxText bytes of valid UTF-8.
func shortened(text string) string {
	return strings.ToValidUTF8(strings.Clone(text[:min(len(text), maxText)]), "\uFFFD")
}

func (c *comparison) report(n int) Report {
	out := Report{Since: c.since, Counts: sum(c.shards)}
	c.mu.Lock()
	defer c.mu.Unlock()
	for r, t := range c.rules {
		out.By = append(out.By, RuleChange{r.domain, r.rule, r.change, t.Top(n)})
	}
	for change, t := range c.overflow {
		if t != nil {
			out.By = append(out.By, RuleChange{Other, Other, Change(change), t.Top(n)})
		}
	}
	slices.SortFunc(out.By, func(a, b RuleChange) int {
		return cmp.Or(cmp.Compare(b.Keys.Total, a.Keys.Total), cmp.Compare(a.Change, b.Change),
			strings.Compare(a.Domain, b.Domain), strings.Compare(a.Rule, b.Rule))
	})
	out.Samples = append(append(out.Samples, c.samples[c.next:]...), c.samples[:c.next]...)
	return out
}
