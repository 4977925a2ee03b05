package grpclimit

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/decide/checks"
)

// Option configures an interceptor. A [By] is an option itself.
type Option interface {
	apply(*config)
}

type option func(*config)

func (o option) apply(c *config) { o(c) }

// single is an option of which a second would replace the first.
func single(name string, o option) Option {
	return option(func(c *config) {
		c.one.Once(name)
		o(c)
	})
}

// config collects what the options of one limit say.
type config struct {
	one checks.Options[*Call]

	only    []string
	maxWait time.Duration
	onError func(context.Context, error)
	also    []also
}

type also struct {
	limit   headgate.Limit
	options []Option
}

// Name sets the limit's name in refusals; if not given it is that of
// [headgate.Limit.Named], or "default". Limits of one name that share a store count
// the same keys together, and keep their counts when their numbers change. Limits
// without a name count together only if they are the same.
func Name(name string) Option {
	return single("Name", func(c *config) { c.one.Name, c.one.Scope = name, name })
}

// Cost sets what a call takes instead of 1. Of cost 0 it passes if anything
// would; of a negative one it is refused.
func Cost(cost func(*Call) int64) Option {
	return single("Cost", func(c *config) { c.one.Cost = cost })
}

// LimitBy lets each call have its own limit, such as that of its user's plan or of
// its method. Calls for which it returns false have the limit that the interceptor
// or [Also] was given. Make the limits once, not for every call. With a [Name], or
// one of their own ([headgate.Limit.Named]), limits of one algorithm share the
// count of a key. An invalid limit, or two of one name for one call, refuses it with
// UNAVAILABLE, and [OnError] is told why; for no limit at all there is [headgate.Unlimited].
func LimitBy(choose func(*Call) (headgate.Limit, bool)) Option {
	return single("LimitBy", func(c *config) { c.one.LimitBy = choose })
}

// Methods limits only these methods, by their full names, such as
// /package.Service/Method; there are no patterns. It holds for all limits of the
// interceptor.
func Methods(names ...string) Option {
	return option(func(c *config) {
		checks.Some(&c.one.Given, "Methods", names)
		c.only = append(c.only, names...)
	})
}

// Wait holds a call back for at most d until it fits, instead of refusing it:
// to pace a client, or to smooth the load of a server. It fails at once if it
// would be later, or later than its deadline. When there is room again whoever
// asks first has it. It is not for [headgate.Concurrent]: nobody knows when one of
// those under way will end.
func Wait(d time.Duration) Option { return single("Wait", func(c *config) { c.maxWait = d }) }

// OnError calls f with every error of the Limiter: a store that could not
// answer, an invalid cost, an invalid limit of [LimitBy]. The Limiter's failure policy has decided
// about the call by then. f must be safe for concurrent use.
func OnError(f func(context.Context, error)) Option {
	return single("OnError", func(c *config) { c.onError = f })
}

// Also adds a limit that the same calls have to keep, such as a daily one
// beside one per second. They are charged all or none. options may be By, Cost,
// Name and LimitBy. By and Cost are otherwise those of the first limit; without a
// Name it is called after its place, default-2 for the second.
func Also(limit headgate.Limit, options ...Option) Option {
	return option(func(c *config) { c.also = append(c.also, also{limit, options}) })
}

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
func build(limiter *headgate.Limiter, limit headgate.Limit, by By, options []Option) (_ *gate, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("grpclimit: %w", err)
		}
	}()
	if err := checks.Limiter(limiter); err != nil {
		return nil, err
	}
	g := &gate{config: config{one: checks.Options[*Call]{Name: "default", Key: by, Cost: func(*Call) int64 { return 1 }}}}
	g.limits.Limiter = limiter
	if err := g.set(options); err != nil {
		return nil, err
	}
	if err := g.limits.Add(g.one, limit); err != nil {
		return nil, err
	}
	for i := 0; i < len(g.also); i++ {
		more := config{one: checks.Options[*Call]{Name: g.one.Name + "-" + strconv.Itoa(i+2), Key: g.one.Key, Cost: g.one.Cost}}
		if err := more.set(g.also[i].options); err != nil {
			return nil, err
		}
		if option := more.whole(); option != "" {
			return nil, fmt.Errorf("%s inside Also has no effect: pass it to the interceptor, it applies to all its limits", option)
		}
		g.also = append(g.also, more.also...)
		if err := g.limits.Add(more.one, g.also[i].limit); err != nil {
			return nil, err
		}
	}
	if g.maxWait > 0 && !g.limits.Vary() &&
		!slices.ContainsFunc(g.limits.Ops, func(op headgate.Op) bool { return op.Limit.Algorithm() != headgate.Concurrency }) {
		return nil, fmt.Errorf("Wait of the limit %q has no effect on Concurrent: nothing says when a slot will become free", g.one.Name)
	}
	return g, nil
}

// set applies options.
func (c *config) set(options []Option) error {
	for i, o := range options {
		if o == nil {
			return fmt.Errorf("option %d of the limit %q is nil", i+1, c.one.Name)
		}
		o.apply(c)
	}
	if err := c.one.Err(); err != nil {
		return fmt.Errorf("the limit %q: %w", c.one.Name, err)
	}
	for _, method := range c.only {
		if why := notMethod(method); why != "" {
			return fmt.Errorf("Methods of the limit %q: %q is not a full method name such as /package.Service/Method: %s", c.one.Name, method, why)
		}
	}
	switch {
	case c.maxWait < 0:
		return fmt.Errorf("Wait of the limit %q is negative", c.one.Name)
	case c.one.Key == nil:
		return fmt.Errorf("By of the limit %q is nil, or made from an invalid metadata key or no parts", c.one.Name)
	case c.one.Cost == nil:
		return fmt.Errorf("Cost of the limit %q is nil", c.one.Name)
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

// notMethod returns why no call has a method of that name; empty if one may.
func notMethod(name string) string {
	service, method := "", ""
	if at := strings.LastIndexByte(name, '/'); at > 0 {
		service, method = name[1:at], name[at+1:]
	}
	switch {
	case !strings.HasPrefix(name, "/"):
		return "it must start with a slash"
	case service == "" || method == "":
		return "it needs a service and a method"
	case strings.ContainsAny(name, "*?|()[]{}<>^,;\\ \t\r\n"):
		return "patterns and lists are not supported; pass each name as an argument"
	}
	return ""
}
