package app

import (
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/decide/control"
	"github.com/headgate/headgate/internal/door/answer"
)

// maxAudit is how many changes are remembered.
const maxAudit = 1000

// AuditEntry is a change that an operator made.
type AuditEntry struct {
	T       time.Time `json:"t"`
	Action  string    `json:"action"`
	By      string    `json:"by"`
	Domain  string    `json:"domain"`
	Rule    string    `json:"rule"`
	Key     []*string `json:"key"` // null if it is hashed
	KeyHash string    `json:"key_hash,omitempty"`
	Reason  string    `json:"reason,omitempty"`
	Before  string    `json:"before"`
	After   string    `json:"after"`
	// Of what was done to queued requests, how many there were, and the first of
	// them. The log has them all, with their keys.
	Count int      `json:"count,omitempty"`
	IDs   []string `json:"ids,omitempty"`
}

// audit remembers the last changes made through this process.
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

// last returns the last n, the newest first.
func (l *audit) last(n int) []AuditEntry {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := []AuditEntry{}
	for i := range min(n, len(l.ring)) {
		out = append(out, l.ring[(l.next+len(l.ring)-1-i)%len(l.ring)])
	}
	return out
}

// note takes a change down, in the log and in memory.
func (a *App) note(c *keyCall, before, after string) {
	key := a.keyView(nil, c.key)
	a.audit.add(&AuditEntry{
		T: c.now.UTC(), Action: c.action, By: c.by, Domain: c.domain, Rule: c.rule,
		Key: key.Parts, KeyHash: key.Hash, Reason: c.body.Reason, Before: before, After: after,
	})
	a.log.Info("audit", "action", c.action, "by", c.by, "domain", c.domain, "rule", c.rule, "key", a.keyText(c.key),
		"reason", c.body.Reason, "before", before, "after", after)
}

// listAudit answers GET /v1/audit.
func (a *App) listAudit(w http.ResponseWriter, r *http.Request) {
	if !onlyParameters(w, r, "n") {
		return
	}
	n, ok := countParameter(w, r, maxAudit)
	if !ok {
		return
	}
	writeJSON(w, struct {
		Audit []AuditEntry `json:"audit"`
	}{a.audit.last(n)})
}

// countParameter returns the parameter n, which is most if it is not there.
func countParameter(w http.ResponseWriter, r *http.Request, most int) (int, bool) {
	text := r.URL.Query().Get("n")
	if text == "" {
		return most, true
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		answer.Problem(w, http.StatusBadRequest, fmt.Sprintf("n is %q; it must be a number from 1 to %d", text, most))
		return 0, false
	}
	return n, true
}

// Overrides is the answer of GET /v1/overrides.
type Overrides struct {
	// Overrides are the newest bans and overrides, Total how many there are.
	Overrides []Override `json:"overrides"`
	Total     int        `json:"total"`
}

// Override is a ban, or a limit in place of a rule's.
type Override struct {
	Domain  string    `json:"domain"`
	Rule    string    `json:"rule"`
	Key     []*string `json:"key"` // null if it is hashed
	KeyHash string    `json:"key_hash,omitempty"`
	Kind    string    `json:"kind"` // ban or limit
	Rate    string    `json:"rate,omitempty"`
	Burst   int64     `json:"burst,omitempty"`
	Until   time.Time `json:"until"`
	Reason  string    `json:"reason"`
	By      string    `json:"by"`
	Created time.Time `json:"created"`
	// NoRule says that there is no such rule any more.
	NoRule bool `json:"no_rule,omitempty"`
}

// listOverrides answers GET /v1/overrides.
func (a *App) listOverrides(w http.ResponseWriter, r *http.Request) {
	if !onlyParameters(w, r, "domain", "rule", "n") {
		return
	}
	n, ok := countParameter(w, r, control.MaxEntries)
	if !ok {
		return
	}
	domain, rule := r.URL.Query().Get("domain"), r.URL.Query().Get("rule")
	out := Overrides{Overrides: []Override{}}
	rs := a.state.Load().rules
	for _, e := range a.control.Entries() {
		if domain != "" && e.Domain != domain || rule != "" && e.Rule != rule {
			continue
		}
		out.Total++
		if len(out.Overrides) >= n {
			continue
		}
		key := a.keyView(nil, e.Key)
		out.Overrides = append(out.Overrides, Override{
			Domain: e.Domain, Rule: e.Rule, Key: key.Parts, KeyHash: key.Hash, Kind: e.Kind.String(), Rate: e.Rate, Burst: e.Burst,
			Until: e.Until, Reason: e.Reason, By: e.By, Created: e.Created, NoRule: rs.Rule(e.Domain, e.Rule) == nil,
		})
	}
	writeJSON(w, out)
}
