package queue

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// fate is what happens to an entry after an attempt.
type fate uint8

const (
	stays   fate = iota // unchanged
	later               // it.attempts has been changed
	removed             // no longer ours
)

// attempt sends the entry if its limits allow it, and reschedules the line.
func (q *Queue) attempt(l *line, it *item) {
	var p pause
	f := q.try(l, it, &p)
	q.mu.Lock()
	defer q.mu.Unlock()
	it.busy = false
	l.answered(it)
	l.inFlight--
	q.leave(l)
	now := q.options.Clock()
	if l.stop(it, &p, now); it.looks != q.looks { // it may have been refused before LookAgain
		l.lookAgain(func(string) bool { return true }, now)
	}
	if f == removed || it.gone {
		l.remove(it)
	}
	q.reschedule(l)
	q.nudge() // a slot is free
}

// pause is until when a line must wait, or only those of its entries with the claim by.
type pause struct {
	until  time.Time
	by     claimed
	counts bool // the limit of by counts what it refuses
	early  bool // before the limit said
}

// try returns the fate of the entry, and in p until when not to try again.
func (q *Queue) try(l *line, it *item, p *pause) fate {
	now := q.options.Clock()
	policy := q.options.Policy(it.ref.Domain, it.ref.Rule)
	if !now.Before(it.ref.Expires) {
		return q.bury(it, &policy, fmt.Sprintf("not delivered within %s", it.ref.Expires.Sub(it.ref.Accepted)))
	}
	permit, err := q.options.Take(q.ctx, &it.ref, now)
	if err != nil {
		p.until = now.Add(storeRetry)
		return stays
	}
	if !permit.Allowed {
		p.by, p.counts = claimed{permit.By.Rule, permit.By.Key, permit.By.Owner}, permit.Counts
		if permit.Exception != "" && !now.Add(permit.RetryAfter).Before(it.ref.Expires) {
			return q.bury(it, &policy, permit.Exception)
		}
		if permit.RetryAfter < 0 {
			return q.bury(it, &policy, "its cost is above the limit")
		}
		wait := q.patience(l, &permit)
		p.until, p.early = now.Add(wait), wait < permit.RetryAfter
		return stays
	}
	q.allowed(l, it)
	if permit.Done != nil {
		defer permit.Done()
	}
	came := q.turn(l, permit.Delay) && (permit.Enter == nil || permit.Enter())
	e, err := q.options.Store.Load(q.ctx, &it.ref)
	if err != nil || !came || q.isStopping() {
		if permit.Undo != nil {
			permit.Undo()
		}
		switch {
		case errors.Is(err, ErrNotFound):
			return removed
		case errors.Is(err, ErrDamaged):
			return q.bury(it, &policy, err.Error())
		}
		p.until = now.Add(storeRetry)
		switch {
		case errors.Is(err, ErrUnsure):
			it.stepAside(p, now)
		case err != nil:
			it.failed = now
		}
		return stays
	}
	return q.send(it, e, &policy, permit.Settle)
}

// allowed notes that the limits of an entry allow it. Others can be asked while it is sent.
func (q *Queue) allowed(l *line, it *item) {
	l.refused.Store(0)
	q.mu.Lock()
	defer q.mu.Unlock()
	l.answered(it)
	l.early = false
	q.reschedule(l)
}

// patience returns how long a refused line waits. A limit may be free earlier than it said: by a
// refund, an operator, or a reload. If many lines wait for the same other limit,
// they do not all retry for each of its tokens.
func (q *Queue) patience(l *line, p *Permit) time.Duration {
	wait := max(p.RetryAfter, time.Millisecond)
	if !p.Counts {
		wait = min(wait, max(wait/2, soon), lookAgain)
	}
	if p.Own {
		return wait
	}
	times := min(l.refused.Add(1), 16)
	return wait + time.Duration(q.options.Random(int64(min(wait*time.Duration(times), 2*time.Second))+1))
}

// wait waits for d. It returns false if the queue stops first.
func (q *Queue) wait(d time.Duration) bool {
	select {
	case <-time.After(d): //nolint:forbidigo // waiting for a turn
		return true
	case <-q.stop:
		return false
	}
}

