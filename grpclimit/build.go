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

// gate is what all interceptors share.
type gate struct {
	config
	limits checks.Limits[*Call]
	client bool
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
	g := &gate{config: config{one: checks.Options[*Call]{Name: "default", Key: by, Cost: func(*Call) int64 { return 1 }}}}
	g.limits.Limiter = limiter
	if err := g.set(options); err != nil {
		return nil, err
	}
	if err := g.add(g.one, limit); err != nil {
		return nil, err
	}
	for i := 0; i < len(g.also); i++ {
		more := config{one: checks.Options[*Call]{Name: g.one.Name + "-" + strconv.Itoa(i+2), Key: g.one.Key, Cost: g.one.Cost}}
		if err := more.set(g.also[i].options); err != nil {
			return nil, err
		}
		if option := more.whole(); option != "" {
			return nil, fmt.Errorf("grpclimit: %s inside Also has no effect: give it to the interceptor, it holds for all its limits", option)
		}
		g.also = append(g.also, more.also...)
		if err := g.add(more.one, g.also[i].limit); err != nil {
			return nil, err
		}
	}
	if g.maxWait > 0 && !g.limits.Vary() &&
		!slices.ContainsFunc(g.limits.Ops, func(op headgate.Op) bool { return op.Limit.Algorithm() != headgate.Concurrency }) {
		return nil, fmt.Errorf("grpclimit: Wait of the limit %q has no effect on Concurrent: nobody knows when one of those under way will end", g.one.Name)
	}
	return g, nil
}

// set applies options.
func (c *config) set(options []Option) error {
	for i, o := range options {
		if o == nil {
			return fmt.Errorf("grpclimit: option %d of the limit %q is nil", i+1, c.one.Name)
		}
		o.apply(c)
	}
	if err := c.one.Err(); err != nil {
		return fmt.Errorf("grpclimit: the limit %q: %w", c.one.Name, err)
	}
	for _, method := range c.only {
		if why := notMethod(method); why != "" {
			return fmt.Errorf("grpclimit: Methods of the limit %q: %q is no full name of a method, such as /package.Service/Method: %s", c.one.Name, method, why)
		}
	}
	switch {
	case c.maxWait < 0:
		return fmt.Errorf("grpclimit: Wait of the limit %q is negative", c.one.Name)
	case c.one.Key == nil:
		return fmt.Errorf("grpclimit: the function of By of the limit %q is nil: a By is nil of a key that metadata cannot have, and of no parts or nil ones", c.one.Name)
	case c.one.Cost == nil:
		return fmt.Errorf("grpclimit: the function of Cost of the limit %q is nil", c.one.Name)
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

// add adds a limit.
func (g *gate) add(o checks.Options[*Call], limit headgate.Limit) error {
	if err := g.limits.Add(o, limit); err != nil {
		return fmt.Errorf("grpclimit: %w", err)
	}
	return nil
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
