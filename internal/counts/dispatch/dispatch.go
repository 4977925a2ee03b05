// Package dispatch opens the queue that the rules need, in the place that the configuration
// names, and asks the engine when an entry may be sent.
package dispatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/base/lifetime"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/counts/storing"
	"github.com/headgate/headgate/internal/decide/admission"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/queue"
	"github.com/headgate/headgate/internal/queue/file"
	"github.com/headgate/headgate/internal/queue/streams"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redis"
)

// Sender sends queued requests: a door that can.
type Sender interface {
	SetQueue(q *queue.Queue)
	Deliver(ctx context.Context, e *queue.Entry, keep int64) (queue.Answer, error)
	Outcome(told queue.Answer, err error) *admission.Result
}

// Options configure a Dispatcher. All are required.
type Options struct {
	Config *config.Config
	// File is the file of the queue if the configuration names none: next to the snapshot of
	// the counts, or empty if there is no snapshot.
	File   string
	Engine *engine.Engine
	// Sends reports whether a door sends queued requests. Sender returns it once that door is
	// open.
	Sends  func() bool
	Sender func() Sender
	Clock  func() time.Time
	Logger *slog.Logger
	Life   *lifetime.Lifetime
}

// Dispatcher opens and closes the queue of a process.
type Dispatcher struct {
	Options
	asker   admission.Asker
	opening sync.Mutex
	queue   atomic.Pointer[queue.Queue] // nil until a rule needs one
	started atomic.Bool
}

// New returns a Dispatcher without a queue.
func New(o Options) *Dispatcher {
	return &Dispatcher{Options: o, asker: admission.Asker{Engine: o.Engine, Clock: o.Clock, Logger: o.Logger}}
}

// Queue returns the queue, or nil if there is none yet.
func (d *Dispatcher) Queue() *queue.Queue { return d.queue.Load() }

// placeAgain is how often an entry tries for a slot of a concurrency limit.
const placeAgain = 250 * time.Millisecond

// queueRule returns a rule that queues, or nil.
func queueRule(rs *rules.Ruleset) *rules.Rule {
	for _, r := range rs.Rules() {
		if r.OnLimit.Action == rules.Queue {
			return r
		}
	}
	return nil
}

// answerTime is how long Open waits at most for the first answer of a queue in Redis.
const answerTime = time.Second

// Open opens the queue if rs, or a queue left by the last run, needs it and it is not open. It
// waits for the first answer of a queue in Redis, or its failure, so that the first requests
// need not. Nothing is sent before Start. The error is a *config.SourceError.
func (d *Dispatcher) Open(rs *rules.Ruleset) error {
	d.opening.Lock()
	defer d.opening.Unlock()
	if d.Queue() != nil || !d.Sends() {
		return nil
	}
	rule, path := queueRule(rs), cmp.Or(d.Config.Queue.Path, d.File)
	if rule == nil && d.Config.Queue.Path == "" {
		if _, err := os.Stat(path); path == "" || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
	}
	var store queue.Store
	var err error
	switch {
	case path != "":
		store, err = d.openFile(path)
	case d.Config.Store.Kind == config.InRedis:
		store, err = d.openStreams(rs)
	default:
		err = &config.SourceError{
			Source: "queue.path", Message: fmt.Sprintf("%s: rule %q queues requests, but no queue file is set", rule.Position(), rule.Name),
			Hint: "set one, such as queue: {path: /var/lib/headgate/queue}",
		}
	}
	if err != nil {
		return err
	}
	d.queue.Store(queue.New(queue.Options{
		Store: store, Take: d.take, Policy: d.policy, Clock: d.Clock, Random: rand.Int64N, Logger: d.Logger,
		Send: func(ctx context.Context, e *queue.Entry, keep int64) (queue.Answer, error) {
			return d.Sender().Deliver(ctx, e, keep)
		},
	}))
	d.Life.OnEnd(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = d.Close(ctx) // after a start that failed
	})
	return nil
}

// openFile opens the file and logs its state.
func (d *Dispatcher) openFile(path string) (queue.Store, error) {
	s, repair, err := file.Open(file.Options{Path: path, Clock: d.Clock})
	if err != nil {
		return nil, &config.SourceError{Source: "queue.path", Message: err.Error()}
	}
	if repair != nil {
		d.Logger.Error("queue file damaged: set aside, readable entries copied to a new file",
			"file", path, "set_aside_as", repair.SetAside, "saved", repair.Saved, "err", repair.Err)
	}
	d.Logger.Info("queue opened", "file", path)
	return s, nil
}

