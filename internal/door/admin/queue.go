package admin

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/headgate/headgate/internal/observe/metrics"
	"github.com/headgate/headgate/internal/queue"
	"github.com/headgate/headgate/internal/rules"
)

// QueueList is the answer of GET /v1/queue.
type QueueList struct {
	Queues []QueueStats `json:"queues"` // one for each rule with on_limit: queue
}

// QueueStats describes the queue of one rule. Pending and dead requests are those of
// all processes that share the queue; the rest is counted by this process since it
// started.
type QueueStats struct {
	Domain      string `json:"domain"`
	Rule        string `json:"rule"`
	Depth       int64  `json:"depth"`         // requests that wait
	Bytes       int64  `json:"bytes"`         // the space that they take
	OldestAgeMS int64  `json:"oldest_age_ms"` // for how long the oldest has waited
	InFlight    int64  `json:"in_flight"`     // requests that this process is sending
	Delivered   uint64 `json:"delivered"`     // attempts of this process that the backend took
	Failed      uint64 `json:"failed"`        // attempts of this process that failed
	Dead        int64  `json:"dead"`          // requests that were given up
	Accepted    uint64 `json:"accepted"`      // requests that this process has queued
	Repeated    uint64 `json:"repeated"`      // repeats that this process recognised by their idempotency key
	Full        uint64 `json:"full"`          // requests that this process refused because the queue was full
	Errors      uint64 `json:"errors"`        // requests that could not be saved
}

// QueueItems is the answer of GET /v1/queue/items.
type QueueItems struct {
	Items []QueueItem `json:"items"` // the oldest first
}

// QueueItem is one queued request.
type QueueItem struct {
	ID     string `json:"id"`    // its id, which the caller was given
	State  string `json:"state"` // pending, dead (given up) or delivered
	Domain string `json:"domain,omitempty"`
	Rule   string `json:"rule,omitempty"`
	metrics.Key
	Method         string      `json:"method,omitempty"`          // its method
	URI            string      `json:"uri,omitempty"`             // its path and query
	Host           string      `json:"host,omitempty"`            // its host
	Header         http.Header `json:"header,omitempty"`          // its header fields
	BodyBytes      int         `json:"body_bytes"`                // the size of its body
	Body           string      `json:"body,omitempty"`            // its body, if that is text
	BodyBase64     []byte      `json:"body_base64,omitempty"`     // its body, if that is not text
	IdempotencyKey string      `json:"idempotency_key,omitempty"` // the key under which repeats are recognised
	AcceptedAt     time.Time   `json:"accepted_at"`               // when it was queued
	ExpiresAt      time.Time   `json:"expires_at,omitzero"`       // when it is dropped if it is still here
	Attempts       int         `json:"attempts"`                  // how often it was sent
	NextAttemptAt  time.Time   `json:"next_attempt_at,omitzero"`  // when it is sent again
	GivenUpAt      time.Time   `json:"given_up_at,omitzero"`      // when it was given up
	DeliveredAt    time.Time   `json:"delivered_at,omitzero"`     // when the backend took it
	LastStatus     int         `json:"last_status,omitempty"`     // what the backend answered last
	LastError      string      `json:"last_error,omitempty"`      // why it could not be sent
}

// QueueChange is the body of POST /v1/queue/retry and /v1/queue/drop. It is also their
// answer, with the ids that were found.
type QueueChange struct {
	IDs []string `json:"ids"` // queued requests
}

const (
	// defaultItems and maxItems limit how many entries are listed.
	defaultItems = 50
	maxItems     = 1000
	statsTimeout = 2 * time.Second // how long a store may take to return statistics
)

// queues lets operators inspect, retry and drop queued requests.
type queues struct {
	*Options
	audit *audit
}

func (d queues) routes() map[string]http.Handler {
	return map[string]http.Handler{
		"GET /v1/queue":            asked(d.stats),
		"GET /v1/queue/items":      d.existing(d.items, "state", "domain", "rule", "n"),
		"GET /v1/queue/items/{id}": d.existing(d.item, "body"),
		"POST /v1/queue/retry":     d.existing(d.change(&queueAction{"queue_retry", queue.Pending.String(), (*queue.Queue).Retry, d.ids})),
		"POST /v1/queue/drop":      d.existing(d.change(&queueAction{"queue_drop", "dropped", (*queue.Queue).Drop, d.idsOrKey})),
	}
}

