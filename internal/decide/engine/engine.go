// Package engine decides about a request: it matches the rules, asks the
// store about every limit that applies, all or nothing, and says what the
// answer is.
//
// Every door translates its own protocol to a [Query] and a [Verdict] back;
// nothing in here knows which door asked.
package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/rules"
)

// Query is what a door asks: may this request pass now?
type Query struct {
	// Domain is the namespace whose rules apply.
	Domain string
	// Request has the attributes that rules match and count by.
	Request rules.Request
	// Cost is what the request takes, usually 1; each rule multiplies it by
	// its own cost. 0 is a dry run.
	Cost int64
	// At is the time of the request in microseconds since the Unix epoch,
	// read once by the door. With 0 the store uses its own clock.
	At int64
	// Kind is headgate.Take, or headgate.Peek to write nothing.
	Kind headgate.Kind
	// Door is where the request came in. It is for observers; the answer does
	// not depend on it.
	Door Door
	// Endless is for a caller who will not know when the request has ended.
	// Rules that limit what is under way do not apply to it. Everybody else has
	// to release the leases of the Verdict, see [Engine.Hold].
	Endless bool
}

// UnknownDomain says what happens to a request in a domain without rules.
type UnknownDomain uint8

// The policies.
const (
	// UnknownDomainAllow lets the request pass. It is the default.
	UnknownDomainAllow UnknownDomain = iota
	// UnknownDomainRefuse refuses it.
	UnknownDomainRefuse
)

// String returns the name that the configuration uses: allow or refuse.
func (u UnknownDomain) String() string {
	if u == UnknownDomainRefuse {
		return "refuse"
	}
	return "allow"
}

// ParseUnknownDomain is the inverse of [UnknownDomain.String]. It reports
// false for any other text.
func ParseUnknownDomain(s string) (UnknownDomain, bool) {
	switch s {
	case "allow":
		return UnknownDomainAllow, true
	case "refuse":
		return UnknownDomainRefuse, true
	}
	return 0, false
}

// Option configures an Engine.
type Option func(*Engine)

// WithObserver tells o of every decision.
func WithObserver(o Observer) Option { return func(e *Engine) { e.observer = o } }

// WithUnknownDomain sets what happens to requests in a domain without rules.
func WithUnknownDomain(u UnknownDomain) Option { return func(e *Engine) { e.unknown = u } }

// Engine decides about requests. It is safe for use by any number of
// goroutines.
type Engine struct {
	store    headgate.Store
	fallback headgate.Store // nil if rules have nothing to fall back to
	timeout  time.Duration
	observer Observer
	unknown  UnknownDomain
	scratch  sync.Pool // of *scratch
	lanes    atomic.Uint32
	seal     seal
	largest  largestCosts
	home     int64 // names this process in tokens for what is in its memory; not 0
	records  bool  // NoteCosts writes them
	noted    atomic.Int64
	warned   atomic.Int64 // see WarnsOfToken

	// rules is swapped as a whole on every reload; a request reads it once.
	rules atomic.Pointer[rules.Ruleset]
	// exceptions is nil as long as there are none.
	exceptions atomic.Pointer[Exceptions]
}

// New returns an Engine that applies rs and keeps its counts in store. With a
// nil rs every domain is unknown until SetRules.
func New(store headgate.Store, rs *rules.Ruleset, options ...Option) *Engine {
	e := &Engine{store: store, home: 2 + rand.Int64N(math.MaxInt64-2)} //nolint:gosec // a name, no secret
	e.scratch.New = func() any { return &scratch{lane: e.lanes.Add(1)} }
	for _, o := range options {
		o(e)
	}
	e.SetRules(rs)
	return e
}

// SetRules swaps the rules. Requests being decided go on with the old ones,
// and the counts of rules that keep their name survive.
func (e *Engine) SetRules(rs *rules.Ruleset) {
	if rs == nil {
		rs = new(rules.Ruleset)
	}
	e.rules.Store(rs)
	e.largest.keep(rs)
}

// Rules returns the rules in force; never nil.
func (e *Engine) Rules() *rules.Ruleset { return e.rules.Load() }

