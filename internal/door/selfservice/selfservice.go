// Package selfservice tells callers their own limits and what is left of them, free of
// charge.
//
// The contract is in docs/connect/self-service.md.
package selfservice

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/answer"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/store"
)

// DefaultPath is where callers of the proxy read their limits.
const DefaultPath = "/.headgate/limits"

// Answer is what a caller is told. Times are in milliseconds, rounded up.
type Answer struct {
	Limits      []Limit    `json:"limits"`                 // the caller's, in the order of the rules
	BannedUntil *time.Time `json:"banned_until,omitempty"` // when the ban of the caller ends; absent without a ban
	LeftOff     int        `json:"left_off,omitempty"`     // how many limits there are besides
	Unlimited   bool       `json:"unlimited,omitempty"`    // the caller is on an allow list
	Denied      bool       `json:"denied,omitempty"`       // the caller is on a deny list

	deniedBy *rules.Rule
	policies []answer.Policy
	dialect  string
}

// Limit is one limit of a caller and what is left of it.
type Limit struct {
	Name        string     `json:"name"`                   // the name of the limit
	Algorithm   string     `json:"algorithm"`              // token_bucket, sliding_log and so on
	Limit       int64      `json:"limit"`                  // what fits in at once, with the burst
	Rate        string     `json:"rate"`                   // as in rules, such as 100/minute
	Period      int64      `json:"period_ms,omitempty"`    // the period of the rate
	Used        int64      `json:"used"`                   // what is used
	Remaining   int64      `json:"remaining"`              // what would pass now
	ResetAfter  int64      `json:"reset_after_ms"`         // the time until all of the limit is available
	Reset       *time.Time `json:"reset,omitempty"`        // when that is; absent if only the store has the time
	RetryAfter  *int64     `json:"retry_after_ms"`         // the time until the caller's next request is accepted: 0 for now, though it may have to wait for its turn; null for never
	BannedUntil *time.Time `json:"banned_until,omitempty"` // when the ban ends; absent without a ban
}

// ErrUnknownDomain is the error for a domain without rules.
var ErrUnknownDomain = errors.New("no rules are loaded for this domain")

// Of returns the limits of the sender of req. at is as in engine.Query. The error wraps
// headgate.ErrUnavailable if the store does not answer: what is left is unknown then.
func Of(ctx context.Context, e *engine.Engine, domain string, req rules.Request, at int64) (Answer, error) {
	found, err := e.CallerLimits(ctx, domain, req, at)
	a := Answer{
		Limits: []Limit{}, LeftOff: found.LeftOff, Unlimited: found.Allowed, Denied: found.DeniedBy != nil, deniedBy: found.DeniedBy,
	}
	switch {
	case err != nil:
		return a, err
	case !found.Known:
		return a, ErrUnknownDomain
	}
	for i := range found.Limits {
		a.add(&found.Limits[i], at)
	}
	return a, nil
}

// add adds a limit. Of several keys that count the caller, it keeps the tightest.
func (a *Answer) add(x *engine.Explained, at int64) {
	if x.Decision.Reason == headgate.ReasonNoLimit {
		return
	}
	l := limitOf(x, at)
	if a.dialect = x.Rule.Headers; l.BannedUntil != nil && (a.BannedUntil == nil || a.BannedUntil.Before(*l.BannedUntil)) {
		a.BannedUntil = l.BannedUntil
	}
	p := answer.Policy{Name: x.Rule.Name, Limit: x.Rule.Limit, Decision: x.Decision, At: at}
	i := slices.IndexFunc(a.policies, func(had answer.Policy) bool { return had.Name == p.Name })
	switch {
	case i < 0:
		a.Limits, a.policies = append(a.Limits, l), append(a.policies, p)
	case p.Decision.Tighter(a.policies[i].Decision):
		a.Limits[i], a.policies[i] = l, p
	}
}

func limitOf(x *engine.Explained, at int64) Limit {
	r, now, whole, period := x.Rule, x.Unbanned, x.Whole, x.Rule.Limit.Period()
	if r.Concurrent() {
		period = 0 // that of leases
	}
	if now.Reason == headgate.ReasonNoLimit {
		now, whole = store.Decision{}, store.Decision{} // a ban on a rule that counts nothing
	}
	l := Limit{
		Name: r.Name, Algorithm: r.Limit.Algorithm().String(), Rate: r.Limit.String(), Limit: now.Limit,
		Period: answer.Milliseconds(period), Used: max(whole.Limit-whole.Remaining, 0), Remaining: max(now.Remaining, 0),
		ResetAfter: answer.Milliseconds(now.ResetAfter),
	}
	if at > 0 {
		l.Reset = new(time.UnixMicro(at).Add(now.ResetAfter).UTC())
	}
	if x.BannedUntil > 0 {
		l.BannedUntil = new(time.UnixMicro(x.BannedUntil).UTC())
	}
	if after, ok := answer.RetryAfter(x.Decision); ok || x.Decision.Allowed {
		l.RetryAfter = new(answer.Milliseconds(after))
	}
	return l
}

// Fields calls add for each header field of the limits, in dialect d unless the domain has
// chosen one. The value is valid until add returns.
func (a *Answer) Fields(d answer.Dialect, add func(name string, value []byte)) {
	for i := range a.policies {
		p := &a.policies[i].Decision // the answer itself was not refused
		p.Allowed, p.RetryAfter = true, 0
	}
	answer.Each(nil, d.Or(a.dialect), a.policies, add)
}

// Write answers with a, and header fields of its limits; see Fields.
func (a *Answer) Write(w http.ResponseWriter, d answer.Dialect) {
	a.Fields(d, func(name string, value []byte) { w.Header()[name] = []string{string(value)} })
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(a) // a caller that went away has no use for the error
}

// Problem answers with the error of [Of].
func Problem(w http.ResponseWriter, err error) {
	w.Header().Set("Cache-Control", "no-store")
	switch {
	case errors.Is(err, ErrUnknownDomain):
		answer.Problem(w, http.StatusNotFound, err.Error())
	case errors.Is(err, headgate.ErrUnavailable):
		unavailable(w, "what is left of your limits is unknown at the moment")
	default:
		answer.Problem(w, http.StatusInternalServerError, "your limits could not be read")
	}
}