// existing answers 404 while there is no queue, and refuses query parameters other than
// known.
func (d queues) existing(f func(w http.ResponseWriter, r *http.Request, q *queue.Queue) (any, error), known ...string) http.Handler {
	return asked(func(w http.ResponseWriter, r *http.Request) (any, error) {
		q := d.Queue()
		if q == nil {
			return nil, problemf(http.StatusNotFound, "no rule has on_limit: queue")
		}
		out, err := f(w, r, q)
		if errors.Is(err, queue.ErrNotFound) {
			err = problemf(http.StatusNotFound, "no such entry")
		}
		return out, err
	}, known...)
}

// stats answers GET /v1/queue.
func (d queues) stats(_ http.ResponseWriter, r *http.Request) (any, error) {
	list := QueueList{Queues: []QueueStats{}}
	if q := d.Queue(); q != nil {
		ctx, cancel := context.WithTimeout(r.Context(), statsTimeout)
		defer cancel()
		stats, err := q.Stats(ctx)
		if err != nil {
			return nil, err
		}
		for i := range stats {
			s := &stats[i]
			list.Queues = append(list.Queues, QueueStats{
				Domain: s.Domain, Rule: s.Rule, Depth: s.Entries, Bytes: s.Bytes, OldestAgeMS: s.Age(d.Clock()).Milliseconds(),
				InFlight: s.InFlight, Delivered: s.Delivered, Failed: s.Failed, Dead: s.Dead,
				Accepted: s.Accepted, Repeated: s.Repeated, Full: s.Full, Errors: s.Errors,
			})
		}
	}
	for _, r := range d.Engine.Rules().Rules() { // also those that have not queued anything yet
		same := func(q QueueStats) bool { return q.Domain == r.Domain && q.Rule == r.Name }
		if r.OnLimit.Action == rules.Queue && !slices.ContainsFunc(list.Queues, same) {
			list.Queues = append(list.Queues, QueueStats{Domain: r.Domain, Rule: r.Name})
		}
	}
	return &list, nil
}

// items answers GET /v1/queue/items.
func (d queues) items(_ http.ResponseWriter, r *http.Request, q *queue.Queue) (any, error) {
	asked := r.URL.Query()
	state, ok := queue.ParseState(cmp.Or(asked.Get("state"), queue.Pending.String()))
	if !ok || state == queue.Delivered {
		return nil, wrongParameter("state", asked.Get("state"), []string{queue.Pending.String(), queue.Dead.String()})
	}
	n, err := numberParameter(r, defaultItems, 1, maxItems)
	if err != nil {
		return nil, err
	}
	items, err := q.List(r.Context(), queue.Query{State: state, Domain: asked.Get("domain"), Rule: asked.Get("rule"), Limit: n})
	if err != nil {
		return nil, err
	}
	list := QueueItems{Items: []QueueItem{}}
	for i := range items {
		list.Items = append(list.Items, d.itemOf(items[i].Entry.ID, &items[i]))
	}
	return &list, nil
}

// item answers GET /v1/queue/items/ID. With ?body=true it includes the body.
func (d queues) item(_ http.ResponseWriter, r *http.Request, q *queue.Queue) (any, error) {
	id := r.PathValue("id")
	item, err := q.Find(r.Context(), id)
	if err != nil {
		return nil, err
	}
	told := d.itemOf(id, item)
	if e := item.Entry; e != nil {
		told.Header = d.seenHeader(e)
		if r.URL.Query().Get("body") == "true" {
			if utf8.Valid(e.Body) {
				told.Body = string(e.Body)
			} else {
				told.BodyBase64 = e.Body
			}
		}
	}
	return &told, nil
}

// itemOf returns an entry without its header and body.
func (d queues) itemOf(id string, item *queue.Item) QueueItem {
	told := QueueItem{ID: id, State: item.State.String()}
	if item.State == queue.Delivered {
		r := &item.Result
		told.Attempts, told.AcceptedAt, told.DeliveredAt, told.LastStatus = r.Attempts, r.Accepted, r.Delivered, r.Status
		return told
	}
	e, tried := item.Entry, &item.Attempts
	told.Domain, told.Rule, told.Key = e.Domain, e.Rule, d.Keys.Of(e.Key)
	told.Method, told.URI, told.Host, told.BodyBytes = e.Method, e.URI, e.Host, len(e.Body)
	told.IdempotencyKey, told.AcceptedAt, told.ExpiresAt = e.IdempotencyKey, e.Accepted, e.Expires
	told.Attempts, told.GivenUpAt, told.LastStatus, told.LastError = tried.Count, tried.Ended, tried.Status, tried.Error
	if item.State == queue.Pending {
		told.NextAttemptAt = tried.Next
	}
	d.veil(e, &told)
	return told
}

