package httplimit

import (
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strconv"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/decide/checks"
)

// Validate returns what is wrong with the arguments of [New], which panics with
// it: a limiter that is nil or has no store ([headgate.ErrNoStore]), a limit that
// cannot be enforced ([headgate.ErrInvalidLimit]), an option that is nil. A
// program whose limits are configured while it runs asks it before New.
func Validate(limiter *headgate.Limiter, limit headgate.Limit, options ...Option) error {
	_, err := build(limiter, limit, options)
	return err
}

// build returns a gate, or what is wrong with its arguments.
func build(limiter *headgate.Limiter, limit headgate.Limit, options []Option) (*Gate, error) {
	if err := checks.Limiter(limiter); err != nil {
		return nil, fmt.Errorf("httplimit: %w", err)
	}
	g := &Gate{config: config{one: checks.Options[*http.Request]{Name: "default", Key: ByIP(), Cost: one}}}
	g.limits.Limiter = limiter
	if err := g.set(options); err != nil {
		return nil, err
	}
	if err := g.add(g.one, limit); err != nil {
		return nil, err
	}
	for i := 0; i < len(g.also); i++ {
		more := config{one: checks.Options[*http.Request]{Name: g.one.Name + "-" + strconv.Itoa(i+2), Key: g.one.Key, Cost: g.one.Cost}}
		if err := more.set(g.also[i].options); err != nil {
			return nil, err
		}
		if option := more.whole(); option != "" {
			return nil, fmt.Errorf("httplimit: %s inside Also has no effect: give it to the middleware, it holds for all its limits", option)
		}
		g.also = append(g.also, more.also...)
		if err := g.add(more.one, g.also[i].limit); err != nil {
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
			return fmt.Errorf("httplimit: option %d of the limit %q is nil", i+1, c.one.Name)
		}
		o.apply(c)
	}
	if err := c.one.Err(); err != nil {
		return fmt.Errorf("httplimit: the limit %q: %w", c.one.Name, err)
	}
	for _, status := range c.refund {
		if status < 100 || status > 999 {
			return fmt.Errorf("httplimit: RefundIf of the limit %q: %d is no status", c.one.Name, status)
		}
	}
	switch {
	case c.dialect > NoHeaders:
		return fmt.Errorf("httplimit: the limit %q: there is no %s", c.one.Name, c.dialect)
	case c.one.Key == nil:
		return fmt.Errorf("%w: a By is nil of a name that cannot be one, of a network that is not valid, and of no parts or nil ones", c.lacks("By"))
	case c.onLimit != nil && isNilFunc(c.onLimit):
		return c.lacks("OnLimit")
	case c.one.Cost == nil:
		return c.lacks("Cost")
	}
	return nil
}

// isNilFunc reports whether h is a function or a pointer that is nil: each refusal
// would panic.
func isNilFunc(h http.Handler) bool {
	v := reflect.ValueOf(h)
	return (v.Kind() == reflect.Func || v.Kind() == reflect.Pointer) && v.IsNil()
}

func (c *config) lacks(option string) error {
	return errors.New("httplimit: the function of " + option + " of the limit " + strconv.Quote(c.one.Name) + " is nil")
}

// whole returns the name of an option of c that is not of one limit; empty if there
// is none.
func (c *config) whole() string {
	switch {
	case c.refund != nil:
		return "RefundIf"
	case c.dialect != AllHeaders:
		return "a Dialect"
	case c.onLimit != nil:
		return "OnLimit"
	case c.onError != nil:
		return "OnError"
	}
	return ""
}

// add adds a limit.
func (g *Gate) add(o checks.Options[*http.Request], limit headgate.Limit) error {
	if err := g.limits.Add(o, limit); err != nil {
		return fmt.Errorf("httplimit: %w", err)
	}
	return nil
}
