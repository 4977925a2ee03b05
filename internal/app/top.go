package app

import (
	"cmp"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate/internal/config"
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
	Key     []*string `json:"key"` // null if it is hashed
	KeyHash string    `json:"key_hash,omitempty"`
	// Count is at most Error too high, and never too low, unless some of it was
	// estimated: then it is right on average.
	Count int64 `json:"count"`
	Error int64 `json:"error"`
	// Share is that of Total, from 0 to 1.
	Share float64 `json:"share"`
}

// serveTop answers GET /v1/top.
func (a *App) serveTop(w http.ResponseWriter, r *http.Request) {
	if !onlyParameters(w, r, "domain", "rule", "by", "n") {
		return
	}
	q := r.URL.Query()
	by, ok := top.ParseBy(cmp.Or(q.Get("by"), top.Refused.String()))
	if !ok {
		wrongParameter(w, "by", q.Get("by"), []string{top.Refused.String(), top.Active.String()})
		return
	}
	n, err := strconv.Atoi(cmp.Or(q.Get("n"), strconv.Itoa(defaultTop)))
	if err != nil || n < 1 || n > maxTop {
		answer.Problem(w, http.StatusBadRequest, fmt.Sprintf("n is %q; it must be a number from 1 to %d", q.Get("n"), maxTop))
		return
	}
	list, problem := a.rulesNamed(q.Get("domain"), q.Get("rule"))
	if problem != "" {
		answer.Problem(w, http.StatusNotFound, problem)
		return
	}
	writeJSON(w, a.topOf(list, by, n))
}

// rulesNamed returns the rules of a domain with a name; an empty one stands for
// any. The problem is set if there is no such domain or rule.
func (a *App) rulesNamed(domain, name string) (list []*rules.Rule, problem string) {
	rs := a.state.Load().rules
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

func (a *App) topOf(list []*rules.Rule, by top.By, n int) *TopRules {
	out := &TopRules{Rules: []TopRule{}}
	now := a.options.Clock()
	for _, r := range list {
		t, ok := a.metrics.Top(r, by, now, n)
		if !ok || t.Total == 0 {
			continue
		}
		told := TopRule{
			Domain: r.Domain, Rule: r.Name, By: by.String(),
			ErrorBound: t.Bound, Total: t.Total, Sampled: t.Sampled, Keys: []TopKey{},
		}
		for _, k := range t.Keys {
			key := a.keyView(r, k.Key)
			told.Keys = append(told.Keys, TopKey{
				Key: key.Parts, KeyHash: key.Hash, Count: k.Count, Error: k.Error, Share: float64(k.Count) / float64(t.Total),
			})
		}
		out.Rules = append(out.Rules, told)
	}
	slices.SortStableFunc(out.Rules, func(a, b TopRule) int { return cmp.Compare(b.Total, a.Total) })
	out.Rules = out.Rules[:min(len(out.Rules), maxTopRules)]
	return out
}

// keyView is a key as it may be seen: its parts, or, if so configured, a hash
// that tells keys apart and nothing else.
func (a *App) keyView(_ *rules.Rule, key string) metrics.Key {
	if a.hashesKeys() {
		return metrics.Key{Hash: a.keyHash(key)}
	}
	parts, ok := rules.SplitKey(key)
	if !ok {
		return metrics.Key{Hash: a.keyHash(key)}
	}
	k := metrics.Key{Parts: []*string{}}
	for i := range parts {
		if parts[i].Missing {
			k.Parts = append(k.Parts, nil)
			continue
		}
		text := strings.Clone(parts[i].Text()) // the key is good for a moment only
		k.Parts = append(k.Parts, &text)
	}
	return k
}

// keyText is keyView as a text, for the log. There it is hashed unless plain
// keys are asked for.
func (a *App) keyText(key string) string {
	if a.options.Config.Admin.Keys != config.PlainKeys {
		return a.keyHash(key)
	}
	parts, _ := rules.SplitKey(key)
	var texts []string
	for _, p := range parts {
		texts = append(texts, p.Text())
	}
	return strings.Join(texts, " ")
}

// hashesKeys reports whether operators see hashes in place of keys.
func (a *App) hashesKeys() bool {
	switch a.options.Config.Admin.Keys {
	case config.PlainKeys:
		return false
	case config.HashedKeys:
		return true
	case config.AutoKeys:
	}
	return !config.IsLoopback(a.options.Config.Listen.Admin)
}

// keyHash is the same for a key as long as the process runs. Without its
// secret an address could be found by trying all of them.
func (a *App) keyHash(key string) string {
	a.keySecret.once.Do(func() { _, _ = rand.Read(a.keySecret.secret[:]) })
	mac := hmac.New(sha256.New, a.keySecret.secret[:])
	_, _ = mac.Write([]byte(key))
	return hex.EncodeToString(mac.Sum(nil)[:8])
}
