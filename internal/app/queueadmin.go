package app

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/internal/door/answer"
	"github.com/headgate/headgate/internal/observe/metrics"
	"github.com/headgate/headgate/internal/queue"
)

// QueueList is the answer of GET /v1/queue.
type QueueList struct {
	Queues []QueueStats `json:"queues"`
}

// QueueStats are how the queue of one rule does. What is pending and dead is
// that of all processes that share it; the rest this one counted since it began.
type QueueStats struct {
	Domain      string `json:"domain"`
	Rule        string `json:"rule"`
	Depth       int64  `json:"depth"`
	Bytes       int64  `json:"bytes"`
	OldestAgeMS int64  `json:"oldest_age_ms"`
	InFlight    int64  `json:"in_flight"`
	Delivered   uint64 `json:"delivered"`
	Failed      uint64 `json:"failed"`
	Dead        int64  `json:"dead"`
	Accepted    uint64 `json:"accepted"`
	Repeated    uint64 `json:"repeated"`
	Full        uint64 `json:"full"`
	Errors      uint64 `json:"errors"`
}

// QueueItems is the answer of GET /v1/queue/items.
type QueueItems struct {
	Items []QueueItem `json:"items"`
}

// QueueItem is one entry.
type QueueItem struct {
	ID     string `json:"id"`
	State  string `json:"state"`
	Domain string `json:"domain,omitempty"`
	Rule   string `json:"rule,omitempty"`
	metrics.Key
	Method         string      `json:"method,omitempty"`
	URI            string      `json:"uri,omitempty"`
	Host           string      `json:"host,omitempty"`
	Header         http.Header `json:"header,omitempty"`
	BodyBytes      int         `json:"body_bytes"`
	Body           string      `json:"body,omitempty"`
	BodyBase64     []byte      `json:"body_base64,omitempty"`
	IdempotencyKey string      `json:"idempotency_key,omitempty"`
	AcceptedAt     time.Time   `json:"accepted_at"`
	ExpiresAt      time.Time   `json:"expires_at,omitzero"`
	Attempts       int         `json:"attempts"`
	NextAttemptAt  time.Time   `json:"next_attempt_at,omitzero"`
	GivenUpAt      time.Time   `json:"given_up_at,omitzero"`
	DeliveredAt    time.Time   `json:"delivered_at,omitzero"`
	LastStatus     int         `json:"last_status,omitempty"`
	LastError      string      `json:"last_error,omitempty"`
}

// QueueChange is the body of POST /v1/queue/retry and /v1/queue/drop, and with
// those ids that were found the answer.
type QueueChange struct {
	IDs []string `json:"ids"`
}

const (
	// defaultItems and maxItems are how many entries are listed.
	defaultItems = 50
	maxItems     = 1000
	// statsTimeout is how long a store may take to say how much it has.
	statsTimeout = 2 * time.Second
)

// queueRoutes are those of the admin door.
func (a *App) queueRoutes() map[string]http.Handler {
	return map[string]http.Handler{
		"GET /v1/queue":            http.HandlerFunc(a.queueStats),
		"GET /v1/queue/items":      a.withQueue(a.queueItems),
		"GET /v1/queue/items/{id}": a.withQueue(a.queueItem),
		"POST /v1/queue/retry":     a.withQueue(a.queueChange(&queueAction{"queue_retry", queue.Pending.String(), (*queue.Queue).Retry})),
		"POST /v1/queue/drop":      a.withQueue(a.queueChange(&queueAction{"queue_drop", "dropped", (*queue.Queue).Drop})),
	}
}

// withQueue answers 404 while there is no queue.
func (a *App) withQueue(f func(w http.ResponseWriter, r *http.Request, q *queue.Queue)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := a.queue.Load()
		if q == nil {
			answer.Problem(w, http.StatusNotFound, "no rule queues requests")
			return
		}
		f(w, r, q)
	})
}

