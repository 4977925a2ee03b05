package httplimit

import (
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strconv"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/decide/checks"
	"github.com/headgate/headgate/internal/door/answer"
)

// Option configures [New]. A [By] and a [Dialect] are options themselves.
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
	one checks.Options[*http.Request]

	refund  []int
	dialect Dialect
	onLimit http.Handler
	onError func(*http.Request, error)
	also    []also
}

type also struct {
	limit   headgate.Limit
	options []Option
}

// Name sets the limit's name in header fields and refusals; if not given it is
// that of [headgate.Limit.Named], or "default". Limits of one name that share a
// store count the same keys together, and keep their counts when their numbers
// change. Limits without a name count together only if they are the same: name
// them where even the same limit is to count apart, as for /login and /register,
// or by different things.
func Name(name string) Option {
	return single("Name", func(c *config) { c.one.Name, c.one.Scope = name, name })
}

// Cost sets what a request takes instead of 1. A request of cost 0 passes if
// anything would; a negative one is refused.
func Cost(cost func(*http.Request) int64) Option {
	return single("Cost", func(c *config) { c.one.Cost = cost })
}

// LimitBy lets each request have its own limit, such as that of its user's plan:
//
//	httplimit.LimitBy(func(r *http.Request) (headgate.Limit, bool) {
//		limit, ok := plans[planOf(r)]
//		return limit, ok
//	})
//
// Requests for which it returns false have the limit that [New] or [Also] was
// given. Make the limits once, not for every request. With a [Name], or one of
// their own ([headgate.Limit.Named]), limits of one algorithm share the count of a
// key, so that a user who changes plans keeps what is used; without a name each
// limit starts afresh. An invalid limit, or two of one name for one request, refuses
// it with 503, and [OnError] is told why; for no limit at all there is [headgate.Unlimited].
func LimitBy(choose func(*http.Request) (headgate.Limit, bool)) Option {
	return single("LimitBy", func(c *config) { c.one.LimitBy = choose })
}

// RefundIf gives a request's cost back if the handler answers with one of
// these statuses, so that, say, only failed logins count:
//
//	httplimit.RefundIf(http.StatusOK, http.StatusNoContent)
//
// The cost is held meanwhile, so no more requests than the limit are under way.
// Header fields say what was left before the refund. A handler that panics or
// takes over the connection gets nothing back, and neither does a client that
// hung up before the handler returned, so that to hang up is never cheaper.
func RefundIf(status ...int) Option {
	return option(func(c *config) {
		checks.Some(&c.one.Given, "RefundIf", status)
		c.refund = append(c.refund, status...)
	})
}

// OnLimit lets h answer refused requests. The header fields are set before;
// [Refused] tells h more. h chooses the status.
func OnLimit(h http.Handler) Option {
	return single("OnLimit", func(c *config) { c.onLimit = h })
}

// OnError calls f with every error of the Limiter: a store that could not
// answer, an invalid cost, an invalid limit of [LimitBy]. The Limiter's failure policy has decided
// about the request by then. f must be safe for concurrent use.
func OnError(f func(*http.Request, error)) Option {
	return single("OnError", func(c *config) { c.onError = f })
}

// Also adds a limit that the same requests have to keep, such as a daily one
// beside one per second. They are charged all or none: what one refuses does
// not use up the others. options may be By, Cost, Name and LimitBy. By and Cost
// are otherwise those of the first limit; without a Name it is called after its
// place, default-2 for the second.
func Also(limit headgate.Limit, options ...Option) Option {
	return option(func(c *config) { c.also = append(c.also, also{limit, options}) })
}

// Dialect chooses the header fields that tell clients about limits. It is an
// [Option]. Every dialect says Retry-After in refusals.
type Dialect uint8

const (
	// AllHeaders is X-RateLimit-* and the IETF fields. It is the default.
	AllHeaders Dialect = iota
	// IETF is RateLimit and RateLimit-Policy alone.
	IETF
	// GitHub is the fields of api.github.com: X-RateLimit-* with the reset as
	// a time of day, in seconds since the Unix epoch.
	GitHub
	// OpenAI is the fields of api.openai.com: X-RateLimit-*-Requests, and
	// X-RateLimit-*-Tokens of limits with the word tokens in their [Name], with
	// the reset as a duration such as 6m0s.
	OpenAI
	// Draft03 is RateLimit-Limit, RateLimit-Remaining and RateLimit-Reset, as
	// in draft-ietf-httpapi-ratelimit-headers-03.
	Draft03
	// NoHeaders is none of these.
	NoHeaders
)

func (d Dialect) apply(c *config) {
	c.one.Once("a Dialect")
	c.dialect = d
}

// String returns the dialect's name, such as ietf.
func (d Dialect) String() string { return d.answers().String() }

// answers returns d as package answer knows it, which has the same in this order.
func (d Dialect) answers() answer.Dialect { return answer.Dialect(d) }

// Validate returns what is wrong with the arguments of [New], which panics with
// it: a limiter that is nil or has no store ([headgate.ErrNoStore]), a limit that
// cannot be enforced ([headgate.ErrInvalidLimit]), an option that is nil. A
// program whose limits are configured while it runs asks it before New.
func Validate(limiter *headgate.Limiter, limit headgate.Limit, options ...Option) error {
	_, err := build(limiter, limit, options)
	return err
}

// build returns a gate, or what is wrong with its arguments.
func build(limiter *headgate.Limiter, limit headgate.Limit, options []Option) (_ *Gate, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("httplimit: %w", err)
		}
	}()
	if err := checks.Limiter(limiter); err != nil {
		return nil, err
	}
	g := &Gate{config: config{one: checks.Options[*http.Request]{Name: "default", Key: ByIP(), Cost: func(*http.Request) int64 { return 1 }}}}
	g.limits.Limiter = limiter
	if err := g.set(options); err != nil {
		return nil, err
	}
	if err := g.limits.Add(g.one, limit); err != nil {
		return nil, err
	}
	for i := 0; i < len(g.also); i++ {
		more := config{one: checks.Options[*http.Request]{Name: g.one.Name + "-" + strconv.Itoa(i+2), Key: g.one.Key, Cost: g.one.Cost}}
		if err := more.set(g.also[i].options); err != nil {
			return nil, err
		}
		if option := more.whole(); option != "" {
			return nil, fmt.Errorf("%s inside Also has no effect: pass it to the middleware, it applies to all its limits", option)
		}
		g.also = append(g.also, more.also...)
		if err := g.limits.Add(more.one, g.also[i].limit); err != nil {
			return nil, err
		}
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
	for _, status := range c.refund {
		if status < 100 || status > 999 {
			return fmt.Errorf("RefundIf of the limit %q: %d is not a status code", c.one.Name, status)
		}
	}
	switch {
	case c.dialect > NoHeaders:
		return fmt.Errorf("the limit %q: unknown %s", c.one.Name, c.dialect)
	case c.one.Key == nil:
		return fmt.Errorf("%w, or made from an invalid name, an invalid network, or no parts", c.lacks("By"))
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
	return errors.New(option + " of the limit " + strconv.Quote(c.one.Name) + " is nil")
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
