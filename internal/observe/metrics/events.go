package metrics

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/answer"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/observe/sse"
	"github.com/headgate/headgate/internal/rules"
)

// The limits on readers of events.
const (
	MaxReaders   = 32   // concurrent readers
	MaxPerSecond = 500  // events per second and reader
	buffer       = 1000 // events that a reader may be behind
)

// Filter selects events. An empty field matches all.
type Filter struct {
	Domain, Rule string
	Outcome      string  // an engine.Outcome
	Key          string  // a substring of a part of the key, or of its hash
	Sample       float64 // the share of events to send, in (0, 1]
}

// Key is a key as it may be shown: its parts, nil for missing ones, or a hash.
type Key struct {
	Parts []*string `json:"key"` // null if it is hashed
	Hash  string    `json:"key_hash,omitempty"`
}

// Event is one decision of one rule.
type Event struct {
	T      time.Time `json:"t"`
	Domain string    `json:"domain"`
	// Rule is empty if no rule applied to the request.
	Rule string `json:"rule"`
	Key
	Outcome string `json:"outcome"`
	Reason  string `json:"reason"`
	Limit   int64  `json:"limit"`
	// Remaining is after the decision.
	Remaining  int64  `json:"remaining"`
	RetryAfter *int64 `json:"retry_after_ms"` // null means never
	Door       string `json:"door,omitempty"`
	Method     string `json:"method,omitempty"`
	Path       string `json:"path,omitempty"`
}

// Stream is a Watcher that sends decisions to readers one by one: filtered, sampled,
// and up to MaxPerSecond. Without readers it costs one pointer read. Make it with
// NewStream.
type Stream struct {
	hub  *sse.Hub[*watch]
	keys *KeyView
}

var _ Watcher = (*Stream)(nil)

// watch is the state of one reader.
type watch struct {
	Filter
	second atomic.Int64 // of the last event
	sent   atomic.Int64 // in that second
}

// NewStream returns a Stream that shows keys by keys.
func NewStream(keys *KeyView) *Stream {
	return &Stream{hub: sse.NewHub[*watch](MaxReaders, buffer), keys: keys}
}

// Close ends all connections.
func (s *Stream) Close() { s.hub.Close() }

// Serve sends events to w until the client disconnects or the Stream closes. It returns
// false, having written nothing, if there are too many readers.
func (s *Stream) Serve(w http.ResponseWriter, r *http.Request, f Filter) bool {
	return s.hub.Serve(w, r, &watch{Filter: f}, nil)
}

// Watching implements Watcher.
func (s *Stream) Watching() bool { return len(s.hub.Readers()) > 0 }

// See implements Watcher.
func (s *Stream) See(_ context.Context, seen *Seen) {
	if !seen.Counted {
		return
	}
	for i := range seen.Parts {
		p := &seen.Parts[i]
		for j := range p.Results {
			s.show(seen, p, &p.Results[j])
		}
		if len(p.Results) == 0 {
			s.show(seen, p, nil)
		}
	}
}

// Announce sends a warning as JSON to readers that have not selected another domain or
// rule, or a key.
func (s *Stream) Announce(domain, rule string, text []byte) {
	message := sse.Message("warning", text)
	for _, reader := range s.hub.Readers() {
		w := reader.Value
		if (w.Domain == "" || w.Domain == domain) && (w.Rule == "" || w.Rule == rule) && w.Key == "" {
			reader.Offer(message)
		}
	}
}

// show sends one result, nil if no rule applied, to the readers whose filter
// matches.
func (s *Stream) show(seen *Seen, p *Part, r *engine.Result) {
	var e Event
	var message []byte
	for _, reader := range s.hub.Readers() {
		w := reader.Value
		if w.Domain != "" && w.Domain != seen.Domain || w.Rule != "" && (r == nil || w.Rule != r.Rule.Name) {
			continue
		}
		if e.T.IsZero() {
			e = s.event(seen, p, r)
		}
		if w.Outcome != "" && w.Outcome != e.Outcome || w.Key != "" && !e.has(w.Key) {
			continue
		}
		if w.Sample < 1 && rand.Float64() >= w.Sample { //nolint:gosec // a sample, not a secret
			continue
		}
		if !w.admit(seen.At) {
			reader.Lose()
			continue
		}
		if message == nil {
			text, err := json.Marshal(&e)
			if err != nil {
				return // cannot happen
			}
			message = sse.Message("decision", text)
		}
		reader.Offer(message)
	}
}

// admit enforces MaxPerSecond.
func (w *watch) admit(at int64) bool {
	second := at / 1e6
	if w.second.Swap(second) != second {
		w.sent.Store(0)
	}
	return w.sent.Add(1) <= MaxPerSecond
}

// event returns the event of one result.
func (s *Stream) event(seen *Seen, p *Part, r *engine.Result) Event {
	e := Event{
		T: time.UnixMicro(seen.At).UTC(), Domain: seen.Domain, Outcome: seen.Outcome.String(), Reason: "no_limit",
		Door: seen.Door.String(), RetryAfter: new(int64),
	}
	if p.Request != nil {
		e.Method, _ = p.Request.Attribute(rules.Attribute{Kind: rules.Method})
		if !s.keys.HidesPath(seen.Rules, seen.Domain) {
			e.Path, _ = p.Request.Attribute(rules.Attribute{Kind: rules.Path})
		}
	}
	if r == nil {
		return e
	}
	d := &r.Decision
	e.Rule, e.Key = r.Rule.Name, s.keys.Of(r.Key)
	e.Outcome, e.Reason, e.Limit, e.Remaining = r.Outcome().String(), d.Reason.String(), d.Limit, d.Remaining
	if after, ok := answer.RetryAfter(*d); ok {
		*e.RetryAfter = answer.Milliseconds(after)
	} else if !d.Allowed {
		e.RetryAfter = nil
	}
	return e
}

// has reports whether a part of the key, or its hash, contains text.
func (e *Event) has(text string) bool {
	for _, part := range e.Parts {
		if part != nil && strings.Contains(*part, text) {
			return true
		}
	}
	return strings.Contains(e.Hash, text)
}