// queueAction is a change that operators may make to queued requests.
type queueAction struct {
	name  string // for the audit
	after string // the state of the requests afterwards
	do    func(*queue.Queue, context.Context, []string) ([]string, error)
	// named returns the ids that the body of a request names.
	named func(ctx context.Context, q *queue.Queue, body []byte) ([]string, error)
}

// change answers POST /v1/queue/retry and drop.
func (d queues) change(change *queueAction) func(http.ResponseWriter, *http.Request, *queue.Queue) (any, error) {
	return func(w http.ResponseWriter, r *http.Request, q *queue.Queue) (any, error) {
		body, err := readBody(w, r)
		if err != nil {
			return nil, err
		}
		ids, err := change.named(r.Context(), q, body)
		if err != nil {
			return nil, err
		}
		about, keys := queueSubjects(r, q, ids)
		found, err := change.do(q, r.Context(), ids)
		if err != nil {
			return nil, err
		}
		d.note(r, change, found, about, keys)
		if found == nil {
			found = []string{}
		}
		return &QueueChange{IDs: found}, nil
	}
}

// maxAuditIDs is how many queued requests an AuditEntry names.
const maxAuditIDs = 20

// queueSubject groups changed requests in the audit.
type queueSubject struct{ domain, rule, before string }

// queueSubjects looks up the requests before the change, since they may be gone
// afterwards. It skips those it cannot find.
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

// note records a change of queued requests: a log line for each request, but only
// one audit entry for each rule, so that a thousand requests do not push out
// everything else.
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

// QueueDropKey is the body of POST /v1/queue/drop without ids: a rule and a key, as in
// POST /v1/keys/{action}.
type QueueDropKey struct {
	Domain string `json:"domain,omitempty"` // all, if there is none
	Rule   string `json:"rule,omitempty"`   // all rules of the domain, if there is none
	Key    any    `json:"key"`              // the parts in order; or an object by attribute
}

// ids reads a QueueChange.
func (d queues) ids(_ context.Context, _ *queue.Queue, body []byte) ([]string, error) {
	ids, err := readIDs(body)
	if err != nil {
		return nil, wrong(`the body must be {"ids":["…"]}: %v`, err)
	}
	return ids, nil
}

// idsOrKey reads a QueueChange or a QueueDropKey. For a key, it returns the ids of its
// requests: at most maxItems, pending ones first.
func (d queues) idsOrKey(ctx context.Context, q *queue.Queue, body []byte) ([]string, error) {
	var keyed struct{ Key json.RawMessage }
	if json.Unmarshal(body, &keyed) != nil || keyed.Key == nil {
		return d.ids(ctx, q, body)
	}
	action := KeyAction{Name: "drop"}
	named, err := parseKeyBody(&action, body, d.Clock())
	if err != nil {
		return nil, wrong("%v", err)
	}
	targets, err := keys(d).targets(&action, named)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, state := range []queue.State{queue.Pending, queue.Dead} {
		for i := 0; i < len(targets) && len(ids) < maxItems; i++ {
			items, err := q.List(ctx, queue.Query{
				State: state, Lane: &queue.Line{Scope: targets[i].scope, Key: targets[i].key}, Limit: maxItems - len(ids),
			})
			if err != nil {
				return nil, err
			}
			for j := range items {
				ids = append(ids, items[j].Entry.ID)
			}
		}
	}
	return ids, nil
}

// readIDs reads a QueueChange.
func readIDs(body []byte) ([]string, error) {
	var want QueueChange
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&want); err != nil {
		return nil, err
	}
	if decoder.More() {
		return nil, errors.New("unexpected data after the JSON object")
	}
	if len(want.IDs) == 0 || len(want.IDs) > maxItems || slices.Contains(want.IDs, "") {
		return nil, fmt.Errorf("ids must have 1 to %d elements", maxItems)
	}
	return want.IDs, nil
}
