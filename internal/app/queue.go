package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/door"
	"github.com/headgate/headgate/internal/queue"
	"github.com/headgate/headgate/internal/queue/file"
	"github.com/headgate/headgate/internal/queue/streams"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/store/redis"
)

// queueing is what an App has to do with queues.
type queueing struct {
	openQueueOnce sync.Mutex
	queue         atomic.Pointer[queue.Queue] // nil until a rule needs one
	queueStarted  atomic.Bool
	sender        door.QueueSender // nil if no door sends
}

// placeAgain is how often an entry looks for a place under a limit of what is
// under way.
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

// queueFile returns the file that entries are kept in; empty for none.
func (a *App) queueFile() string {
	c := a.options.Config
	switch {
	case c.Queue.Path != "":
		return c.Queue.Path
	case a.snapshots.file != "":
		return a.snapshots.file + ".queue"
	}
	return ""
}

// openQueue opens the queue, if rs or what is left of the last run needs one and
// it is not open yet. Nothing is sent before startQueue.
func (a *App) openQueue(rs *rules.Ruleset) error {
	a.openQueueOnce.Lock()
	defer a.openQueueOnce.Unlock()
	if a.queue.Load() != nil || !a.sends() {
		return nil
	}
	rule, path := queueRule(rs), a.queueFile()
	if rule == nil && a.options.Config.Queue.Path == "" {
		if _, err := os.Stat(path); path == "" || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
	}
	var store queue.Store
	var err error
	switch {
	case path != "":
		store, err = a.openQueueFile(path)
	case a.options.Config.Store.Kind == config.InRedis:
		store, err = a.openStreams()
	default:
		err = &config.SourceError{
			Source: "queue.path", Message: fmt.Sprintf("%s: the rule %q queues requests, and there is nowhere to keep them", rule.Position(), rule.Name),
			Hint: "name a file, such as queue: {path: /var/lib/headgate/queue}",
		}
	}
	if err != nil {
		return err
	}
	a.queue.Store(queue.New(queue.Options{
		Store: store, Take: a.takeQueued, Policy: a.queuePolicy, Clock: a.options.Clock,
		Random: rand.Int64N, Logger: a.log,
		Send: func(ctx context.Context, e *queue.Entry, keep int64) (queue.Answer, error) {
			return a.sender.Deliver(ctx, e, keep)
		},
	}))
	a.cleanup = append(a.cleanup, func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = a.closeQueue(ctx) // after a start that failed
	})
	return nil
}

// openQueueFile opens the file and says in the log what it found.
func (a *App) openQueueFile(path string) (queue.Store, error) {
	s, repair, err := file.Open(file.Options{Path: path, Clock: a.options.Clock})
	if err != nil {
		return nil, &config.SourceError{Source: "queue.path", Message: err.Error()}
	}
	if repair != nil {
		a.log.Error("the file of the queue is damaged, what could be read of it is in a new one",
			"file", path, "set_aside_as", repair.SetAside, "saved", repair.Saved, "err", repair.Err)
	}
	a.log.Info("queue opened", "file", path)
	return s, nil
}

// openStreams returns queues in the Redis that keeps the counts.
func (a *App) openStreams() (queue.Store, error) {
	o, err := redisOptions(&a.options.Config.Store.Redis)
	if err != nil {
		return nil, wrongRedis(&a.options.Config.Store.Redis, err)
	}
	a.log.Info("queue opened", "addresses", o.Addresses)
	return streams.New(streams.Options{
		Addresses: o.Addresses, Cluster: o.Mode == redis.Cluster, MasterName: o.MasterName,
		Username: o.Username, Password: o.Password, SentinelUsername: o.SentinelUsername, SentinelPassword: o.SentinelPassword,
		DB: o.DB, TLS: o.TLS, Prefix: cmp.Or(o.Prefix, redis.DefaultPrefix), Replicas: a.options.Config.Queue.Replicas,
		Clock: a.options.Clock, Logger: a.log,
	}), nil
}

