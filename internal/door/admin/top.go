package admin

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"

	"github.com/headgate/headgate/internal/door/answer"
	"github.com/headgate/headgate/internal/observe/metrics"
	"github.com/headgate/headgate/internal/observe/top"
	"github.com/headgate/headgate/internal/rules"
)

const (
	defaultTop = 20
	// maxTop is how many keys of a rule are told at most, maxTopRules of how
	// many rules.
	maxTop      = 2 * top.Counters
	maxTopRules = 100
)

// TopRules is the answer of GET /v1/top.
type TopRules struct {
	// Rules are those with the most requests first.
	Rules []TopRule `json:"rules"`
}

// TopRule is the most frequent keys of one rule.
type TopRule struct {
	Domain string `json:"domain"`
	Rule   string `json:"rule"`
	By     string `json:"by"`
	// ErrorBound is how often a key that is not told may have occurred.
	ErrorBound int64 `json:"error_bound"`
	// Total is all there were, Sampled how much of it was estimated.
	Total   int64 `json:"total"`
	Sampled int64 `json:"sampled"`
	// Keys are in descending order.
	Keys []TopKey `json:"keys"`
}

// TopKey is one key.
type TopKey struct {
	metrics.Key
	// Count is at most Error too high, and never too low, unless some of it was
	// estimated: then it is right on average.
	Count int64 `json:"count"`
	Error int64 `json:"error"`
	// Share is that of Total, from 0 to 1.
	Share float64 `json:"share"`
}

// top answers GET /v1/top.
func (d reports) top(w http.ResponseWriter, r *http.Request) {
	if !onlyParameters(w, r, "domain", "rule", "by", "n") {
		return
	}
	q := r.URL.Query()
	by, ok := top.ParseBy(cmp.Or(q.Get("by"), top.Refused.String()))
	if !ok {
		wrongParameter(w, "by", q.Get("by"), []string{top.Refused.String(), top.Active.String()})
		return
	}
	n, ok := numberParameter(w, r, defaultTop, 1, maxTop)
	if !ok {
		return
	}
	list, problem := rulesNamed(d.Engine.Rules(), q.Get("domain"), q.Get("rule"))
	if problem != "" {
		answer.Problem(w, http.StatusNotFound, problem)
		return
	}
	writeJSON(w, d.topOf(list, by, n))
}

// rulesNamed returns the rules of a domain with a name; an empty one stands for
// any. The problem is set if there is no such domain or rule.
func rulesNamed(rs *rules.Ruleset, domain, name string) (list []*rules.Rule, problem string) {
	if domain != "" && !slices.Contains(rs.Domains(), domain) {
		return nil, fmt.Sprintf("there is no domain %q%s", domain, nearestOf(domain, rs.Domains()))
	}
	var known []string
	for _, r := range rs.Rules() {
		if domain != "" && r.Domain != domain {
			continue
		}
		known = append(known, r.Name)
		if name == "" || r.Name == name {
			list = append(list, r)
		}
	}
	if name != "" && len(list) == 0 {
		return nil, fmt.Sprintf("there is no rule %q%s", name, nearestOf(name, known))
	}
	return list, ""
}

func (d reports) topOf(list []*rules.Rule, by top.By, n int) *TopRules {
	out := &TopRules{Rules: []TopRule{}}
	now := d.Clock()
	for _, r := range list {
		t, ok := d.Metrics.Top(r, by, now, n)
		if !ok || t.Total == 0 {
			continue
		}
		out.Rules = append(out.Rules, TopRule{
			Domain: r.Domain, Rule: r.Name, By: by.String(),
			ErrorBound: t.Bound, Total: t.Total, Sampled: t.Sampled, Keys: d.topKeys(t.Keys, t.Total),
		})
	}
	slices.SortStableFunc(out.Rules, func(a, b TopRule) int { return cmp.Compare(b.Total, a.Total) })
	out.Rules = out.Rules[:min(len(out.Rules), maxTopRules)]
	return out
}

// topKeys tells keys, of which there were so many in all.
func (o *Options) topKeys(list []top.Count, total int64) []TopKey {
	told := []TopKey{}
	for _, k := range list {
		told = append(told, TopKey{Key: o.Keys.Of(k.Key), Count: k.Count, Error: k.Error, Share: float64(k.Count) / float64(total)})
	}
	return told
}
