// Package engine decides about requests: it matches the rules, asks the store about
// every limit that applies, all or nothing, and returns the verdict.
//
// Every door translates its protocol to a [Query], and a [Verdict] back; this package
// does not depend on the door.
//
// One limit of a request is a [rules.Check], a [Result], a [store.Op] and a
// [store.Decision], in this order. A [rules.Rule] is a rule of a file, and a [store.Rule]
// is its limit, compiled.
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
	"github.com/headgate/headgate/internal/base/enum"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/store"
)

// Query is a request from a door: may this request pass now?
type Query struct {
	Domain string // the namespace of the rules
	Part          // the request, unless it has Parts
	// Parts are the checks of a request that has several, such as the descriptors of an
	// Envoy request. They are decided together, and Endless.
	Parts []Part
	// At is the time of the request in microseconds since the Unix epoch,
	// read once by the door. With 0 the store uses its own clock; a rule with a
	// [rules.When] needs the time.
	At   int64
	Door Door // where the request came in; only for observers
	// Endless is for callers that will not know when the request ends. Concurrency
	// rules do not apply to it. All other callers must release the leases of the
	// Verdict; see [Engine.Hold].
	Endless bool
	Waits   bool // the caller holds requests back until their turn, and then calls [Engine.Enter]
	// Observe lets every request pass and treats all rules as if they only observed:
	// WouldRefuse shows what they would have refused.
	Observe bool
	// Matched, if not nil, are the rules that apply to the Part, which then needs no
	// Request: another goroutine has matched it. A replay matches many requests in
	// parallel, but decides them one after another.
	Matched *Matched
}

// Part is a request, or one of several checks of a request. Each is matched separately.
type Part struct {
	Request rules.Request // the attributes that rules match and count by
	Cost    int64         // what it takes, usually 1; each rule multiplies it by its own cost. 0 is a dry run.
	// Kind is store.KindTake, store.KindPeek to write nothing, or, for one of several
	// Parts, store.KindRefund to return Cost.
	Kind store.Kind
	// Rule, if not nil, is used instead of the rules that match Request, and counts by
	// Key: a limit that came with the request. For one of several Parts it does not apply
	// in an unknown domain; otherwise the domain is only for observers and logs.
	Rule *rules.Rule
	Key  string
}

// Takes reports whether p charges limits, rather than only looks or refunds.
func (p *Part) Takes() bool { return p.Kind == store.KindTake && p.Cost > 0 }

// Matched is the result of [rules.Ruleset.Match] with the active rules.
type Matched struct {
	Known  bool          // reports whether the domain is known
	Checks []rules.Check // the rules. They are only read.
}

// UnknownDomain says what happens to a request in a domain without rules.
type UnknownDomain uint8

// The policies.
const (
	UnknownDomainAllow  UnknownDomain = iota // lets the request pass; the default
	UnknownDomainRefuse                      // refuses it
)

// String returns the name that the configuration uses: allow or refuse.
func (u UnknownDomain) String() string { return enum.Name(u, "unknown_domain", "allow", "refuse") }

// ParseUnknownDomain is the inverse of [UnknownDomain.String]. It reports
// false for any other text.
func ParseUnknownDomain(s string) (UnknownDomain, bool) { return enum.Parse(s, UnknownDomainRefuse) }

// Option configures an Engine.
type Option func(*Engine)

// WithObserver reports every decision to o, and to those that were added before it.
func WithObserver(o Observer) Option {
	return func(e *Engine) { e.observers = append(e.observers, o) }
}

// WithStart calls f before each decision about a request at a time, for [Decided.Start]. shard
// is as in Decided. 0 means not to measure this decision.
func WithStart(f func(at int64, shard uint32) int64) Option { return func(e *Engine) { e.onStart = f } }

// WithRefunded calls f for each rule with charge_on that has refunded what a request took,
// because of its answer.
func WithRefunded(f func(*rules.Rule)) Option { return func(e *Engine) { e.refunded = f } }

// WithUnknownDomain sets what happens to requests in a domain without rules.
func WithUnknownDomain(u UnknownDomain) Option { return func(e *Engine) { e.unknown = u } }

// OnUnknownDomain calls f for each request in a domain without rules. The name comes from
// the caller.
func OnUnknownDomain(f func(domain string)) Option { return func(e *Engine) { e.onUnknownDomain = f } }

