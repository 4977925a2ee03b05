// Package announce tells operators of warnings: in the log, the metrics and the events of
// the dashboard, and by a webhook.
package announce

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/base/lifetime"
	"github.com/headgate/headgate/internal/observe/metrics"
	"github.com/headgate/headgate/internal/observe/warning"
	"github.com/headgate/headgate/store"
)

// Options configure an Announcer. All are required.
type Options struct {
	Store     store.Store // remembers, for all servers that share it, what was sent
	Clock     func() time.Time
	KeySecret string // makes IDs that say nothing of keys; random if empty
	Keys      *metrics.KeyView
	Events    *metrics.Stream
	Logger    *slog.Logger
	Life      *lifetime.Lifetime
}

// The bounds of messages.
const (
	lookEvery  = time.Second
	askFor     = 500 * time.Millisecond // how long the store may take
	maxHistory = 100                    // announcements that operators can list
)

// Announcer looks for warnings and announces them. Make it with [New].
type Announcer struct {
	options Options
	policy  warning.Policy
	watch   *warning.Observer
	sender  *sender // nil without a webhook
	secret  []byte  // of IDs

	// Used by look only.
	sent   map[string]bool // warnings that last and whose start was sent
	silent bool            // the store has not answered during this look

	mu      sync.Mutex
	counts  map[counted]uint64
	history []*Message // the oldest first
}

// counted is a kind of warning of a rule.
type counted struct {
	kind         warning.Kind
	domain, rule string
}

// New returns an Announcer.
func New(p warning.Policy) *Announcer {
	a := &Announcer{policy: p, watch: warning.New(p.Settings), sent: map[string]bool{}, counts: map[counted]uint64{}}
	if p.Webhook != nil {
		a.sender = newSender(p.Webhook)
	}
	return a
}

// Observer returns the observer of decisions.
func (a *Announcer) Observer() *warning.Observer { return a.watch }

// Start starts looking.
func (a *Announcer) Start(o Options) {
	a.options, a.secret = o, []byte(o.KeySecret)
	if len(a.secret) == 0 {
		a.secret = []byte(rand.Text())
	}
	if a.sender != nil {
		a.sender.start(o.Logger)
	}
	o.Life.Every(lookEvery, a.checkDeliveries)
}

// Close stops sending. What is being sent may arrive until ctx ends.
func (a *Announcer) Close(ctx context.Context) error {
	if a.sender == nil {
		return nil
	}
	return a.sender.close(ctx)
}

// checkDeliveries announces what has happened.
func (a *Announcer) checkDeliveries() {
	a.silent = false
	for _, w := range a.watch.Look(a.options.Clock()) {
		a.announce(&w)
	}
}

// identity is the same for the same warning on all servers.
func identity(w *warning.Warning) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %q %q %q", w.Kind, w.Rule.Domain, w.Rule.Name, w.Key))
	return hex.EncodeToString(sum[:16])
}

// announce logs, counts, shows and sends a change of a warning.
func (a *Announcer) announce(w *warning.Warning) {
	m := &Message{Type: w.Kind.String() + "." + w.State.String(), At: w.At.UTC(), Data: a.about(w)}
	shown := &Message{m.Type, m.At, a.toOperators(w, m.Data)}
	a.queue(w, shown)
	a.log(m)
	a.options.Events.Announce(m.Data.Domain, m.Data.Rule, encode(shown))
	if a.sender != nil && a.sends(w) {
		a.sender.add(encode(m))
	}
}

// sends reports whether this server sends w, rather than another one. The one that sent
// the start sends the end.
func (a *Announcer) sends(w *warning.Warning) bool {
	id := identity(w)
	if w.State == warning.Ended {
		defer delete(a.sent, id)
		return a.sent[id]
	}
	sends := a.first(id, w.Level)
	if sends && w.State == warning.Started {
		a.sent[id] = true
	}
	return sends
}

// queue counts a warning and keeps it for operators.
func (a *Announcer) queue(w *warning.Warning, m *Message) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := counted{w.Kind, m.Data.Domain, m.Data.Rule}
	if w.State == warning.Started {
		a.counts[c]++
	}
	a.history = append(a.history, m)
	if n := len(a.history) - maxHistory; n > 0 {
		a.history = slices.Delete(a.history, 0, n)
	}
}

// log logs a warning.
func (a *Announcer) log(m *Message) {
	d := m.Data
	attributes := []slog.Attr{
		slog.String("kind", d.Kind), slog.String("domain", d.Domain), slog.String("rule", d.Rule), slog.String("what", d.Text), slog.String("id", d.ID),
	}
	if key := d.Key.Text(); key != "" {
		attributes = append(attributes, slog.String("key", key))
	}
	switch d.State {
	case warning.Ended.String():
		a.options.Logger.LogAttrs(context.Background(), slog.LevelInfo, "warning ended", attributes...)
	case warning.Raised.String():
		a.options.Logger.LogAttrs(context.Background(), slog.LevelWarn, "warning raised", attributes...)
	default:
		a.options.Logger.LogAttrs(context.Background(), slog.LevelWarn, "warning started", attributes...)
	}
}

// first reports whether no server that shares the store has sent this within
// warnings.again: it takes from a limit of one. If the store does not answer it is true,
// as twice is better than never, and it is not asked again during this look.
func (a *Announcer) first(id string, level int64) bool {
	if a.silent {
		return true
	}
	ctx, cancel := context.WithTimeout(context.Background(), askFor)
	defer cancel()
	d, err := store.Execute(ctx, a.options.Store, store.Op{
		Scope: sentScope, Key: fmt.Sprintf("%s %d", id, level), Rule: headgate.Per(1, a.policy.Again).Rule(), Cost: 1, At: a.options.Clock().UnixMicro(),
	})
	a.silent = err != nil
	return a.silent || d.Allowed
}

// sentScope is the scope of what was sent.
const sentScope = "warnings"