// startQueue begins to send what is queued. It may be called again.
func (a *App) startQueue() {
	q := a.queue.Load()
	if q == nil || a.sender == nil || !a.queueStarted.CompareAndSwap(false, true) {
		return
	}
	a.sender.SetQueue(q)
	q.Start()
}

func (a *App) drainQueue() {
	if q := a.queue.Load(); q != nil {
		q.Drain()
	}
}

// closeQueue closes it: what is under way may finish until ctx is done.
func (a *App) closeQueue(ctx context.Context) error {
	q := a.queue.Swap(nil)
	if q == nil {
		return nil
	}
	if err := q.Close(ctx); err != nil {
		return fmt.Errorf("queue not closed: %w", err)
	}
	return nil
}

// queuePolicy is that of a rule in force; of one that has gone, the default.
func (a *App) queuePolicy(domain, rule string) queue.Policy {
	r := a.engine.Rules().Rule(domain, rule)
	if r == nil || r.OnLimit.Queueing == nil {
		return queue.DefaultPolicy()
	}
	q := r.OnLimit.Queueing
	share := q.KeyShare
	if r.KeyParts() == 0 {
		share = 100 // all requests have the same key
	}
	return queue.Policy{
		MaxEntries: q.MaxEntries, MaxBytes: q.MaxBytes, KeyShare: share, MaxBody: q.MaxBody, TTL: q.TTL,
		Retries: q.Retries, BackoffLeast: q.BackoffLeast, BackoffMost: q.BackoffMost,
		Concurrency: q.Concurrency, Timeout: q.Timeout, Keep: q.Keep, KeepBytes: q.KeepResponse,
	}
}

// takeQueued asks all limits of an entry whether it may be sent now. Without the
// store's answer it may not: it can wait, unlike a request whose client does.
func (a *App) takeQueued(ctx context.Context, r *queue.Ref, at time.Time) (queue.Permit, error) {
	claims := make([]engine.Claim, len(r.Claims))
	for i, c := range r.Claims {
		claims[i] = engine.Claim{Rule: c.Rule, Key: c.Key, Cost: c.Cost}
	}
	v, err := a.engine.Again(ctx, r.Domain, claims, at.UnixMicro())
	undo := func() {
		if err := a.engine.Undo(context.WithoutCancel(ctx), &v, a.options.Clock().UnixMicro()); err != nil {
			a.log.Debug("what a queued request took was not given back", "err", err)
		}
	}
	if err != nil {
		if v.Allowed {
			undo()
		}
		v.Release()
		return queue.Permit{}, err
	}
	if v.Allowed {
		a.engine.NoteCosts(ctx, &v)
		hold := a.engine.Hold(ctx, &v, engine.HoldOptions{Clock: a.options.Clock})
		done := func() {
			hold.End()
			v.Release()
		}
		settle := func(told queue.Answer, err error) { a.sender.SettleDelivery(ctx, &v, told, err) }
		return queue.Permit{Allowed: true, Delay: v.Delay, Undo: undo, Settle: settle, Done: done}, nil
	}
	p := queue.Permit{RetryAfter: v.Decision.RetryAfter}
	for _, result := range v.Results() {
		if result.Rule == v.Rule && result.Enforced && !result.Decision.Allowed {
			p.By = queue.Claim{Rule: v.Rule.Name, Key: result.Key}
			p.Own = v.Rule.Scope == r.Lane.Scope && result.Key == r.Lane.Key
		}
	}
	if p.Own {
		p.By = queue.Claim{}
	}
	switch {
	case v.Decision.Reason == headgate.Banned:
		p.RetryAfter, p.Why = -1, "its key is banned"
	case p.RetryAfter == headgate.Never:
		p.RetryAfter = -1
	case v.Rule != nil && v.Rule.Limit.Algorithm() == headgate.Concurrency:
		p.RetryAfter = min(p.RetryAfter, placeAgain) // nobody knows when a place is free
	}
	v.Release()
	return p, nil
}