// openStreams returns a queue in the Redis that keeps the counts.
func (d *Dispatcher) openStreams(rs *rules.Ruleset) (queue.Store, error) {
	o, err := storing.RedisOptions(&d.Config.Store.Redis)
	if err != nil {
		return nil, err
	}
	if err := storing.FollowFiles(&o, &d.Config.Store.Redis, slog.New(slog.DiscardHandler)); err != nil { // the store logs changes
		return nil, err
	}
	d.Logger.Info("queue opened", "addresses", o.Addresses)
	o.Prefix, o.Clock = cmp.Or(o.Prefix, redis.DefaultPrefix), d.Clock
	s := streams.New(streams.Options{Options: o, Replicas: d.Config.Queue.Replicas, Logger: d.Logger})
	var scopes []string
	for _, r := range rs.Rules() {
		if r.OnLimit.Action == rules.Queue {
			scopes = append(scopes, r.Scope)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	_ = s.Reach(ctx, scopes) // it is logged, and tried again, when the queue runs
	return s, nil
}

// Attach gives the door its queue, so that requests join what is waiting. Call it before the
// door serves, and before rules that queue are in force: until then a request passes those that
// wait, or is refused. Nothing is sent before Start. It may be called more than once.
func (d *Dispatcher) Attach() {
	if q, sender := d.Queue(), d.Sender(); q != nil && sender != nil {
		sender.SetQueue(q)
	}
}

// Start starts sending. Call it after Attach, when the rules are in force: an entry whose rule is
// unknown is sent without a limit. Call it again when they have changed: what waits is asked again.
func (d *Dispatcher) Start() {
	switch q := d.Queue(); {
	case q == nil || d.Sender() == nil:
	case d.started.CompareAndSwap(false, true):
		q.Start()
	default:
		q.LookAgain(func(string) bool { return true })
	}
}

// Drain stops sending new requests; those in flight continue.
func (d *Dispatcher) Drain() {
	if q := d.Queue(); q != nil {
		q.Drain()
	}
}

// Close closes the queue. Requests in flight may finish until ctx is done.
func (d *Dispatcher) Close(ctx context.Context) error {
	q := d.queue.Swap(nil)
	if q == nil {
		return nil
	}
	if err := q.Close(ctx); err != nil {
		return fmt.Errorf("closing the queue: %w", err)
	}
	return nil
}

// policy returns the policy of a rule, or the default if the rule no longer exists.
func (d *Dispatcher) policy(domain, rule string) queue.Policy {
	r := d.Engine.Rules().Rule(domain, rule)
	if r == nil || r.OnLimit.Queueing == nil {
		return queue.DefaultPolicy()
	}
	p := queue.Policy(*r.OnLimit.Queueing)
	if r.KeyParts() == 0 {
		p.KeyShare = 100 // all requests have the same key
	}
	return p
}

// take asks all limits of an entry whether it may be sent now. If the store does not answer,
// the entry waits: unlike a request with a client behind it, it can.
func (d *Dispatcher) take(ctx context.Context, r *queue.Ref, at time.Time) (queue.Permit, error) {
	claims := make([]engine.Claim, len(r.Claims))
	for i, c := range r.Claims {
		claims[i] = engine.Claim(c)
	}
	pass := new(admission.Pass)
	if err := pass.BeginAgain(ctx, &d.asker, r.Domain, claims, at.UnixMicro()); err != nil {
		pass.End()
		return queue.Permit{}, err
	}
	if pass.Allowed {
		p := queue.Permit{
			Allowed: true, Delay: pass.Delay, Undo: func() { pass.Leave(ctx) }, Done: pass.End,
			Settle: func(told queue.Answer, err error) { pass.Settle(ctx, d.Sender().Outcome(told, err)) },
		}
		if pass.Defers() {
			p.Enter = func() bool { return pass.Enter(ctx) == nil }
		}
		return p, nil
	}
	defer pass.End()
	p := queue.Permit{RetryAfter: pass.Decision.RetryAfter}
	var counts bool
	var overridden time.Time // until when
	if by := pass.Refuser(); by != nil {
		if p.Own = by.Rule.Scope == r.Line.Scope && by.Key == r.Line.Key; !p.Own {
			if p.By = (queue.Claim{Rule: by.Rule.Name, Key: by.Key}); pass.Decision.Reason == store.ReasonShare {
				p.By.Owner = by.Owner() // others have their share
			}
		}
		counts = by.Rule.Limit.Rule().CountRefused
		overridden = d.Engine.OverriddenUntil(by.Rule, by.Key, at)
	}
	switch {
	case pass.Decision.Reason == store.ReasonBanned:
		p.Exception = "its key is banned"
	case p.RetryAfter == headgate.Never && !overridden.IsZero():
		p.RetryAfter, p.Exception = overridden.Sub(at), "its cost is above the limit of an override"
	case p.RetryAfter == headgate.Never:
		p.RetryAfter = -1
	case pass.Rule != nil && pass.Rule.Limit.Algorithm() == headgate.Concurrency:
		p.RetryAfter = min(p.RetryAfter, placeAgain) // nothing says when a slot becomes free
	default:
		p.Counts = counts
	}
	return p, nil
}
