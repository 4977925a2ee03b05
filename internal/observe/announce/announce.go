// Package announce tells operators of warnings: in the log, the metrics and the events of
// the dashboard, and by webhooks from a queue that survives a restart.
package announce

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/base/lifetime"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/observe/metrics"
	"github.com/headgate/headgate/internal/observe/warning"
	"github.com/headgate/headgate/internal/observe/webhook"
	"github.com/headgate/headgate/internal/queue"
	"github.com/headgate/headgate/internal/queue/file"
)

// Options configure an Announcer. All are required.
type Options struct {
	// File is the file for messages if the configuration names none; empty if there is no
	// snapshot to put it next to.
	File  string
	Store headgate.Store // remembers, for all servers that share it, what was sent
	// Clock is the clock of limits, Wall the wall clock, which receivers compare with
	// theirs.
	Clock, Wall func() time.Time
	KeySecret   config.Secret // makes IDs that say nothing of keys; random if empty
	Keys        *metrics.KeyView
	Events      *metrics.Stream
	Logger      *slog.Logger
	Life        *lifetime.Lifetime
}

// The bounds of messages.
const (
	lookEvery  = time.Second
	maxWaiting = 1000 // messages for one webhook
	keepFor    = 24 * time.Hour
	askFor     = 500 * time.Millisecond // how long the store may take
	maxHistory = 100                    // announcements that operators can list
)

// Announcer looks for warnings and announces them. Make it with [New].
type Announcer struct {
	options Options
	config  *config.EarlyWarning
	watch   *warning.Observer
	hooks   []*hook
	queue   *queue.Queue // nil without webhooks
	secret  []byte       // of IDs
	closed  atomic.Bool

	// Used by look only.
	sent   map[string]bool // warnings that last and whose start was sent
	silent bool            // the store has not answered during this look

	mu      sync.Mutex
	counts  map[counted]uint64
	dropped map[string]uint64 // messages, by webhook
	history []*Message        // the oldest first
}

// hook is a webhook with its client. It is never copied: it is read while it changes.
type hook struct {
	name   string
	config *config.Webhook
	client *webhook.Client

	// rejected is the message that the receiver has rejected last, and how often in a row.
	// Messages of a hook are sent one after the other.
	rejected string
	times    int
	failing  bool // the last message was not delivered
}

// counted is a kind of warning of a rule.
type counted struct {
	kind         warning.Kind
	domain, rule string
}

// hooks returns clients of the configured webhooks with their names. The error is a
// *config.SourceError.
func hooks(c *config.EarlyWarning) ([]*hook, error) {
	var all []*hook
	times := map[string]int{}
	for i := range c.Webhooks {
		w := &c.Webhooks[i]
		h := webhook.Hook{Name: w.Name(), URL: w.URL, Secrets: w.Secrets, Headers: map[string]string{}}
		if times[h.Name]++; times[h.Name] > 1 {
			h.Name += fmt.Sprintf("#%d", times[h.Name])
		}
		for name, value := range w.Headers {
			h.Headers[name] = string(value)
		}
		var err error
		if h.TLS, err = w.TLS.Load(); err != nil {
			return nil, &config.SourceError{Source: "warnings.webhooks", Message: h.Name + ": " + err.Error()}
		}
		all = append(all, &hook{name: h.Name, config: w, client: webhook.NewClient(h)})
	}
	return all, nil
}

// New returns an Announcer. The error is a *config.SourceError.
func New(c *config.EarlyWarning) (*Announcer, error) {
	all, err := hooks(c)
	if err != nil {
		return nil, err
	}
	return &Announcer{
		config: c, watch: warning.New(c.Settings), hooks: all,
		sent: map[string]bool{}, counts: map[counted]uint64{}, dropped: map[string]uint64{},
	}, nil
}

// Observer returns the observer of decisions.
func (a *Announcer) Observer() *warning.Observer { return a.watch }

