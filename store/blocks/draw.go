package blocks

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/store"
)

// drawing is a draw in progress. All callers that need one wait for the same.
type drawing struct {
	want, sent int64
	promised   atomic.Int64 // tokens for requests that waited when it began, and have not taken them
	void       bool         // its key was reset in the meantime
	done       chan struct{}
	answer     store.Decision // the store's, when done is closed
	err        error
}

// begin returns the draw to wait for, and whether the caller must send it. It returns
// nil if there is something to spend now, besides what is promised to others. cost is what
// the caller needs and has added to waiting, or 0 for a draw ahead.
func (l *line) begin(now, cost, promised int64) (d *drawing, mine bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.draws.Add(1)
	switch {
	case l.drawing != nil:
		return l.drawing, false
	case l.gone, now < l.resting.Load(), now < l.failing.Load():
		return nil, false
	case cost > 0 && (l.current.Load().has(now) >= cost+promised || l.next.Load().has(now) >= cost):
		return nil, false
	case l.next.Load().has(now) > 0 && cost == 0:
		return nil, false
	}
	waiting := l.waiting.Load()
	l.drawing = &drawing{want: min(max(l.size, cost, waiting), mostDrawn(l.rule)), sent: now, done: make(chan struct{})}
	l.drawing.promised.Store(waiting)
	l.asked.Store(true)
	l.counters.draws.Add(1)
	return l.drawing, true
}

// mostDrawn returns the most that the store lets a process draw.
func mostDrawn(r *store.Rule) int64 { return max(r.Most()/4, 1) }

// draw returns the op of a draw.
func (l *line) draw(want int64) store.Op {
	op := l.op
	op.Kind, op.Cost, op.Duration = store.KindDraw, want, micros(l.rule.Age)
	return op
}

// finish ends a draw with the store's answer.
func (l *line) finish(d *drawing, now int64, answer store.Decision, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drawing = nil
	d.answer, d.err = answer, err
	defer close(d.done)
	defer l.asked.Store(false)
	if err != nil {
		l.counters.failed.Add(1)
		// Each draw that is lost costs a block, so until then the store decides.
		l.failing.Store(now + l.beat/2)
		if !errors.Is(err, store.ErrNotSent) {
			l.counters.lost.Add(d.want)
			l.counters.stuck.add(l, d.want, now, now+countsFor(l.rule))
		}
		return
	}
	l.resetAt.Store(d.sent + int64(answer.ResetAfter/time.Microsecond))
	if rest := l.rest(answer.Remaining); rest > 0 {
		l.resting.Store(now + rest)
	}
	if answer.Granted == 0 {
		l.counters.refused.Add(1)
		return
	}
	l.roundup = max((3*l.roundup+now-d.sent)/4, 1)
	l.counters.granted.Add(1)
	b := l.newBlock(d, now, &answer)
	l.counters.drawn.Add(b.size)
	l.counters.held.Add(b.size)
	old := l.current.Load()
	switch {
	case d.void:
		// It may have been charged before the reset: using it could be too much.
		b.left.Store(sealed)
		l.counters.held.Add(-b.size)
		l.counters.expired.Add(b.size)
		l.counters.stuck.add(l, b.size, now, b.over(l.rule))
	case now >= b.deadline:
		l.late(&answer, now)
		l.retire(b, now)
	case l.gone:
		l.retire(b, now)
	case old.has(now) == 0:
		l.retire(old, now)
		b.low, l.lateIn = l.low(b.size), 0
		l.open(b, now)
	default:
		l.retire(l.next.Load(), now)
		b.low, l.lateIn = l.low(b.size), 0
		l.next.Store(b)
	}
}

// late handles a draw that came too late to be used. If its window has ended in the meantime,
// the next draw is for a new one; if that is late too, or no window ended, the store is too
// far away, and for a while it decides, in one round trip. mu must be held.
func (l *line) late(answer *store.Decision, now int64) {
	window := answer.CountsUntil
	if ended := answer.Delay < micros(l.rule.Age); ended && (l.lateIn == 0 || l.lateIn == window) {
		l.lateIn = window
		return
	}
	l.failing.Store(now + lateFor)
}

// refuse answers a request while no draw may begin: there is too little for it here, and
// hardly anything at the store.
func (l *line) refuse(now int64, d *store.Decision) bool {
	until := l.resting.Load()
	if now >= until {
		return false
	}
	*d = store.Decision{
		Reason: store.ReasonCached, Limit: l.rule.Most(), Remaining: l.current.Load().has(now),
		RetryAfter: micros(until - now), ResetAfter: micros(max(l.resetAt.Load()-now, 0)),
	}
	return true
}

// newBlock returns the block that an answer gives. Its time counts from before the draw
// was sent, so it is never used longer than the store allows.
func (l *line) newBlock(d *drawing, now int64, answer *store.Decision) *block {
	valid := int64(answer.Delay / time.Microsecond)
	b := &block{
		size: answer.Granted, short: answer.Granted < d.want, sent: d.sent, began: now, deadline: d.sent + valid - (valid+margin-1)/margin,
		remaining: answer.Remaining, resetAt: d.sent + int64(answer.ResetAfter/time.Microsecond), counts: answer.CountsUntil,
		// ResetAfter is never too short, so this is never too late.
		drawn: answer.CountsUntil - int64(answer.ResetAfter/time.Microsecond),
	}
	b.left.Store(b.size)
	return b
}