// Decide answers q. All enforced limits that match are charged, or none is.
//
// An error that wraps headgate.ErrUnavailable means that the store could not
// answer; the Verdict is then what each rule's on_store_error says. With any
// other error (a negative cost) the Verdict is a refusal.
//
// The caller should Release the Verdict when done with its Results; that makes
// the next decision free of allocations.
func (e *Engine) Decide(ctx context.Context, q Query) (Verdict, error) {
	return e.answer(ctx, q, nil)
}

// Matched says which rules apply to a request: what [rules.Ruleset.Match] of
// the rules in force has found.
type Matched struct {
	// Known reports whether the domain is known.
	Known bool
	// Checks are the rules. They are only read.
	Checks []rules.Check
}

// DecideMatched is Decide for a request that has been matched before, perhaps
// by another goroutine: a replay matches many requests at once, and decides
// about them one after another. q.Request is not looked at.
func (e *Engine) DecideMatched(ctx context.Context, q Query, m Matched) (Verdict, error) {
	return e.answer(ctx, q, &m)
}

// answer answers q, with the rules that apply if they are known already.
func (e *Engine) answer(ctx context.Context, q Query, matched *Matched) (Verdict, error) {
	s, _ := e.scratch.Get().(*scratch)
	v := Verdict{Allowed: true, at: q.At, pool: &e.scratch, scratch: s}
	v.Decision = headgate.Decision{Allowed: true, Reason: headgate.NoLimit}
	if e.observer == nil {
		return v, e.decide(ctx, q, matched, &v)
	}
	mark := Mark{Lane: s.lane}
	mark.Start = e.observer.Deciding(q.At, mark.Lane)
	err := e.decide(ctx, q, matched, &v)
	e.observer.Decided(ctx, mark, q, v, err)
	return v, err
}

func (e *Engine) decide(ctx context.Context, q Query, matched *Matched, v *Verdict) error {
	next, observing, err := e.prepare(q, matched, v)
	switch {
	case next == answered:
		return err
	case next == bans:
		return e.banned(ctx, q, v)
	case observing == 0:
		return e.enforce(ctx, q, v)
	}
	if e.timeout > 0 {
		bounded, cancel := context.WithTimeout(ctx, e.timeout)
		defer cancel()
		ctx = bounded
	}
	err = e.enforce(ctx, q, v)
	return errors.Join(err, e.observe(ctx, q, v, err))
}

// step is what is to be done about a request next.
type step uint8

const (
	answered step = iota // nothing
	bans                 // it is banned
	asks                 // the store is to be asked
)

// prepare finds the rules that apply to q, of which some may only observe.
func (e *Engine) prepare(q Query, matched *Matched, v *Verdict) (next step, observing int, err error) {
	s := v.scratch
	rs := e.rules.Load()
	if matched == nil {
		v.Known = rs.Match(q.Domain, q.Request, &s.matches[0])
	} else {
		v.Known = matched.Known
		s.matches[0].Checks = append(s.matches[0].Checks[:0], matched.Checks...)
	}
	if q.Endless && rs.HasConcurrent() {
		s.matches[0].DropConcurrent()
	}
	rules.ApplyReplaces(s.matches[:])
	s.results = s.results[:0]
	if !v.Known {
		if e.unknown == UnknownDomainRefuse {
			v.refuse(headgate.Decision{Reason: headgate.Limited, RetryAfter: headgate.Never})
		}
		return answered, 0, nil
	}
	if q.Cost < 0 || q.Kind != headgate.Take && q.Kind != headgate.Peek {
		v.refuse(headgate.Decision{Reason: headgate.TooLarge, RetryAfter: headgate.Never})
		if q.Cost < 0 {
			return answered, 0, headgate.ErrInvalidCost
		}
		return answered, 0, fmt.Errorf("a query cannot be of kind %s", q.Kind)
	}
	if x := e.exceptions.Load(); x != nil && s.except(x, q.At) {
		return bans, 0, nil
	}
	return asks, s.fill(), nil
}

