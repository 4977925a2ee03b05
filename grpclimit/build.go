package grpclimit

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/decide/checks"
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
	scopes  checks.Scopes
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
	if err := checks.Limiter(limiter); err != nil {
		return nil, fmt.Errorf("grpclimit: %w", err)
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
		if option := more.whole(); option != "" {
			return nil, fmt.Errorf("grpclimit: %s inside Also has no effect: give it to the interceptor, it holds for all its limits", option)
		}
		g.also = append(g.also, more.also...)
		if err := g.add(&more, g.also[i].limit); err != nil {
			return nil, err
		}
	}
	if g.maxWait > 0 && !slices.ContainsFunc(g.checks, func(k check) bool { return k.limitBy != nil }) &&
		!slices.ContainsFunc(g.ops, func(op headgate.Op) bool { return op.Limit.Algorithm() != headgate.Concurrency }) {
		return nil, fmt.Errorf("grpclimit: Wait of the limit %q has no effect on Concurrent: nobody knows when one of those under way will end", g.name)
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
	if err := c.options.Err(); err != nil {
		return fmt.Errorf("grpclimit: the limit %q: %w", c.name, err)
	}
	for _, method := range c.only {
		if why := notMethod(method); why != "" {
			return fmt.Errorf("grpclimit: Methods of the limit %q: %q is no full name of a method, such as /package.Service/Method: %s", c.name, method, why)
		}
	}
	switch {
	case c.maxWait < 0:
		return fmt.Errorf("grpclimit: Wait of the limit %q is negative", c.name)
	case c.by == nil:
		return fmt.Errorf("grpclimit: the function of By of the limit %q is nil: a By is nil of a key that metadata cannot have, and of no parts or nil ones", c.name)
	case c.cost == nil:
		return fmt.Errorf("grpclimit: the function of Cost of the limit %q is nil", c.name)
	}
	return nil
}

// whole returns the name of an option of c that is not of one limit; empty if there
// is none.
func (c *config) whole() string {
	switch {
	case c.only != nil:
		return "Methods"
	case c.maxWait != 0:
		return "Wait"
	case c.onError != nil:
		return "OnError"
	}
	return ""
}

// add adds the check of a limit.
func (g *gate) add(c *config, limit headgate.Limit) error {
	k := check{name: c.name, given: c.given, by: c.by, cost: c.cost, limitBy: c.limitBy}
	if err := limit.Validate(); err != nil {
		return fmt.Errorf("grpclimit: the limit %q: %w", k.nameOf(limit), err)
	}
	if err := g.scopes.Add(checks.Check{Name: k.given, Limit: limit, Varies: k.limitBy != nil}); err != nil {
		return fmt.Errorf("grpclimit: the limit %q: %w", k.nameOf(limit), err)
	}
	g.ops = append(g.ops, headgate.Op{Scope: g.scopes.Of(len(g.checks), limit), Limit: limit})
	g.checks = append(g.checks, k)
	return nil
}

// nameOf returns what the check is called when it holds a call to limit.
func (k *check) nameOf(limit headgate.Limit) string {
	if k.given == "" && limit.Name() != "" {
		return limit.Name()
	}
	return k.name
}

// limitOf gives op, that of the check in a place, the limit of c.
func (g *gate) limitOf(place int, op *headgate.Op, c *Call) {
	choose := g.checks[place].limitBy
	if choose == nil {
		return
	}
	if limit, ok := choose(c); ok {
		op.Limit = limit
		op.Scope = g.scopes.Of(place, limit)
	}
}

// notMethod returns why no call has a method of that name; empty if one may.
func notMethod(name string) string {
	service, method := "", ""
	if at := strings.LastIndexByte(name, '/'); at > 0 {
		service, method = name[1:at], name[at+1:]
	}
	switch {
	case !strings.HasPrefix(name, "/"):
		return "it has no slash in front"
	case service == "" || method == "":
		return "it needs a service and a method"
	case strings.ContainsAny(name, "*?|()[]{}<>^,;\\ \t\r\n"):
		return "patterns and lists are not understood; give each name as an argument"
	}
	return ""
}

// applies reports whether calls of a method are limited.
func (g *gate) applies(method string) bool {
	return len(g.only) == 0 || slices.Contains(g.only, method)
}