// queueStats answers GET /v1/queue.
func (a *App) queueStats(w http.ResponseWriter, r *http.Request) {
	list := QueueList{Queues: []QueueStats{}}
	if q := a.queue.Load(); q != nil {
		ctx, cancel := context.WithTimeout(r.Context(), statsTimeout)
		defer cancel()
		stats, err := q.Stats(ctx)
		if err != nil {
			queueFailed(w, err)
			return
		}
		for i := range stats {
			s := &stats[i]
			list.Queues = append(list.Queues, QueueStats{
				Domain: s.Domain, Rule: s.Rule, Depth: s.Depth, Bytes: s.Bytes, OldestAgeMS: a.ageOf(s).Milliseconds(),
				InFlight: s.InFlight, Delivered: s.Delivered, Failed: s.Failed, Dead: s.Dead,
				Accepted: s.Accepted, Repeated: s.Repeated, Full: s.Full, Errors: s.Errors,
			})
		}
	}
	writeJSON(w, &list)
}

func (a *App) ageOf(s *queue.Stats) time.Duration {
	if s.Oldest.IsZero() {
		return 0
	}
	return max(a.options.Clock().Sub(s.Oldest), 0)
}

// queueFailed answers for a store that does not.
func queueFailed(w http.ResponseWriter, err error) {
	if errors.Is(err, queue.ErrNotFound) {
		answer.Problem(w, http.StatusNotFound, "there is no such entry")
		return
	}
	answer.Problem(w, http.StatusServiceUnavailable, err.Error())
}

// queueItems answers GET /v1/queue/items.
func (a *App) queueItems(w http.ResponseWriter, r *http.Request, q *queue.Queue) {
	asked := r.URL.Query()
	state, ok := queue.ParseState(cmp.Or(asked.Get("state"), queue.Pending.String()))
	if !ok || state == queue.Delivered {
		wrongParameter(w, "state", asked.Get("state"), []string{queue.Pending.String(), queue.Dead.String()})
		return
	}
	n, err := strconv.Atoi(cmp.Or(asked.Get("n"), strconv.Itoa(defaultItems)))
	if err != nil || n < 1 || n > maxItems {
		answer.Problem(w, http.StatusBadRequest, fmt.Sprintf("n is %q; it must be a number from 1 to %d", asked.Get("n"), maxItems))
		return
	}
	items, err := q.List(r.Context(), queue.Query{State: state, Domain: asked.Get("domain"), Rule: asked.Get("rule"), Limit: n})
	if err != nil {
		queueFailed(w, err)
		return
	}
	list := QueueItems{Items: []QueueItem{}}
	veils := a.newVeils()
	for i := range items {
		e := items[i].Entry
		told := a.queueItemOf(e.ID, &items[i])
		veils.of(e).over(&told)
		list.Items = append(list.Items, told)
	}
	writeJSON(w, &list)
}

// queueItem answers GET /v1/queue/items/ID; with ?body=true the body is in it.
func (a *App) queueItem(w http.ResponseWriter, r *http.Request, q *queue.Queue) {
	id := r.PathValue("id")
	item, err := q.Find(r.Context(), id)
	if err != nil {
		queueFailed(w, err)
		return
	}
	told := a.queueItemOf(id, item)
	if e := item.Entry; e != nil {
		v := a.newVeils().of(e)
		v.over(&told)
		told.Header = v.seenHeader(e)
		if r.URL.Query().Get("body") == "true" {
			if utf8.Valid(e.Body) {
				told.Body = string(e.Body)
			} else {
				told.BodyBase64 = e.Body
			}
		}
	}
	writeJSON(w, &told)
}

// queueItemOf is an entry without its header and body, and without a veil.
func (a *App) queueItemOf(id string, item *queue.Item) QueueItem {
	told := QueueItem{ID: id, State: item.State.String()}
	if item.State == queue.Delivered {
		r := &item.Result
		told.Attempts, told.AcceptedAt, told.DeliveredAt, told.LastStatus = r.Attempts, r.Accepted, r.Delivered, r.Status
		return told
	}
	e, tried := item.Entry, &item.Attempts
	told.Domain, told.Rule, told.Key = e.Domain, e.Rule, a.keyView(nil, e.Key)
	told.Method, told.URI, told.Host, told.BodyBytes = e.Method, e.URI, e.Host, len(e.Body)
	told.IdempotencyKey, told.AcceptedAt, told.ExpiresAt = e.IdempotencyKey, e.Accepted, e.Expires
	told.Attempts, told.GivenUpAt, told.LastStatus, told.LastError = tried.Count, tried.Ended, tried.Status, tried.Error
	if item.State == queue.Pending {
		told.NextAttemptAt = tried.Next
	}
	return told
}