// Start opens the queue of messages and starts looking.
func (a *Announcer) Start(o Options) error {
	a.options, a.secret = o, []byte(o.KeySecret)
	if len(a.secret) == 0 {
		a.secret = []byte(queue.NewID())
	}
	if len(a.hooks) > 0 {
		if err := a.open(); err != nil {
			return err
		}
		a.queue.Start()
	}
	o.Life.Every(lookEvery, a.look)
	return nil
}

// open opens the queue.
func (a *Announcer) open() error {
	var store queue.Store = new(ram)
	if path := cmp.Or(a.config.Path, a.options.File); path != "" {
		s, repair, err := file.Open(file.Options{Path: path, Clock: a.options.Clock})
		if err != nil {
			return &config.SourceError{Source: "warnings.path", Message: err.Error()}
		}
		if repair != nil {
			a.options.Logger.Error("file of warnings damaged: set aside, readable messages copied to a new file",
				"file", path, "set_aside_as", repair.SetAside, "saved", repair.Saved, "err", repair.Err)
		}
		store = s
	} else {
		a.options.Logger.Warn("a restart loses warnings that have not been delivered", "hint", "set warnings.path, or store.memory.snapshot")
	}
	a.queue = queue.New(queue.Options{
		Store: store, Take: a.take, Send: a.send, Policy: func(string, string) queue.Policy { return policy() },
		Clock: a.options.Clock, Random: rand.Int64N, Logger: a.options.Logger, MaxInFlight: 2 * len(a.hooks),
	})
	return nil
}

// policy says how messages are kept and sent: in order, and again for a day.
func policy() queue.Policy {
	p := queue.DefaultPolicy()
	p.MaxEntries, p.MaxBytes, p.KeyShare = maxWaiting, 10_000_000, 100
	p.TTL, p.Retries, p.Timeout, p.Keep = keepFor, math.MaxInt32, sendTimeout, time.Minute
	return p
}

// sendTimeout is how long a receiver may take.
const sendTimeout = 5 * time.Second

// Close stops sending. Messages that have not been delivered stay in the file.
func (a *Announcer) Close(ctx context.Context) error {
	if a.queue == nil || a.closed.Swap(true) {
		return nil
	}
	err := a.queue.Close(ctx)
	for _, h := range a.hooks {
		h.client.Close()
	}
	if err != nil {
		return fmt.Errorf("closing the queue of warnings: %w", err)
	}
	return nil
}

// take allows a message whose webhook is still configured.
func (a *Announcer) take(_ context.Context, r *queue.Ref, _ time.Time) (queue.Permit, error) {
	if a.hook(r.Rule) == nil {
		return queue.Permit{RetryAfter: -1, Why: "the webhook is no longer configured"}, nil
	}
	return queue.Permit{Allowed: true}, nil
}

func (a *Announcer) hook(name string) *hook {
	for _, h := range a.hooks {
		if h.name == name {
			return h
		}
	}
	return nil
}

// send sends a message.
func (a *Announcer) send(ctx context.Context, e *queue.Entry, _ int64) (queue.Answer, error) {
	h := a.hook(e.Rule)
	status, wait, err := h.client.Send(ctx, e.ID, a.options.Wall(), e.Body)
	a.noteDelivery(h, err)
	return queue.Answer{Status: status, RetryAfter: wait, GiveUp: h.rejects(e.ID, status)}, err
}

// noteDelivery logs once that a webhook takes no messages, and once that it does again.
func (a *Announcer) noteDelivery(h *hook, err error) {
	switch {
	case err == nil && h.failing:
		a.options.Logger.Info("the webhook takes warnings again", "webhook", h.name)
	case err != nil && h.failing, errors.Is(err, context.Canceled):
		a.options.Logger.Debug("a warning could not be delivered yet", "webhook", h.name, "err", err)
		return
	case err != nil:
		a.options.Logger.Warn("a warning could not be delivered: it is tried again for 24 hours", "webhook", h.name, "err", err,
			"hint", "headgate warnings test sends a sample")
	}
	h.failing = err != nil
}

