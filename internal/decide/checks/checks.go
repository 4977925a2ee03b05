// Package checks determines the scope under which each limit of a middleware counts.
package checks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// Limiter returns why a limiter cannot be used, or nil.
func Limiter(limiter *headgate.Limiter) error {
	err := limiter.Validate()
	switch {
	case errors.Is(err, store.ErrNoStore):
		return fmt.Errorf("no limiter: %w", err)
	case err != nil:
		return fmt.Errorf("unusable limiter: %w", err)
	}
	return nil
}

// Check is one limit of a middleware.
type Check struct {
	// Name is the name set by an option, which is also the scope of the counts; it may
	// be empty.
	Name   string
	Limit  headgate.Limit // used for requests without a limit of their own
	Varies bool           // true if requests may have their own limits
	Apart  bool           // without a name, it counts separately from all that have an equal limit
}

// Scopes are the scopes of a middleware's checks. Add all checks before the first
// request.
//
// A check without a name counts under its limit, as the limit does anywhere else. If an
// earlier check of the middleware could count under the same limit, the two count by
// different things and their keys must not mix. Then the position of the check is part
// of the scope, no matter which other checks apply to the request.
type Scopes struct {
	checks []Check
	apart  []bool
	varied bool
}

// Add adds the next check. A duplicate name is an error: requests would count twice.
func (s *Scopes) Add(c Check) error {
	apart := c.Apart
	for _, earlier := range s.checks {
		if name := c.name(); name != "" && name == earlier.name() {
			return fmt.Errorf("two limits of this middleware are named %q, so each request would count twice: give each limit its own name", name)
		}
		apart = apart || meet(&earlier, &c)
	}
	s.varied = s.varied || c.Varies
	s.checks, s.apart = append(s.checks, c), append(s.apart, apart)
	return nil
}

// Of returns the scope of the check at place for a request with the given limit. An
// empty scope means that the limit determines it.
func (s *Scopes) Of(place int, limit headgate.Limit) string {
	if c := &s.checks[place]; c.Name != "" || limit.Name() != "" || !s.apart[place] {
		return c.Name
	}
	op := store.Op{Rule: limit.Rule()}
	return string(strconv.AppendInt(append(op.AppendSpace(nil), '-'), int64(place)+1, 10))
}

// AllowAll checks all ops together. If limits chosen for the request share a name, the
// request is invalid: this cannot be detected when the middleware is built.
func (s *Scopes) AllowAll(ctx context.Context, limiter *headgate.Limiter, ops []store.Op, out []store.Decision) (store.Decision, error) {
	if s.varied {
		if name, twice := sameName(ops); twice {
			for i := range ops {
				out[i] = store.Decision{Reason: headgate.ReasonFailClosed, Limit: ops[i].Rule.Most()}
			}
			return out[0], fmt.Errorf("%w: LimitBy returned a second limit named %q, so the request would count twice", headgate.ErrInvalidLimit, name)
		}
	}
	return limiter.Caller().AllowAll(ctx, ops, out)
}

// sameName returns the name that two of ops have in common.
func sameName(ops []store.Op) (name string, twice bool) {
	for i := range ops {
		scope, mark := ops[i].Space()
		if scope == "" || !counts(headgate.LimitOf(ops[i].Rule)) {
			continue
		}
		for j := range ops[:i] {
			other, otherMark := ops[j].Space()
			if other == scope && otherMark == mark && counts(headgate.LimitOf(ops[j].Rule)) {
				return scope, true
			}
		}
	}
	return "", false
}

func counts(limit headgate.Limit) bool { return limit.Rule().Valid() && !limit.Rule().Unlimited }

func (c *Check) name() string {
	if c.Name != "" {
		return c.Name
	}
	return c.Limit.Name()
}

// meet reports whether two checks could count under the same limit.
func meet(a, b *Check) bool {
	if a.Name != "" || b.Name != "" {
		return false
	}
	if a.Varies && b.Varies {
		return true
	}
	if a.Varies || b.Varies { // one may have any limit, the other only its own
		return !a.Varies && a.Limit.Name() == "" || !b.Varies && b.Limit.Name() == ""
	}
	scope, mark := space(a.Limit)
	otherScope, otherMark := space(b.Limit)
	return scope == "" && otherScope == "" && mark == otherMark
}

func space(limit headgate.Limit) (scope string, mark uint64) {
	op := store.Op{Rule: limit.Rule()}
	return op.Space()
}

// Given records the options used for a limit, to detect those used more than once.
type Given struct {
	once []string
	err  error
}

// Once records an option. Using it a second time is an error.
func (g *Given) Once(option string) {
	if !slices.Contains(g.once, option) {
		g.once = append(g.once, option)
		return
	}
	hint := "remove one of them"
	if option == "By" {
		hint = "use Join to count by both together, or Also for a separate limit"
	}
	g.err = errors.Join(g.err, fmt.Errorf("%s is used twice, and the second would replace the first: %s", option, hint))
}

// Some records an option that needs at least one value.
func Some[T any](g *Given, option string, values []T) {
	if len(values) == 0 {
		g.err = errors.Join(g.err, fmt.Errorf("%s has no values, so it has no effect", option))
	}
}

// Err returns the mistakes found.
func (g *Given) Err() error { return g.err }
