package grpclimit

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/headgate/headgate"
)

// Validate returns what is wrong with the arguments of an interceptor, which
// panics with it when it is made: a limiter that is nil or has no store
// ([headgate.ErrNoStore]), a limit that cannot be enforced
// ([headgate.ErrInvalidLimit]), an option that is nil. A program whose limits are
// configured while it runs asks it before.
func Validate(limiter *headgate.Limiter, limit headgate.Limit, options ...Option) error {
	_, err := build(limiter, limit, All(), options)
	return err
}

// check is one limit of an interceptor.
type check struct {
	name    string // in refusals
	given   string // the name, if an option has given it; it is the scope of the counts
	by      By
	cost    func(*Call) int64
	limitBy func(*Call) (headgate.Limit, bool) // nil without one
}

// gate is what all interceptors share.
type gate struct {
	config
	limiter *headgate.Limiter
	checks  []check
	ops     []headgate.Op // of the checks: what is the same for every call
	varied  bool          // whether a check has a LimitBy
	client  bool
}

func newGate(limiter *headgate.Limiter, limit headgate.Limit, by By, options []Option) *gate {
	g, err := build(limiter, limit, by, options)
	if err != nil {
		panic(err) //nolint:forbidigo // like http.ServeMux.Handle: a program that is wrong as written; see Validate
	}
	return g
}

// build returns a gate, or what is wrong with its arguments.
func build(limiter *headgate.Limiter, limit headgate.Limit, by By, options []Option) (*gate, error) {
	if err := limiter.Validate(); err != nil {
		return nil, fmt.Errorf("grpclimit: no limiter to ask: %w", err)
	}
	g := &gate{limiter: limiter, config: config{name: "default", by: by, cost: func(*Call) int64 { return 1 }}}
	if err := g.set(options); err != nil {
		return nil, err
	}
	if err := g.add(&g.config, limit); err != nil {
		return nil, err
	}
	for i := 0; i < len(g.also); i++ {
		more := config{name: g.name + "-" + strconv.Itoa(i+2), by: g.by, cost: g.cost}
		if err := more.set(g.also[i].options); err != nil {
			return nil, err
		}
		g.also = append(g.also, more.also...)
		if err := g.add(&more, g.also[i].limit); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// set applies options.
func (c *config) set(options []Option) error {
	for i, o := range options {
		if o == nil {
			return fmt.Errorf("grpclimit: option %d of the limit %q is nil", i+1, c.name)
		}
		o.apply(c)
	}
	switch {
	case c.by == nil:
		return fmt.Errorf("grpclimit: the function of By of the limit %q is nil", c.name)
	case c.cost == nil:
		return fmt.Errorf("grpclimit: the function of Cost of the limit %q is nil", c.name)
	}
	return nil
}

// add adds the check of a limit.
func (g *gate) add(c *config, limit headgate.Limit) error {
	k := check{name: c.name, given: c.given, by: c.by, cost: c.cost, limitBy: c.limitBy}
	if err := limit.Validate(); err != nil {
		return fmt.Errorf("grpclimit: the limit %q: %w", k.nameOf(limit), err)
	}
	g.checks = append(g.checks, k)
	g.ops = append(g.ops, headgate.Op{Scope: k.scopeOf(limit, g.ops), Limit: limit})
	g.varied = g.varied || k.limitBy != nil
	return nil
}

// nameOf returns what the check is called when it holds a call to limit.
func (k *check) nameOf(limit headgate.Limit) string {
	if k.given == "" && limit.Name() != "" {
		return limit.Name()
	}
	return k.name
}

// scopeOf returns the scope of limit after those of earlier checks; none leaves
// the counts to the limit. If it has no name and is one of them, it counts apart
// all the same: it counts by something else.
func (k *check) scopeOf(limit headgate.Limit, earlier []headgate.Op) string {
	if k.given != "" || limit.Name() != "" {
		return k.given
	}
	same := 1
	for i := range earlier {
		if earlier[i].Limit.Equal(limit) && earlier[i].Limit.Name() == "" {
			same++
		}
	}
	if same == 1 {
		return ""
	}
	op := headgate.Op{Limit: limit}
	return string(op.AppendSpace(nil)) + "-" + strconv.Itoa(same)
}

// limitOf gives op, that of the check, the limit of c.
func (k *check) limitOf(op *headgate.Op, c *Call, earlier []headgate.Op) {
	if k.limitBy != nil {
		if limit, ok := k.limitBy(c); ok {
			op.Limit = limit
		}
	}
	op.Scope = k.scopeOf(op.Limit, earlier)
}

// applies reports whether calls of a method are limited.
func (g *gate) applies(method string) bool {
	return len(g.only) == 0 || slices.Contains(g.only, method)
}