// Engine decides about requests. It is safe for concurrent use.
//
// A [Query] is one [Part], or has one for each descriptor of the request. Every decision
// follows the same steps:
//
//   - Match: find the rules that apply to each part, without those that others replace.
//     Each becomes a [Result] and is assigned to a step.
//   - Exceptions: apply bans and overrides of single keys.
//   - Steps: each asks the store once, in one round trip. First refunds, then limits
//     that count refusals, then the limits that count, all or nothing, then those in
//     quota mode, and last the rules in shadow mode. Once one has refused, later steps
//     only look.
//   - Conclude: choose the refusal whose action is taken or, if the request is allowed,
//     the tightest limit. Report it to observers and return a [Verdict].
//   - Settle: with the verdict, or a token for it, the caller refunds, charges the real
//     cost, or releases its slots.
//
// [Engine.Explain] has a single step that looks at everything. [Engine.DecideBatch]
// takes each step of all its queries in one pipeline. [Engine.Again] starts after the
// match. Two things apply only to a Query without Parts: a ban is its whole answer, and a refusal
// that the client must not see is disguised by charging the limits that it does see.
//
// There are no locks: rules and exceptions are swapped as a whole, and a decision keeps
// those that it started with. Nothing is allocated if verdicts are released, because
// their memory is reused. An allowed request costs one round trip under enforced rules.
//
// After the first failure of the store, a decision does not call it again: each rule
// answers by its on_store_error, from this process's memory if there is a fallback, and
// the error is returned with the verdict. Rules in shadow mode have no answer then. An
// invalid query (a negative cost) is refused with its own error.
type Engine struct {
	store    store.Store
	fallback store.Store // may be nil
	timeout  time.Duration
	refusals Refusals // may be nil
	unknown  UnknownDomain
	free     sync.Pool // of *deciding
	shards   atomic.Uint32
	seal     seal
	largest  largestCosts
	home     int64        // identifies this process in tokens for data in its memory; not 0
	warned   atomic.Int64 // see WarnsOfToken

	observers       []Observer
	refunded        func(*rules.Rule)
	onStart         func(at int64, shard uint32) int64 // may be nil
	onUnknownDomain func(domain string)                // may be nil

	rules      atomic.Pointer[rules.Ruleset] // swapped as a whole on every reload; a request reads it once
	exceptions atomic.Pointer[Exceptions]    // nil if there are none
}

// New returns an Engine that applies rs and keeps its counts in store. With a
// nil rs every domain is unknown until SetRules.
func New(store store.Store, rs *rules.Ruleset, options ...Option) *Engine {
	e := &Engine{store: store, refunded: func(*rules.Rule) {}, home: 2 + rand.Int64N(math.MaxInt64-2)} //nolint:gosec // a name, no secret
	e.free.New = func() any { return &deciding{engine: e, Decided: Decided{Shard: e.shards.Add(1)}} }
	for _, o := range options {
		o(e)
	}
	e.SetRules(rs)
	return e
}

// SetRules swaps the rules. Decisions in progress keep the old ones, and the counts of
// rules that keep their name survive.
func (e *Engine) SetRules(rs *rules.Ruleset) {
	if rs == nil {
		rs = new(rules.Ruleset)
	}
	e.rules.Store(rs)
	e.largest.keep(rs)
}

// Rules returns the active rules; never nil.
func (e *Engine) Rules() *rules.Ruleset { return e.rules.Load() }

// Decide answers q. All enforced limits that match are charged, or none. Of a query with
// Parts, some limits are separate:
//
//   - Refunds are always made.
//   - Rules in quota mode refuse separately; see [Verdict].
//   - Rules that only observe are charged if the request passes.
//   - Rules with ChargeDenied are charged whether or not the request passes.
//
// An error that wraps headgate.ErrUnavailable means that the store could not answer;
// the Verdict is then that of each rule's on_store_error. With any other error (a
// negative cost) the Verdict is a refusal.
//
// Release the Verdict after using its Results, so that the next decision does not
// allocate.
func (e *Engine) Decide(ctx context.Context, q Query) (v Verdict, err error) {
	d := e.begin(&q)
	d.start()
	err = d.decide(ctx)
	d.conclude(&v)
	d.report(ctx, &v, err)
	return v, err
}

// ReportTake reports an answer to q that a door has derived from a peek to observers and to
// [Refusals]: v counts like the answer to a take.
func (e *Engine) ReportTake(ctx context.Context, q Query, v Verdict) {
	if d := v.deciding; d != nil {
		q.Kind = store.KindTake
		d.setQuery(&q)
		d.start()
		d.Rules = e.rules.Load()
		d.report(ctx, &v, nil)
	}
}

// Refund refunds what v took, less what has refilled since, for a request that was
// allowed but will not run, for example because its client left while waiting for its
// turn. Values of headgate.Distinct stay; see [store.RefundOf]. at is now, in microseconds
// since the Unix epoch. Call Undo before Release; a second Undo does nothing.
func (e *Engine) Refund(ctx context.Context, v *Verdict, at int64) error {
	d := v.deciding
	if d == nil {
		return nil
	}
	d.refunds(v.at, at, fromStore)
	err := d.put(ctx, e.store, store.Independent)
	if e.fallback != nil {
		d.refunds(v.at, at, fromFallback)
		err = errors.Join(err, d.put(ctx, e.fallback, store.Independent))
	}
	if err != nil {
		return unavailable(err)
	}
	return nil
}

// unavailable wraps err in headgate.ErrUnavailable if it does not wrap it yet.
func unavailable(err error) error {
	if errors.Is(err, headgate.ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %w", headgate.ErrUnavailable, err)
}

// times multiplies two non-negative costs and saturates.
func times(a, b int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi != 0 || lo > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(lo)
}
