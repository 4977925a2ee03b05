package engine

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/store"
)

// Lease is a slot under a concurrency rule.
type Lease struct {
	// Rule is the rule, Key its key for the request.
	Rule        *rules.Rule
	Key         string
	Name, Count int64 // Name is store.Decision.Lease, Count the number of slots
	Local       bool  // taken in this process's memory, because the store could not answer
}

// Leases appends to dst the leases that v has taken under concurrency rules. They stay
// valid after Release.
func (v *Verdict) Leases(dst []Lease) []Lease {
	results := v.Results()
	for i := range results {
		if r := &results[i]; r.Decision.Lease != 0 {
			dst = append(dst, Lease{
				Rule: r.Rule, Key: strings.Clone(r.Key), Name: r.Decision.Lease, Count: r.Decision.Granted,
				Local: r.Decision.Reason == headgate.ReasonFallback,
			})
		}
	}
	return dst
}

// HasLeases reports whether v has taken any leases.
func (v *Verdict) HasLeases() bool {
	results := v.Results()
	for i := range results {
		if results[i].Decision.Lease != 0 {
			return true
		}
	}
	return false
}

// op returns a store request about l.
func (l *Lease) op(kind store.Kind, at int64) store.Op {
	op := store.Op{
		Key: l.Key, Scope: l.Rule.Scope, Rule: l.Rule.Limit.Rule(), Cost: l.Count, At: at, Lease: l.Name, Kind: kind,
	}
	if l.Local {
		op.Rule = localLimit(l.Rule).Rule()
	}
	return op
}

// ReleaseLeases releases leases and returns how many of them had not already ended. at
// is now, in microseconds since the Unix epoch.
func (e *Engine) ReleaseLeases(ctx context.Context, leases []Lease, at int64) (ended int, err error) {
	err = e.each(ctx, leases, store.KindRelease, at, func(_ *Lease, d *store.Decision) {
		if d.Granted > 0 {
			ended++
		}
	})
	return ended, err
}

// RenewLeases makes leases last their full time from now, updates their names, and
// returns how many were renewed. A lease that has ended is not renewed.
func (e *Engine) RenewLeases(ctx context.Context, leases []Lease, at int64) (renewed int, err error) {
	err = e.each(ctx, leases, store.KindRenew, at, func(l *Lease, d *store.Decision) {
		if d.Allowed {
			l.Name = d.Lease
			renewed++
		}
	})
	return renewed, err
}

// each sends a request about each lease to the store it was taken from.
func (e *Engine) each(ctx context.Context, leases []Lease, kind store.Kind, at int64, answer func(*Lease, *store.Decision)) error {
	var errs []error
	for i := range leases {
		l := &leases[i]
		d, err := store.Execute(ctx, e.storeOf(l), l.op(kind, at))
		if err != nil {
			errs = append(errs, unavailable(err))
			continue
		}
		answer(l, &d)
	}
	return errors.Join(errs...)
}

// storeOf returns the store from which l was taken.
func (e *Engine) storeOf(l *Lease) store.Store {
	if l.Local && e.fallback != nil {
		return e.fallback
	}
	return e.store
}

// Hold keeps the leases of one request until it ends.
type Hold struct {
	engine *Engine
	clock  func() time.Time
	every  time.Duration
	lasts  time.Duration   // the longest lease
	ctx    context.Context //nolint:containedctx // of the request, whose values the renewals keep
	failed func(error)

	mu     sync.Mutex
	leases []Lease
	until  time.Time   // when the leases expire
	timer  *time.Timer // nil once ended
	last   bool        // no more renewals
}

// HoldOptions configure a Hold.
type HoldOptions struct {
	Clock func() time.Time // the time of store requests; required
	// Failed is called if leases could not be renewed or released at once; it may be nil.
	// Both are tried again until the leases expire.
	Failed func(error)
}

// errLost means that a running request has lost its slot.
var errLost = errors.New("a lease ended before its request, and its slot is taken")

// Hold renews the leases of v until End, three times within the shortest lease. If
// there are none, it returns nil, on which End may be called.
func (e *Engine) Hold(ctx context.Context, v *Verdict, o HoldOptions) *Hold {
	if !v.Allowed {
		return nil
	}
	leases := v.Leases(nil)
	if len(leases) == 0 {
		return nil
	}
	shortest := leases[0].Rule.Limit.Period()
	longest := shortest
	for i := range leases {
		lease := leases[i].Rule.Limit.Period()
		shortest, longest = min(shortest, lease), max(longest, lease)
	}
	h := &Hold{
		engine: e, clock: o.Clock, every: max(shortest/3, time.Millisecond), lasts: longest, leases: leases,
		ctx: context.WithoutCancel(ctx), failed: o.Failed,
	}
	h.until = h.clock().Add(h.lasts)
	if h.failed == nil {
		h.failed = func(error) {}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.timer = time.AfterFunc(h.every, h.renew)
	return h
}

// renew renews the leases, and retakes those that were lost while the store was
// unreachable.
func (h *Hold) renew() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.timer == nil || h.last {
		return
	}
	at := h.clock().UnixMicro()
	var lost []*Lease
	err := h.engine.each(h.ctx, h.leases, store.KindRenew, at, func(l *Lease, d *store.Decision) {
		if d.Allowed {
			l.Name = d.Lease
		} else {
			lost = append(lost, l)
		}
	})
	for _, l := range lost {
		d, again := store.Execute(h.ctx, h.engine.storeOf(l), l.op(store.KindTake, at))
		if l.Name = d.Lease; again == nil && !d.Allowed {
			again = errLost
		}
		err = errors.Join(err, again)
	}
	if err != nil {
		h.failed(err)
	} else {
		h.until = h.clock().Add(h.lasts)
	}
	h.timer.Reset(h.every)
}

// Lapse lets the leases expire: they are neither renewed nor released. It is for
// requests that may still be running and whose end cannot be observed.
func (h *Hold) Lapse() {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.timer != nil {
		h.timer.Stop()
		h.timer = nil
	}
}

// StopRenewing lets the leases expire unless End comes earlier.
func (h *Hold) StopRenewing() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last = true
}

// How long to wait before a release that failed is tried again, at first and at most.
const (
	firstRetry = 50 * time.Millisecond
	lastRetry  = 5 * time.Second
)

// End releases the leases. While the store does not answer, it is tried again in the
// background, until they have expired. A second End does nothing.
func (h *Hold) End() {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.timer == nil {
		return
	}
	h.timer.Stop()
	h.timer = nil
	if err := h.release(firstRetry); err != nil {
		h.failed(err)
	}
}

// release releases the leases, and after a pause again those for which the store did not
// answer. It requires h.mu to be held.
func (h *Hold) release(pause time.Duration) error {
	now := h.clock()
	err := h.engine.each(h.ctx, h.leases, store.KindRelease, now.UnixMicro(), func(l *Lease, _ *store.Decision) { l.Name = 0 })
	h.leases = slices.DeleteFunc(h.leases, func(l Lease) bool { return l.Name == 0 }) // released
	if len(h.leases) > 0 && now.Add(pause).Before(h.until) {
		time.AfterFunc(pause, func() {
			h.mu.Lock()
			defer h.mu.Unlock()
			_ = h.release(min(2*pause, lastRetry))
		})
	}
	return err
}