// queueAction is what may be done to queued requests.
type queueAction struct {
	name  string // for the audit
	after string // what they are then
	do    func(*queue.Queue, context.Context, []string) ([]string, error)
}

// queueChange answers POST /v1/queue/retry and drop.
func (a *App) queueChange(change *queueAction) func(http.ResponseWriter, *http.Request, *queue.Queue) {
	return func(w http.ResponseWriter, r *http.Request, q *queue.Queue) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		if err != nil {
			answer.Problem(w, http.StatusBadRequest, fmt.Sprintf("the body cannot be read: %v", err))
			return
		}
		ids, err := readIDs(body)
		if err != nil {
			answer.Problem(w, http.StatusBadRequest, fmt.Sprintf(`the body must be {"ids":["…"]}: %v`, err))
			return
		}
		about, keys := queueSubjects(r, q, ids)
		found, err := change.do(q, r.Context(), ids)
		if err != nil {
			queueFailed(w, err)
			return
		}
		a.noteQueue(r, change, found, about, keys)
		if found == nil {
			found = []string{}
		}
		writeJSON(w, &QueueChange{IDs: found})
	}
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
		return nil, errors.New("there is more behind it")
	}
	if len(want.IDs) == 0 || len(want.IDs) > maxItems || slices.Contains(want.IDs, "") {
		return nil, fmt.Errorf("there must be from 1 to %d ids", maxItems)
	}
	return want.IDs, nil
}

// queueMetrics tells how queues do.
func (a *App) queueMetrics(c *metrics.Asked) {
	depth := c.Gauge("headgate_queue_depth", "Requests that wait to be sent, of all processes that share the queue.", "domain", "rule")
	size := c.Gauge("headgate_queue_bytes", "Bytes of them.", "domain", "rule")
	oldest := c.Gauge("headgate_queue_oldest_seconds", "How long the oldest of them has waited.", "domain", "rule")
	letters := c.Gauge("headgate_queue_dead", "Requests that were given up and are still there.", "domain", "rule")
	flight := c.Gauge("headgate_queue_in_flight", "Requests that this process is sending.", "domain", "rule")
	accepted := c.Counter("headgate_queue_accepted_total", "Requests that came in, by whether there was one with their idempotency key already, no room, or no way to write them.", "domain", "rule", "result")
	delivered := c.Counter("headgate_queue_delivered_total", "Requests that the backend took.", "domain", "rule")
	failed := c.Counter("headgate_queue_failed_total", "Attempts that it did not take.", "domain", "rule")
	dead := c.Counter("headgate_queue_dead_total", "Requests that were given up.", "domain", "rule")
	c.Ask(func(out chan<- prometheus.Metric) {
		q := a.queue.Load()
		if q == nil {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), statsTimeout)
		defer cancel()
		stats, err := q.Stats(ctx)
		for i := range stats {
			s := &stats[i]
			if err == nil {
				depth(out, float64(s.Depth), s.Domain, s.Rule)
				size(out, float64(s.Bytes), s.Domain, s.Rule)
				oldest(out, a.ageOf(s).Seconds(), s.Domain, s.Rule)
				letters(out, float64(s.Dead), s.Domain, s.Rule)
			}
			flight(out, float64(s.InFlight), s.Domain, s.Rule)
			accepted(out, float64(s.Accepted), s.Domain, s.Rule, "new")
			accepted(out, float64(s.Repeated), s.Domain, s.Rule, "repeated")
			accepted(out, float64(s.Full), s.Domain, s.Rule, "full")
			accepted(out, float64(s.Errors), s.Domain, s.Rule, "error")
			delivered(out, float64(s.Delivered), s.Domain, s.Rule)
			failed(out, float64(s.Failed), s.Domain, s.Rule)
			dead(out, float64(s.Buried), s.Domain, s.Rule)
		}
	})
}
