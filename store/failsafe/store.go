package failsafe

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// fairShare: a caller must have given the store at least this fraction of the Timeout,
// a quarter, for a timeout to count as the store's failure.
const fairShare = 4

// Store is a store.Store that limits how long its caller waits. It is safe for
// concurrent use.
type Store struct {
	inner    store.Store
	flaw     error // of inner, which is then not called
	options  Options
	began    time.Time
	breaker  breaker
	slots    slots
	denied   *refusedCache // nil without a deny cache
	inFlight atomic.Int64
	stuck    atomic.Int64

	failures, timeouts      atomic.Uint64
	full, readOnly, refused answers
}

var _ store.Store = (*Store)(nil)

// New returns a Store that calls inner and owns it: Close closes both. If inner is nil
// or a nil pointer, every call returns store.ErrNoStore, and
// headgate.Limiter.Validate reports it at once.
func New(inner store.Store, options Options) *Store {
	o := options.withDefaults()
	s := &Store{inner: inner, options: o, began: time.Now()} //nolint:forbidigo // deadlines are on the real clock
	s.flaw = headgate.New(inner).Validate()
	s.breaker.options, s.breaker.timeout, s.breaker.onChange = o.Breaker, o.Timeout, o.OnChange
	s.breaker.lastGood.Store(-int64(o.Breaker.Silence)) // nothing is known about the store yet
	s.slots.timeout = o.Timeout
	if o.DenyCache.Entries > 0 {
		s.denied = newDenied(o.DenyCache)
	}
	return s
}

// Stats returns the counters.
func (s *Store) Stats() Stats {
	stats := Stats{
		State: s.breaker.state(), Failures: s.failures.Load(), Timeouts: s.timeouts.Load(),
		Full: s.full.count.Load(), ReadOnly: s.readOnly.count.Load(), Refused: s.refused.count.Load(),
		FailedFast: s.breaker.failedFast.Load(), Opened: s.breaker.opened(),
		Probes: s.breaker.probes.Load(), Stuck: int(s.stuck.Load()),
	}
	if s.denied != nil {
		stats.CacheHits = s.denied.hits()
	}
	return stats
}

// Close closes the inner store.
func (s *Store) Close() error {
	if errors.Is(s.flaw, store.ErrNoStore) {
		return nil
	}
	return s.inner.Close()
}

// now returns the time, also as nanoseconds since New.
func (s *Store) now() (time.Time, int64) {
	t := time.Now() //nolint:forbidigo // deadlines are on the real clock
	return t, int64(t.Sub(s.began))
}

// Do implements store.Store. What the deny cache does not answer counts as one call
// for the breaker, with one Timeout.
func (s *Store) Do(ctx context.Context, b *store.Batch) {
	if s.flaw != nil {
		b.Fail(s.flaw)
		return
	}
	if len(b.Ops) == 0 {
		s.inner.Do(ctx, b)
		return
	}
	clock, start := s.now()
	var few [maxCachedOps]place
	places := few[:]
	if s.denied != nil && len(b.Ops) > len(few) {
		places = make([]place, len(b.Ops))
	}
	sent, from := b, []origin(nil)
	if s.answer(b, places, start) {
		if sent, from = rest(b); len(from) == 0 {
			return
		}
	}
	t, ok := s.breaker.admit(start)
	if ok {
		bounded, own := s.slots.context(ctx, start, clock)
		// It runs on its caller's goroutine if the store is trusted to respect the context.
		if s.inFlight.Add(1) <= maxInline && !s.options.IgnoresContext && s.breaker.trusted(t, start) {
			s.callInner(bounded, sent)
		} else {
			s.isolate(bounded, sent)
		}
		s.inFlight.Add(-1)
		s.settle(t, asked{bounded, start, own}, sent.Groups)
		if s.denied != nil {
			s.denied.learn(sent, from, places, start)
		}
	} else {
		s.breaker.failedFast.Add(uint64(len(sent.Groups) - 1)) // admit has counted one
		sent.Fail(s.breaker.refusal())
	}
	out := sent.Out
	for i, o := range from { // unless all of b was sent
		g := &sent.Groups[i]
		b.Groups[o.group].Err = g.Err
		out = out[copy(b.Out[o.first:o.first+g.Ops], out):]
	}
}

