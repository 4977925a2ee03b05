package announce

import (
	"encoding/json"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/internal/observe/metrics"
	"github.com/headgate/headgate/internal/observe/warning"
)

// Status is the answer of GET /v1/warnings.
type Status struct {
	On     bool       `json:"on"`     // whether it looks for what to warn of
	Active []*Warning `json:"active"` // the warnings that last, the oldest first, with keys as operators see them
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

// Describe adds the metrics of warnings to c.
func (a *Announcer) Describe(c *metrics.Asked) {
	total := c.Counter("headgate_warnings_total", "Warnings that have started, by kind: key_refused, rule_near_limit or new_keys.", "kind", "domain", "rule")
	active := c.Gauge("headgate_warnings_active", "Warnings that have started and not ended, by kind.", "kind", "domain", "rule")
	messages := c.Counter("headgate_warning_messages_total", "Messages to the webhook, by result: delivered, or failed (lost after three attempts).", "webhook", "result")
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
		if s := a.sender; s != nil {
			messages(out, float64(s.delivered.Load()), s.to.Host, "delivered")
			messages(out, float64(s.failed.Load()), s.to.Host, "failed")
		}
	})
}
