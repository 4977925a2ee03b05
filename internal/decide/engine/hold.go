package engine

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/rules"
)

// Lease is a place under a rule that limits what is under way at the same time.
type Lease struct {
	// Rule is the rule, Key what it counts by.
	Rule        *rules.Rule
	Key         string
	Name, Count int64 // Name is headgate.Decision.Lease, Count how many places it is
	Local       bool  // it was taken in this process's own memory, as the store could not answer
}

// Leases appends to dst what v has taken under rules that limit what is under
// way. They are good after Release too.
func (v *Verdict) Leases(dst []Lease) []Lease {
	results := v.Results()
	for i := range results {
		if r := &results[i]; r.Decision.Lease != 0 {
			dst = append(dst, Lease{
				Rule: r.Rule, Key: strings.Clone(r.Key), Name: r.Decision.Lease, Count: r.Decision.Granted,
				Local: r.Decision.Reason == headgate.Fallback,
			})
		}
	}
	return dst
}

// HasLeases reports whether there are any.
func (v *Verdict) HasLeases() bool {
	results := v.Results()
	for i := range results {
		if results[i].Decision.Lease != 0 {
			return true
		}
	}
	return false
}

// op is what to ask a store about l.
func (l *Lease) op(kind headgate.Kind, at int64) headgate.Op {
	op := headgate.Op{
		Key: l.Key, Scope: l.Rule.Scope, Limit: l.Rule.Limit, Cost: l.Count, At: at, Lease: l.Name, Kind: kind,
	}
	if l.Local {
		op.Limit = localLimit(l.Rule)
	}
	return op
}

// ReleaseLeases ends leases. It reports how many of them had not ended before.
// at is now, in microseconds since the Unix epoch.
func (e *Engine) ReleaseLeases(ctx context.Context, leases []Lease, at int64) (ended int, err error) {
	err = e.each(ctx, leases, headgate.Release, at, func(_ *Lease, d *headgate.Decision) {
		if d.Granted > 0 {
			ended++
		}
	})
	return ended, err
}

// RenewLeases makes leases last from now on, and gives them their new names. It
// reports how many there were to renew: one that has ended is left as it is.
func (e *Engine) RenewLeases(ctx context.Context, leases []Lease, at int64) (renewed int, err error) {
	err = e.each(ctx, leases, headgate.Renew, at, func(l *Lease, d *headgate.Decision) {
		if d.Allowed {
			l.Name = d.Lease
			renewed++
		}
	})
	return renewed, err
}

// each asks about leases, each in the store that it was taken from.
func (e *Engine) each(ctx context.Context, leases []Lease, kind headgate.Kind, at int64, answer func(*Lease, *headgate.Decision)) error {
	var errs []error
	for i := range leases {
		l := &leases[i]
		d, err := e.storeOf(l).Take(ctx, l.op(kind, at))
		if err != nil {
			errs = append(errs, unavailable(err))
			continue
		}
		answer(l, &d)
	}
	return errors.Join(errs...)
}

// storeOf returns the store that l was taken from.
func (e *Engine) storeOf(l *Lease) headgate.Store {
	if l.Local && e.fallback != nil {
		return e.fallback
	}
	return e.store
}

// Hold keeps the leases of one request until it has ended.
type Hold struct {
	engine *Engine
	clock  func() time.Time
	every  time.Duration
	ctx    context.Context //nolint:containedctx // of the request, whose values the renewals keep
	failed func(error)

	mu     sync.Mutex
	leases []Lease
	timer  *time.Timer // nil when it has ended
}

// HoldOptions say how a Hold is kept.
type HoldOptions struct {
	Clock func() time.Time // stamps what is asked. Required.
	// Failed hears of leases that could not be renewed or released; they end by
	// themselves. It may be nil.
	Failed func(error)
}

// errLost says that a request goes on that has no place any more.
var errLost = errors.New("a lease ended before its request, and its slot is taken")

// Hold renews the leases of v, three times in the time that the shortest of
// them lasts, until End. It returns nil, on which End may be called, if there
// are none.
func (e *Engine) Hold(ctx context.Context, v *Verdict, o HoldOptions) *Hold {
	if !v.Allowed {
		return nil
	}
	leases := v.Leases(nil)
	if len(leases) == 0 {
		return nil
	}
	every := leases[0].Rule.Limit.Period()
	for i := range leases {
		every = min(every, leases[i].Rule.Limit.Period())
	}
	h := &Hold{
		engine: e, clock: o.Clock, every: max(every/3, time.Millisecond), leases: leases,
		ctx: context.WithoutCancel(ctx), failed: o.Failed,
	}
	if h.failed == nil {
		h.failed = func(error) {}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.timer = time.AfterFunc(h.every, h.renew)
	return h
}

// renew renews the leases, and takes anew what was lost while the store could
// not be reached.
func (h *Hold) renew() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.timer == nil {
		return
	}
	at := h.clock().UnixMicro()
	var lost []*Lease
	err := h.engine.each(h.ctx, h.leases, headgate.Renew, at, func(l *Lease, d *headgate.Decision) {
		if d.Allowed {
			l.Name = d.Lease
		} else {
			lost = append(lost, l)
		}
	})
	for _, l := range lost {
		d, again := h.engine.storeOf(l).Take(h.ctx, l.op(headgate.Take, at))
		if l.Name = d.Lease; again == nil && !d.Allowed {
			again = errLost
		}
		err = errors.Join(err, again)
	}
	if err != nil {
		h.failed(err)
	}
	h.timer.Reset(h.every)
}

// Lapse lets the leases end by themselves: they are neither renewed nor released.
// It is for requests that may still be under way, where nobody will know the end.
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

// End releases the leases. A second End does nothing.
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
	if _, err := h.engine.ReleaseLeases(h.ctx, h.leases, h.clock().UnixMicro()); err != nil {
		h.failed(err)
	}
}
