package admin

import (
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/decide/control"
	"github.com/headgate/headgate/internal/observe/metrics"
	"github.com/headgate/headgate/internal/rules"
)

// maxAudit is the number of changes kept.
const maxAudit = 1000

// AuditEntry is a change made by an operator, or a ban by a feature of rules.
type AuditEntry struct {
	T      time.Time `json:"t"`      // when
	Action string    `json:"action"` // what was done: ban, grant, rollback and so on
	By     string    `json:"by"`     // the user and address that asked, or on_repeat
	Domain string    `json:"domain"`
	Rule   string    `json:"rule"`
	metrics.Key
	Reason string   `json:"reason,omitempty"` // what the operator gave as the reason
	Before string   `json:"before"`           // the state before, in words
	After  string   `json:"after"`            // the state after, in words
	Count  int      `json:"count,omitempty"`  // how many queued requests were changed
	IDs    []string `json:"ids,omitempty"`    // the ids of the first queued requests that were changed; the log has all of them
}

// audit keeps the last changes made through this process.
type audit struct {
	mu   sync.Mutex
	ring []AuditEntry
	next int
}

func (l *audit) add(e *AuditEntry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.ring) < maxAudit {
		l.ring = append(l.ring, *e)
		return
	}
	l.ring[l.next] = *e
	l.next = (l.next + 1) % maxAudit
}

// last returns the last n changes, newest first.
func (l *audit) last(n int) []AuditEntry {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := []AuditEntry{}
	for i := range min(n, len(l.ring)) {
		out = append(out, l.ring[(l.next+len(l.ring)-1-i)%len(l.ring)])
	}
	return out
}

// note records a change in the log and in memory.
func (k keys) note(c *keyCall, before, after string) {
	k.audit.add(&AuditEntry{
		T: c.now.UTC(), Action: c.action, By: c.by, Domain: c.domain, Rule: c.rule,
		Key: k.Keys.Of(c.key), Reason: c.body.Reason, Before: before, After: after,
	})
	k.Log.Info("audit", "action", c.action, "by", c.by, "domain", c.domain, "rule", c.rule, "key", k.Keys.Text(c.key),
		"reason", c.body.Reason, "before", before, "after", after)
}

// listAudit answers GET /v1/audit.
func (k keys) listAudit(_ http.ResponseWriter, r *http.Request) (any, error) {
	n, err := numberParameter(r, maxAudit, 1, maxAudit)
	if err != nil {
		return nil, err
	}
	return map[string]any{"audit": k.withBans(k.audit.last(n), n)}, nil
}

// withBans adds the last bans by features to the last n changes.
func (k keys) withBans(list []AuditEntry, n int) []AuditEntry {
	for _, b := range k.Features.Last(n) {
		e := AuditEntry{
			T: b.From.UTC(), Action: "ban", By: b.By, Domain: b.Rule.Domain, Rule: b.Rule.Name,
			Key: k.Keys.Of(b.Key), Reason: b.Reason, Before: "none", After: entryText(&control.Entry{Kind: control.Ban, Until: b.Until.UTC()}),
		}
		if b.Mode == rules.Shadow {
			e.Action, e.After = "would_ban", "would be "+e.After
		}
		list = append(list, e)
	}
	slices.SortStableFunc(list, func(a, b AuditEntry) int { return b.T.Compare(a.T) })
	return list[:min(n, len(list))]
}

// Overrides is the answer of GET /v1/overrides.
type Overrides struct {
	Overrides []Override `json:"overrides"` // the newest bans and overrides
	Total     int        `json:"total"`     // how many there are in all
}

// Override is a ban, or a limit that replaces a rule's.
type Override struct {
	Domain string `json:"domain"`
	Rule   string `json:"rule"`
	metrics.Key
	Kind    string    `json:"kind"`              // ban or limit
	Rate    string    `json:"rate,omitempty"`    // of an override: the limit, such as 100/minute
	Burst   int64     `json:"burst,omitempty"`   // of an override: the burst, if it has its own
	Until   time.Time `json:"until"`             // when it ends
	Reason  string    `json:"reason"`            // what the operator gave as the reason
	By      string    `json:"by"`                // the user and address that asked, or on_repeat
	Created time.Time `json:"created"`           // when it was made
	NoRule  bool      `json:"no_rule,omitempty"` // the rule no longer exists
}

// listOverrides answers GET /v1/overrides.
func (k keys) listOverrides(_ http.ResponseWriter, r *http.Request) (any, error) {
	n, err := numberParameter(r, control.MaxEntries, 1, control.MaxEntries)
	if err != nil {
		return nil, err
	}
	domain, rule := r.URL.Query().Get("domain"), r.URL.Query().Get("rule")
	out := Overrides{Overrides: []Override{}}
	rs := k.Engine.Rules()
	for _, e := range k.Control.Entries() {
		if domain != "" && e.Domain != domain || rule != "" && e.Rule != rule {
			continue
		}
		out.Total++
		if len(out.Overrides) >= n {
			continue
		}
		out.Overrides = append(out.Overrides, Override{
			Domain: e.Domain, Rule: e.Rule, Key: k.Keys.Of(e.Key), Kind: e.Kind.String(), Rate: e.Rate, Burst: e.Burst,
			Until: e.Until, Reason: e.Reason, By: e.By, Created: e.Created, NoRule: rs.Rule(e.Domain, e.Rule) == nil,
		})
	}
	return out, nil
}