// turn waits for d like wait, and frees the slot while it waits.
func (q *Queue) turn(l *line, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	q.mu.Lock()
	rests := q.resting < maxResting
	if rests {
		q.resting++
		q.leave(l)
		q.nudge()
	}
	q.mu.Unlock()
	came := q.wait(d)
	if !rests {
		return came
	}
	ready := make(chan struct{})
	q.mu.Lock()
	q.resting--
	l.group.returning = append(l.group.returning, returning{l, ready})
	q.nudge()
	q.mu.Unlock()
	select {
	case <-ready:
		return came
	case <-q.stop:
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	select {
	case <-ready:
	default:
		q.enter(l) // the end of the attempt returns it
	}
	return false
}

func (q *Queue) isStopping() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.stopping
}

// send sends e and records the result.
func (q *Queue) send(it *item, e *Entry, p *Policy, charge func(Answer, error)) fate {
	ctx, cancel := context.WithTimeout(q.ctx, p.Timeout)
	defer cancel()
	answer, err := q.options.Send(ctx, e, p.KeepResponse)
	if charge != nil {
		charge(answer, err)
	}
	now := q.options.Clock()
	if q.ctx.Err() != nil && err != nil {
		return stays // cancelled: sent again later
	}
	c := q.counts.of(it.ref.Domain, it.ref.Rule)
	it.attempts.Count++
	if err == nil && !again(answer.Status) {
		c.delivered.Add(1)
		result := Result{
			Status: answer.Status, ContentType: answer.ContentType, Body: answer.Body, Cut: answer.Cut,
			Attempts: it.attempts.Count, Accepted: e.Accepted, Delivered: now,
		}
		return q.settle(func() error { return q.options.Store.Deliver(q.ctx, &it.ref, &result, p.Keep) }, removed)
	}
	c.failed.Add(1)
	it.attempts.Status, it.attempts.Error = answer.Status, ""
	if err != nil {
		it.attempts.Status, it.attempts.Error = 0, err.Error()
	}
	if it.attempts.Count > p.Retries {
		return q.bury(it, p, it.attempts.Error)
	}
	it.attempts.Next = now.Add(max(p.backoff(it.attempts.Count, q.options.Random), answer.RetryAfter))
	return q.settle(func() error { return q.options.Store.Postpone(q.ctx, &it.ref, &it.attempts) }, later)
}

// again reports whether a request with this status should be retried.
func again(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	}
	return status >= 500
}

// bury makes it a dead letter.
func (q *Queue) bury(it *item, p *Policy, why string) fate {
	it.attempts.Ended = q.options.Clock()
	if why != "" {
		it.attempts.Error = why
	}
	var dropped int
	f := q.settle(func() (err error) {
		dropped, err = q.options.Store.Bury(q.ctx, &it.ref, &it.attempts, p)
		return err
	}, removed)
	if q.ctx.Err() != nil {
		return f
	}
	c := q.counts.of(it.ref.Domain, it.ref.Rule)
	c.dead.Add(1)
	c.dropped.Add(uint64(dropped))
	q.options.Logger.Warn("queued request became a dead letter", "id", it.ref.ID, "domain", it.ref.Domain, "rule", it.ref.Rule,
		"attempts", it.attempts.Count, "status", it.attempts.Status, "err", it.attempts.Error, "forgotten", dropped)
	return f
}

// settle records a result, retrying until it succeeds: before that the entry must not be sent
// again. The store may be unavailable or full.
func (q *Queue) settle(write func() error, done fate) fate {
	wait := 50 * time.Millisecond
	for {
		err := write()
		switch {
		case err == nil:
			return done
		case errors.Is(err, ErrNotFound):
			return removed
		case errors.Is(err, ErrLost), errors.Is(err, ErrClosed):
			return stays // until the store hands it out again
		}
		q.options.Logger.Debug("outcome of a queued request could not be saved, trying again", "err", err)
		select {
		case <-time.After(wait): //nolint:forbidigo // waiting for the store
		case <-q.ctx.Done():
			return stays
		}
		wait = min(2*wait, 5*time.Second)
	}
}
