package httplimit

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/headgate/headgate"
)

// Validate returns what is wrong with the arguments of [New], which panics with
// it: a limiter that is nil or has no store ([headgate.ErrNoStore]), a limit that
// cannot be enforced ([headgate.ErrInvalidLimit]), an option that is nil. A
// program whose limits are configured while it runs asks it before New.
func Validate(limiter *headgate.Limiter, limit headgate.Limit, options ...Option) error {
	_, err := build(limiter, limit, options)
	return err
}

// check is one limit of a gate.
type check struct {
	name    string // in header fields
	given   string // the name, if an option has given it; it is the scope of the counts
	by      By
	cost    func(*http.Request) int64
	limitBy func(*http.Request) (headgate.Limit, bool) // nil without one
}

// build returns a gate, or what is wrong with its arguments.
func build(limiter *headgate.Limiter, limit headgate.Limit, options []Option) (*Gate, error) {
	if err := limiter.Validate(); err != nil {
		return nil, fmt.Errorf("httplimit: no limiter to ask: %w", err)
	}
	g := &Gate{limiter: limiter, config: config{name: "default", by: ByIP(), cost: one, clock: time.Now}} //nolint:forbidigo // the edge
	if err := g.set(options); err != nil {
		return nil, err
	}
	if err := g.add(&g.config, limit); err != nil {
		return nil, err
	}
	for i := 0; i < len(g.also); i++ {
		more := config{name: g.name + "-" + strconv.Itoa(i+2), by: g.by, cost: g.cost, clock: g.clock}
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

// one returns cost 1 for every request.
func one(*http.Request) int64 { return 1 }

// set applies options.
func (c *config) set(options []Option) error {
	for i, o := range options {
		if o == nil {
			return fmt.Errorf("httplimit: option %d of the limit %q is nil", i+1, c.name)
		}
		o.apply(c)
	}
	switch {
	case c.by == nil:
		return c.lacks("By")
	case c.cost == nil:
		return c.lacks("Cost")
	case c.clock == nil:
		return c.lacks("Clock")
	}
	return nil
}

func (c *config) lacks(option string) error {
	return errors.New("httplimit: the function of " + option + " of the limit " + strconv.Quote(c.name) + " is nil")
}

// add adds the check of a limit.
func (g *Gate) add(c *config, limit headgate.Limit) error {
	k := check{name: c.name, given: c.given, by: c.by, cost: c.cost, limitBy: c.limitBy}
	if err := limit.Validate(); err != nil {
		return fmt.Errorf("httplimit: the limit %q: %w", k.nameOf(limit), err)
	}
	g.checks = append(g.checks, k)
	g.ops = append(g.ops, headgate.Op{Scope: k.scopeOf(limit, g.ops), Limit: limit})
	g.varied = g.varied || k.limitBy != nil
	return nil
}

// nameOf returns what the check is called when it holds a request to limit.
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

// limitOf gives op, that of the check, the limit of r.
func (k *check) limitOf(op *headgate.Op, r *http.Request, earlier []headgate.Op) {
	if k.limitBy != nil {
		if limit, ok := k.limitBy(r); ok {
			op.Limit = limit
		}
	}
	op.Scope = k.scopeOf(op.Limit, earlier)
}
