package failsafe

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// outcome is what the result of a call shows about the store.
type outcome uint8

const (
	// succeeded: the store answered.
	succeeded outcome = iota
	// failed: the store did not answer.
	failed
	// silent: the call shows nothing, for example because the caller allowed less time
	// than the store may take, or because the request was invalid.
	silent
	// starved: there was no answer in time, but this was noticed so late that this
	// process must have waited for a CPU, and the answer may have waited too.
	starved
)

// starvedSilence is how many times the usual period must pass without a success before
// starved calls open the breaker: by then the store is dead for this process, whatever
// the cause.
const starvedSilence = 4

// ticket lets one call through the breaker. Its outcome must be reported once.
type ticket struct {
	turn  uint64
	probe bool
}

// breaker decides whether the store is called. Times are monotonic, in nanoseconds
// since the Store was created.
type breaker struct {
	options  Breaker
	timeout  time.Duration
	onChange func(Change)

	// turn counts the changes: even while closed, odd while open. The outcome of a call
	// from an earlier turn is ignored.
	turn     atomic.Uint64
	failures atomic.Int64 // in a row
	punctual atomic.Int64 // failures that were not starved
	lastGood atomic.Int64 // approximate time of the last success
	probeAt  atomic.Int64 // while open: time of the next probe
	probing  atomic.Bool  // while open: a caller is probing

	failedFast, probes atomic.Uint64
	cause              atomic.Pointer[openError] // of the last failure, while open

	mu    sync.Mutex // guards changes
	wait  time.Duration
	since int64
}

func (b *breaker) state() State { return State(b.turn.Load() & 1) }

// admit returns a ticket for a call, or false if the call must fail at once.
func (b *breaker) admit(now int64) (ticket, bool) {
	turn := b.turn.Load()
	if turn&1 == uint64(Closed) {
		return ticket{turn: turn}, true
	}
	if now >= b.probeAt.Load() && b.probing.CompareAndSwap(false, true) {
		// Another probe may have ended in between and settled the state.
		if b.turn.Load() == turn && now >= b.probeAt.Load() {
			b.probes.Add(1)
			return ticket{turn: turn, probe: true}, true
		}
		b.probing.Store(false)
		return b.admit(now)
	}
	b.failedFast.Add(1)
	return ticket{}, false
}

// trusted reports whether the store has just answered and there is no sign of trouble.
func (b *breaker) trusted(t ticket, now int64) bool {
	return !t.probe && b.failures.Load() == 0 && now-b.lastGood.Load() < int64(b.timeout)
}

// done reports how a call ended.
func (b *breaker) done(t ticket, o outcome, err error, now int64) {
	switch {
	case t.probe:
		b.probed(o, err, now)
	case b.turn.Load() != t.turn:
	case o == succeeded:
		// Written only if needed, so that callers on many cores do not contend for the
		// cache line.
		if b.failures.Load() != 0 {
			b.forgive()
		}
		if now-b.lastGood.Load() > int64(time.Millisecond) {
			b.lastGood.Store(now)
		}
	case o == failed || o == starved:
		failures, punctual, silence := b.failures.Add(1), b.punctual.Load(), now-b.lastGood.Load()
		if o == failed {
			punctual = b.punctual.Add(1)
		}
		most := int64(b.options.Failures)
		if punctual >= most && silence >= int64(b.options.Silence) ||
			failures >= most && silence >= starvedSilence*int64(b.options.Silence) {
			b.open(t.turn, err, now)
		}
	}
}

// forgive resets the failures.
func (b *breaker) forgive() {
	b.failures.Store(0)
	b.punctual.Store(0)
}

func (b *breaker) open(turn uint64, err error, now int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.turn.Load() != turn {
		return
	}
	b.wait = b.options.OpenFor
	b.probeAt.Store(now + b.jittered())
	b.cause.Store(&openError{err})
	b.change(Change{State: Open, Err: err}, now)
}

// openError is ErrOpen with the reason: the last failure.
type openError struct{ cause error }

func (e *openError) Error() string { return ErrOpen.Error() + ": " + e.cause.Error() }
func (e *openError) Unwrap() error { return ErrOpen }

// refusal returns the error of a call that is not let through.
func (b *breaker) refusal() error {
	if e := b.cause.Load(); e != nil {
		return e
	}
	return ErrOpen
}

// probed handles the end of a probe; a success closes the breaker.
func (b *breaker) probed(o outcome, err error, now int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch o {
	case succeeded:
		b.forgive()
		b.lastGood.Store(now)
		b.change(Change{State: Closed}, now)
	case failed:
		b.cause.Store(&openError{err})
		b.wait = min(2*b.wait, b.options.Longest)
		b.probeAt.Store(now + b.jittered())
	case starved:
		b.probeAt.Store(now + b.jittered())
	case silent: // the next caller probes
	}
	b.probing.Store(false)
}

// change requires mu to be held, so that OnChange sees changes in order.
func (b *breaker) change(c Change, now int64) {
	c.After = time.Duration(now - b.since)
	b.since = now
	b.turn.Add(1)
	if b.onChange != nil {
		b.onChange(c)
	}
}

// jittered returns the wait until the next probe.
func (b *breaker) jittered() int64 {
	return int64(float64(b.wait) * (1 + b.options.Jitter*(2*rand.Float64()-1))) //nolint:gosec // spreads load, keeps no secret
}

// opened returns how often the breaker has opened.
func (b *breaker) opened() uint64 { return (b.turn.Load() + 1) / 2 }
