package grpclimit

import (
	"context"
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
