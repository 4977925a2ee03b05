package httplimit

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/answer"
)

// Option configures [New]. A [By] and a [Dialect] are options themselves.
type Option interface {
	apply(*config)
}

type option func(*config)

func (o option) apply(c *config) { o(c) }

// config collects what the options of one limit say.
type config struct {
	name    string
	by      By
	cost    func(*http.Request) int64
	refund  []int
	dialect Dialect
	onLimit http.Handler
	onError func(*http.Request, error)
	clock   func() time.Time
	also    []also
}

type also struct {
	limit   headgate.Limit
	options []Option
}

// Name sets the limit's name in header fields and refusals; "default" if not
// given. It is also the headgate.Op.Scope of the counts: limits of the same
// name that share a store count the same keys together.
func Name(name string) Option {
	return option(func(c *config) { c.name = name })
}

// Cost sets what a request takes instead of 1. A request of cost 0 passes if
// anything would; a negative one is refused.
func Cost(cost func(*http.Request) int64) Option {
	return option(func(c *config) { c.cost = cost })
}

// RefundIf gives a request's cost back if the handler answers with one of
// these statuses, so that, say, only failed logins count:
//
//	httplimit.RefundIf(http.StatusOK, http.StatusNoContent)
//
// The cost is held meanwhile, so no more requests than the limit are under way.
// Header fields say what was left before the refund. A handler that panics or
// takes over the connection gets nothing back.
func RefundIf(status ...int) Option {
	return option(func(c *config) { c.refund = append(c.refund, status...) })
}

// OnLimit lets h answer refused requests. The header fields are set before;
// [Refused] tells h more. h chooses the status.
func OnLimit(h http.Handler) Option {
	return option(func(c *config) { c.onLimit = h })
}

// OnError calls f with every error of the Limiter: a store that could not
// answer, an invalid limit or cost. The Limiter's failure policy has decided
// about the request by then. f must be safe for concurrent use.
func OnError(f func(*http.Request, error)) Option {
	return option(func(c *config) { c.onError = f })
}

// Clock sets the clock by which a refund knows how long ago its request was,
// and [GitHub] the time of day; time.Now if not given. Give the clock of headgate.WithClock, if there is one.
func Clock(now func() time.Time) Option {
	return option(func(c *config) { c.clock = now })
}

// Also adds a limit that the same requests have to keep, such as a daily one
// beside one per second. They are charged all or none: what one refuses does
// not use up the others. options may be By, Name and Cost, which are otherwise
// those of the first limit; without a Name it is called after its place,
// default-2 for the second.
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
	// NoHeaders is neither.
	NoHeaders
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
)

func (d Dialect) apply(c *config) { c.dialect = d }

// String returns the dialect's name, such as ietf.
func (d Dialect) String() string {
	if d > Draft03 {
		return fmt.Sprintf("dialect(%d)", uint8(d))
	}
	return d.answers().String()
}

// answers returns d as package answer knows it.
func (d Dialect) answers() answer.Dialect {
	switch d {
	case IETF:
		return answer.IETF
	case NoHeaders:
		return answer.None
	case GitHub:
		return answer.GitHub
	case OpenAI:
		return answer.OpenAI
	case Draft03:
		return answer.Draft03
	case AllHeaders:
	}
	return answer.Default
}

// one returns cost 1 for every request.
func one(*http.Request) int64 { return 1 }

// configure returns the config of the first limit, and the checks of all.
func configure(limit headgate.Limit, options []Option) (config, []check) {
	c := config{name: "default", by: ByIP(), cost: one, clock: time.Now} //nolint:forbidigo // the edge
	for _, o := range options {
		o.apply(&c)
	}
	checks := []check{{c.name, limit, c.by, c.cost}}
	for i := 0; i < len(c.also); i++ {
		more := config{name: c.name + "-" + strconv.Itoa(i+2), by: c.by, cost: c.cost}
		for _, o := range c.also[i].options {
			o.apply(&more)
		}
		c.also = append(c.also, more.also...)
		checks = append(checks, check{more.name, c.also[i].limit, more.by, more.cost})
	}
	return c, checks
}
