package admin

import (
	"net/http"

	"github.com/headgate/headgate/internal/queue"
)

// maxAuditIDs is how many queued requests an AuditEntry names.
const maxAuditIDs = 20

// queueSubject is what the audit says of queued requests to which the same was
// done.
type queueSubject struct{ domain, rule, before string }

// queueSubjects looks up what is to be changed: afterwards it may be gone. Of
// what cannot be found nothing is known.
func queueSubjects(r *http.Request, q *queue.Queue, ids []string) (about map[string]queueSubject, keys map[string]string) {
	about, keys = map[string]queueSubject{}, map[string]string{}
	for _, id := range ids {
		item, err := q.Find(r.Context(), id)
		if err != nil {
			continue
		}
		s := queueSubject{before: item.State.String()}
		if e := item.Entry; e != nil {
			s.domain, s.rule, keys[id] = e.Domain, e.Rule, e.Key
		}
		about[id] = s
	}
	return about, keys
}

// note takes down what was done to queued requests: a line of the log for
// each, and in memory one for each rule, so that a thousand of them do not push
// everything else out.
func (d queues) note(r *http.Request, change *queueAction, ids []string, about map[string]queueSubject, keys map[string]string) {
	by := whoAsks(r)
	entries := map[queueSubject]*AuditEntry{}
	var order []*AuditEntry
	for _, id := range ids {
		s := about[id]
		e := entries[s]
		if e == nil {
			e = &AuditEntry{
				T: d.Clock().UTC(), Action: change.name, By: by, Domain: s.domain, Rule: s.rule, Before: s.before, After: change.after,
			}
			entries[s], order = e, append(order, e)
		}
		if e.Count++; len(e.IDs) < maxAuditIDs {
			e.IDs = append(e.IDs, id)
		}
		d.Log.Info("audit", "action", change.name, "by", by, "domain", s.domain, "rule", s.rule, "key", d.Keys.Text(keys[id]),
			"id", id, "before", s.before, "after", change.after)
	}
	for _, e := range order {
		d.audit.add(e)
	}
}
