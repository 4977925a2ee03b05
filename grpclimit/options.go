package grpclimit

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/headgate/headgate"
)

// Option configures an interceptor. A [By] is an option itself.
type Option interface {
	apply(*config)
}

type option func(*config)

func (o option) apply(c *config) { o(c) }

// config collects what the options of one limit say.
type config struct {
	name    string
	by      By
	cost    func(*Call) int64
	only    []string
	maxWait time.Duration
	onError func(context.Context, error)
	also    []also
}

type also struct {
	limit   headgate.Limit
	options []Option
}

// Name sets the limit's name in refusals; "default" if not given. It is also
// the headgate.Op.Scope of the counts: limits of the same name that share a
// store count the same keys together.
func Name(name string) Option { return option(func(c *config) { c.name = name }) }

// Cost sets what a call takes instead of 1. Of cost 0 it passes if anything
// would; of a negative one it is refused.
func Cost(cost func(*Call) int64) Option { return option(func(c *config) { c.cost = cost }) }

// Methods limits only these methods, by their full names. It holds for all
// limits of the interceptor.
func Methods(names ...string) Option {
	return option(func(c *config) { c.only = append(c.only, names...) })
}

// Wait holds a call back for at most d until it fits, instead of refusing it:
// to pace a client, or to smooth the load of a server. It fails at once if it
// would be later, or later than its deadline. When there is room again whoever
// asks first has it.
func Wait(d time.Duration) Option { return option(func(c *config) { c.maxWait = d }) }

// OnError calls f with every error of the Limiter: a store that could not
// answer, an invalid limit or cost. The Limiter's failure policy has decided
// about the call by then. f must be safe for concurrent use.
func OnError(f func(context.Context, error)) Option {
	return option(func(c *config) { c.onError = f })
}

// Also adds a limit that the same calls have to keep, such as a daily one
// beside one per second. They are charged all or none. options may be By, Name
// and Cost, which are otherwise those of the first limit; without a Name it is
// called after its place, default-2 for the second.
func Also(limit headgate.Limit, options ...Option) Option {
	return option(func(c *config) { c.also = append(c.also, also{limit, options}) })
}

// check is one limit of an interceptor.
type check struct {
	name  string
	limit headgate.Limit
	by    By
	cost  func(*Call) int64
}

// gate is what all interceptors share.
type gate struct {
	config
	limiter *headgate.Limiter
	checks  []check
	client  bool
}

func newGate(limiter *headgate.Limiter, limit headgate.Limit, by By, options []Option) *gate {
	g := &gate{limiter: limiter, config: config{name: "default", by: by, cost: func(*Call) int64 { return 1 }}}
	for _, o := range options {
		o.apply(&g.config)
	}
	g.checks = []check{{g.name, limit, g.by, g.cost}}
	for i := 0; i < len(g.also); i++ {
		more := config{name: g.name + "-" + strconv.Itoa(i+2), by: g.by, cost: g.cost}
		for _, o := range g.also[i].options {
			o.apply(&more)
		}
		g.also = append(g.also, more.also...)
		g.checks = append(g.checks, check{more.name, g.also[i].limit, more.by, more.cost})
	}
	return g
}

// applies reports whether calls of a method are limited.
func (g *gate) applies(method string) bool {
	return len(g.only) == 0 || slices.Contains(g.only, method)
}