// enforce asks about the rules that count and settles the verdict.
func (e *Engine) enforce(ctx context.Context, q Query, v *Verdict) error {
	v.scratch.ops(q, q.Kind, enforcedOnly)
	err := e.enforced(ctx, q, v, ask(ctx, e.store, v.scratch, headgate.AllOrNothing))
	if err == nil && v.hides(q) {
		return e.disguise(ctx, q, v)
	}
	return err
}

// hides reports whether v is a refusal that clients must not learn of.
func (v *Verdict) hides(q Query) bool {
	return !v.Allowed && q.Kind == headgate.Take && v.Outcome() == ShadowBanned
}

// enforced settles the verdict by the store's answers, or by its error.
func (e *Engine) enforced(ctx context.Context, q Query, v *Verdict, err error) error {
	s := v.scratch
	enforced := s.places
	if err != nil {
		err = unavailable(err)
		e.settle(ctx, q, s, enforced)
	} else {
		for i, at := range enforced {
			s.results[at].Decision = s.out[i]
		}
	}
	for _, at := range enforced {
		v.consider(&s.results[at])
	}
	return err
}

// observe asks about the rules that only observe. They are charged for what
// really passes: of a request that another rule refuses they see nothing, as
// would be so if they were enforced. If the store has failed already, they do
// not make the request wait for it once more.
func (e *Engine) observe(ctx context.Context, q Query, v *Verdict, failed error) error {
	v.observing(q)
	var err error
	if failed == nil {
		if err = ask(ctx, e.store, v.scratch, headgate.Independent); err != nil {
			err = unavailable(err)
		}
	}
	v.observed(err != nil || failed != nil)
	return err
}

// observing makes the questions about the rules that only observe.
func (v *Verdict) observing(q Query) {
	kind := q.Kind
	if !v.Allowed {
		kind = headgate.Peek
	}
	v.scratch.ops(q, kind, shadowedOnly)
}

// observed notes the answers to them, unless there are none.
func (v *Verdict) observed(unknown bool) {
	s := v.scratch
	shadowed := s.places
	for i, at := range shadowed {
		r := &s.results[at]
		switch {
		case unknown:
			r.Decision = headgate.Decision{Allowed: true, Reason: headgate.FailOpen}
		case s.out[i].Allowed:
			r.Decision = s.out[i]
			r.Decision.Delay = 0
		default:
			r.Decision = s.out[i]
			r.Decision.Allowed, r.Decision.Reason, r.Decision.RetryAfter = true, headgate.Shadow, 0
			v.WouldRefuse++
		}
	}
}

// ask puts s.pending to store; s.out has the answers.
func ask(ctx context.Context, store headgate.Store, s *scratch, mode headgate.Mode) error {
	switch len(s.pending) {
	case 0:
		return nil
	case 1:
		var err error
		s.out[0], err = store.Take(ctx, s.pending[0])
		return err
	}
	return store.Do(ctx, s.pending, s.out, mode)
}

// Undo gives back what v took, less what time has given back already, for a
// request that was admitted but will not be made: a client that went away
// while it waited for its turn. at is now, in microseconds since the Unix
// epoch. Undo must come before Release; a second Undo does nothing.
func (e *Engine) Undo(ctx context.Context, v *Verdict, at int64) error {
	s := v.scratch
	if s == nil {
		return nil
	}
	err := s.undoCosts(v, at).with(ctx, e.store)
	s.refunds(v.at, at, fromStore)
	err = errors.Join(err, ask(ctx, e.store, s, headgate.Independent))
	if e.fallback != nil {
		s.refunds(v.at, at, fromFallback)
		err = errors.Join(err, ask(ctx, e.fallback, s, headgate.Independent))
	}
	if err != nil {
		return unavailable(err)
	}
	return nil
}

// unavailable returns err as a headgate.ErrUnavailable.
func unavailable(err error) error {
	if errors.Is(err, headgate.ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %w", headgate.ErrUnavailable, err)
}

// times multiplies two costs, neither of them negative, and saturates.
func times(a, b int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi != 0 || lo > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(lo)
}
