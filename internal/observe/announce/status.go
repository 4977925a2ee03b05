package announce

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/internal/observe/metrics"
	"github.com/headgate/headgate/internal/observe/warning"
	"github.com/headgate/headgate/internal/queue"
)

// Status is the answer of GET /v1/warnings.
type Status struct {
	On bool `json:"on"` // whether it looks for what to warn of
	// Active are those that last, the oldest first, with keys as operators see them.
	Active []*Warning `json:"active"`
	Recent []*Message `json:"recent"` // the last 100 announcements, the newest first
}

// Status returns the warnings that last, and the latest announcements. A nil Announcer
// looks for none.
func (a *Announcer) Status() Status {
	s := Status{Active: []*Warning{}, Recent: []*Message{}}
	if a == nil {
		return s
	}
	s.On = true
	for _, w := range a.watch.Active() {
		s.Active = append(s.Active, a.toOperators(&w, a.about(&w)))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range a.history {
		s.Recent = append(s.Recent, a.history[len(a.history)-1-i])
	}
	return s
}

// toOperators returns what is said of w with its key as operators see keys.
func (a *Announcer) toOperators(w *warning.Warning, said *Warning) *Warning {
	shown := *said
	if w.Key != "" && !w.Cut {
		shown.Key = a.options.Keys.Of(w.Key)
	}
	return &shown
}

// ServeHTTP implements [http.Handler].
func (a *Announcer) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(a.Status()) // the client is gone
}

// statsTimeout limits how long the sizes of the queue may take.
const statsTimeout = 2 * time.Second

// Describe adds the metrics of warnings to c.
func (a *Announcer) Describe(c *metrics.Asked) {
	total := c.Counter("headgate_warnings_total", "Warnings that have started, by kind and rule.", "kind", "domain", "rule")
	active := c.Gauge("headgate_warnings_active", "Warnings that have started and not ended, by kind and rule.", "kind", "domain", "rule")
	messages := c.Counter("headgate_warning_messages_total",
		"Messages to webhooks, by result: delivered, failed (an attempt, which is repeated), expired (given up: not delivered within a day, or rejected ten times) or dropped (more than 1000 waiting).",
		"webhook", "result")
	waiting := c.Gauge("headgate_warning_messages_waiting", "Messages that have not been delivered to a webhook yet.", "webhook")
	c.Ask(func(out chan<- prometheus.Metric) {
		now := map[counted]int{}
		for _, w := range a.watch.Active() {
			now[counted{w.Kind, w.Rule.Domain, w.Rule.Name}]++
		}
		a.mu.Lock()
		for k, n := range a.counts {
			total(out, float64(n), k.kind.String(), k.domain, k.rule)
			active(out, float64(now[k]), k.kind.String(), k.domain, k.rule)
		}
		a.mu.Unlock()
		stats := a.stats()
		for _, h := range a.hooks {
			s := stats[h.name]
			messages(out, float64(s.Delivered), h.name, "delivered")
			messages(out, float64(s.Failed), h.name, "failed")
			messages(out, float64(s.Buried), h.name, "expired")
			messages(out, float64(s.Dropped), h.name, "dropped")
			waiting(out, float64(s.Entries), h.name)
		}
	})
}

// stats returns the statistics of the messages, by webhook.
func (a *Announcer) stats() map[string]queue.Stats {
	all := map[string]queue.Stats{}
	if a.queue != nil {
		ctx, cancel := context.WithTimeout(context.Background(), statsTimeout)
		defer cancel()
		list, _ := a.queue.Stats(ctx) // the counters, even after an error
		for _, s := range list {
			all[s.Rule] = s
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for name, n := range a.dropped {
		s := all[name]
		s.Dropped = n
		all[name] = s
	}
	return all
}