// maxRejected is how often a receiver may reject one message, over some minutes,
// before those behind it have their turn.
const maxRejected = 10

// rejects reports whether the receiver has now rejected a message for good, with a status
// that speaks of the message rather than of the receiver.
func (h *hook) rejects(id string, status int) bool {
	switch status {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity:
	default:
		return false
	}
	if h.rejected != id {
		h.rejected, h.times = id, 0
	}
	h.times++
	return h.times >= maxRejected
}

// look announces what has happened.
func (a *Announcer) look() {
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
	a.note(w, shown)
	a.log(m)
	a.options.Events.Announce(m.Data.Domain, m.Data.Rule, encode(shown))
	if len(a.hooks) > 0 && !a.closed.Load() && a.sends(w) {
		a.post(w.Kind, encode(m))
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

// note counts a warning and keeps it for operators.
func (a *Announcer) note(w *warning.Warning, m *Message) {
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
	d, err := a.options.Store.Take(ctx, headgate.Op{
		Scope: queueDomain, Key: fmt.Sprintf("%s %d", id, level), Limit: headgate.Per(1, a.config.Again), Cost: 1, At: a.options.Clock().UnixMicro(),
	})
	a.silent = err != nil
	return a.silent || d.Allowed
}

// post queues a message for each webhook that wants it.
func (a *Announcer) post(kind warning.Kind, body []byte) {
	ctx, cancel := context.WithTimeout(context.Background(), sendTimeout)
	defer cancel()
	for _, h := range a.hooks {
		if !h.config.Wants(kind) {
			continue
		}
		now := a.options.Clock()
		e := &queue.Entry{
			ID: "msg_" + queue.NewID(), Domain: queueDomain, Rule: h.name, Scope: queueDomain, Key: h.name,
			Method: "POST", Body: body, Accepted: now, Expires: now.Add(keepFor),
		}
		_, err := a.queue.Accept(ctx, e)
		if errors.Is(err, queue.ErrFull) {
			a.dropOldest(ctx, h.name)
			_, err = a.queue.Accept(ctx, e)
		}
		if err != nil {
			a.drop(h.name, 1)
			a.options.Logger.Error("a warning could not be queued", "webhook", h.name, "err", err)
		}
	}
}

// queueDomain is the domain of messages in the queue, and the scope of what was sent.
const queueDomain = "warnings"

// dropOldest makes space for a message.
func (a *Announcer) dropOldest(ctx context.Context, name string) {
	list, err := a.queue.List(ctx, queue.Query{State: queue.Pending, Domain: queueDomain, Rule: name, Limit: 1})
	if err != nil || len(list) == 0 {
		return
	}
	if ids, err := a.queue.Drop(ctx, []string{list[0].Entry.ID}); err == nil {
		a.drop(name, uint64(len(ids)))
	}
}

func (a *Announcer) drop(name string, n uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.dropped[name] += n
}

// Tested is the result of a test of one webhook.
type Tested struct {
	Webhook string        `json:"webhook"`
	Signed  bool          `json:"signed"`
	Status  int           `json:"status"` // 0 without an answer
	Took    time.Duration `json:"took_ns"`
	Error   string        `json:"error,omitempty"`
}

// Test sends a sample to every configured webhook. The error is a *config.SourceError.
func Test(ctx context.Context, c *config.EarlyWarning, now func() time.Time) ([]Tested, error) {
	all, err := hooks(c)
	if err != nil {
		return nil, err
	}
	var results []Tested
	for _, h := range all {
		ctx, cancel := context.WithTimeout(ctx, sendTimeout)
		begun := now()
		status, _, err := h.client.Send(ctx, "msg_"+queue.NewID(), begun, sample(begun))
		cancel()
		h.client.Close()
		r := Tested{Webhook: h.name, Signed: len(h.config.Secrets) > 0, Status: status, Took: now().Sub(begun)}
		if err != nil {
			r.Error = strings.TrimSpace(err.Error())
		}
		results = append(results, r)
	}
	return results, nil
}