// asked describes a call to the inner store: its context, when it started, and whether
// the deadline was the Store's or an earlier one of the caller.
type asked struct {
	ctx   context.Context
	start int64
	own   bool
}

// settle reports the end of a call to the breaker, and makes the errors of groups those
// that the contract of store.Store requires. One answer is enough to show that the
// store is alive.
func (s *Store) settle(t ticket, a asked, groups []store.Group) {
	clock, now := s.now()
	said, why := silent, error(nil)
	for i := range groups {
		o := succeeded
		if groups[i].Err != nil {
			o, groups[i].Err = s.judge(a, groups[i].Err, clock, now)
		}
		switch {
		case o == succeeded:
			said = o
		case said == silent, said == starved && o == failed:
			said, why = o, groups[i].Err
		}
	}
	s.breaker.done(t, said, why, now)
}

// judge counts the error of a call, and returns what it shows about the store, and the
// error that the contract requires.
func (s *Store) judge(a asked, err error, clock time.Time, now int64) (outcome, error) {
	if isWrongQuestion(err) {
		return silent, err
	}
	if s.isAnswer(err) {
		return succeeded, err
	}
	o := failed
	late := errors.Is(err, ErrTimeout) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded)
	// The caller gave it too little time. Its context may end a moment after the store does.
	if !a.own && (late || a.ctx.Err() != nil) && now-a.start < int64(s.options.Timeout/fairShare) {
		o = silent
	}
	if o == failed {
		s.failures.Add(1)
		if late {
			s.timeouts.Add(1)
			o = s.blame(a.ctx, clock)
		}
	}
	switch {
	case late && !errors.Is(err, ErrTimeout):
		err = fmt.Errorf("%w: %w", ErrTimeout, err)
	case !errors.Is(err, store.ErrUnavailable):
		err = fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	}
	return o, err
}

// blame returns whether a timeout that is noticed now is the store's fault.
func (s *Store) blame(ctx context.Context, now time.Time) outcome {
	if deadline, ok := ctx.Deadline(); ok && now.Sub(deadline) > s.options.Timeout/slotsPerTimeout {
		return starved
	}
	return failed
}

func isWrongQuestion(err error) bool {
	return errors.Is(err, store.ErrInvalidCost) || errors.Is(err, store.ErrNoMember) || errors.Is(err, store.ErrInvalidLimit) ||
		errors.Is(err, store.ErrCrossSlot) || errors.Is(err, store.ErrNoKeyTimes) || errors.Is(err, store.ErrNoStore)
}

// answers counts errors of one kind that show that the store is alive. It can still
// refuse exhausted keys, which needs no write.
type answers struct {
	count atomic.Uint64
	last  atomic.Pointer[error]
}

// isAnswer reports whether err is such an error, and counts it.
func (s *Store) isAnswer(err error) bool {
	a := s.answersOf(err)
	if a == nil {
		return false
	}
	s.failures.Add(1)
	a.add(err)
	return true
}

// answersOf returns the answers of err's kind, or nil if it is another error.
func (s *Store) answersOf(err error) *answers {
	switch {
	case errors.Is(err, store.ErrFull):
		return &s.full
	case errors.Is(err, store.ErrReadOnly):
		return &s.readOnly
	case errors.Is(err, store.ErrRefused):
		return &s.refused
	}
	return nil
}

func (a *answers) add(err error) {
	a.count.Add(1)
	a.last.Store(&err)
}

// Last returns the last error of the store that wraps kind, which is store.ErrFull,
// store.ErrReadOnly or store.ErrRefused, or nil if there was none.
func (s *Store) Last(kind error) error {
	if a := s.answersOf(kind); a != nil {
		if last := a.last.Load(); last != nil {
			return *last
		}
	}
	return nil
}
