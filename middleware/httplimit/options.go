package httplimit

import (
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strconv"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/answer"
	"github.com/headgate/headgate/internal/decide/checks"
	"github.com/headgate/headgate/store"
)

// Option configures [New]. A [By] and a [Dialect] are options themselves.
type Option interface {
	apply(*config)
}

type option func(*config)

func (o option) apply(c *config) { o(c) }

// single returns an option that may be given only once.
func single(name string, o option) Option {
	return option(func(c *config) {
		c.one.Once(name)
		o(c)
	})
}

// config collects the options of one limit.
type config struct {
	one checks.Options[*http.Request]

	refund   []int
	chargeOn func(status int, header http.Header) bool
	charges  bool // whether there was a ChargeOn
	dialect  Dialect
	onLimit  http.Handler
	onError  func(*http.Request, error)
	also     []also
}

type also struct {
	limit   headgate.Limit
	options []Option
}

// Name sets the limit's name in header fields and refusals. The default is that of
// [headgate.Limit.WithName], or "default". Limits with the same name and store share their
// counts, and keep them when their numbers change. A second
// middleware of a Limiter with an equal limit without a name is an error, because both
// would take from one count: name the limits for /login and /register, and limits that
// count by different things. So is a second [LimitBy] without a name.
func Name(name string) Option {
	return single("Name", func(c *config) { c.one.Name, c.one.Scope = name, name })
}

// Cost sets the cost of a request; the default is 1. Cost 0 passes if anything would. A
// negative cost is refused.
func Cost(cost func(*http.Request) int64) Option {
	return single("Cost", func(c *config) { c.one.Cost = cost })
}

// LimitBy sets a limit for each request, such as that of the user's plan:
//
//	httplimit.LimitBy(func(r *http.Request) (headgate.Limit, bool) {
//		limit, ok := plans[planOf(r)]
//		return limit, ok
//	})
//
// If it returns false, the limit of [New] or [Also] applies. Make the limits once, not
// for every request. With a [Name] or [headgate.Limit.WithName], limits of one algorithm
// share a key's count, so a user who changes plans keeps it; unnamed limits each start
// at zero, and count with other middlewares of the Limiter that have an equal unnamed
// limit. An invalid limit, or two with the same name for one request, refuses it with
// 503 and calls [OnError]. For no limit, return [headgate.Unlimited].
func LimitBy(choose func(*http.Request) (headgate.Limit, bool)) Option {
	return single("LimitBy", func(c *config) { c.one.LimitBy = choose })
}

// ChargeOn counts only requests whose answer counts says so, such as failed logins:
//
//	httplimit.ChargeOn(func(status int, _ http.Header) bool {
//		return status == http.StatusUnauthorized || status == http.StatusForbidden
//	})
//
// A request is charged before the handler runs, and refunded when the handler gives an
// answer that does not count, before its header is sent. So requests in flight never
// exceed the limit, and header fields show what is left after the refund.
//
// An answer that nobody saw counts: that of a handler that panics or takes over the
// connection, and every answer to a client that hung up before. A request also counts if
// the store cannot refund it within a second, and calls [OnError], or if a Redis has been
// flushed or reconnected to since.
//
// counts must be safe for concurrent use and must not change the header. ChargeOn does
// not work with [RefundIf], and not for [headgate.Concurrent] alone.
func ChargeOn(counts func(status int, header http.Header) bool) Option {
	return single("ChargeOn", func(c *config) { c.chargeOn, c.charges = counts, true })
}

// RefundIf refunds a request's cost if the handler answers with one of these statuses:
//
//	httplimit.RefundIf(http.StatusNotModified)
//
// The cost is held until then, so requests in flight never exceed the limit. Header
// fields show what was left before the refund. There is no refund if the handler
// panics or takes over the connection, or if the client hung up before the handler
// returned. To count only some answers, use [ChargeOn].
func RefundIf(status ...int) Option {
	return option(func(c *config) {
		checks.Some(&c.one.Given, "RefundIf", status)
		c.refund = append(c.refund, status...)
	})
}

// OnLimit lets h answer refused requests. The header fields are already set; [Refused]
// returns the decision. h chooses the status.
func OnLimit(h http.Handler) Option {
	return single("OnLimit", func(c *config) { c.onLimit = h })
}

// OnError calls f with every error of the Limiter: store errors, invalid costs, and
// invalid limits from [LimitBy]. The Limiter's failure policy has already decided about
// the request. f must be safe for concurrent use.
func OnError(f func(*http.Request, error)) Option {
	return single("OnError", func(c *config) { c.onError = f })
}

// SoftAt marks requests that use more than a part of the limit, such as 0.8; what is over the
// limit is refused as without it. The handler learns which limits mark a request from
// [Soft]. It works with every limit, but not with one that regions share.
func SoftAt(part float64) Option { return option(func(c *config) { c.one.SoftAt(part) }) }

// OnlyMark marks requests over the limit instead of refusing them; see [Soft]. They count
// too, up to one limit more, so a caller that was over it for a day is not marked for
// another. With [Also], requests that another limit refuses do not count. It costs a second
// call to the store if there is another limit, and does not work with headgate.LeakyBucket,
// with refusals that count, with blocks, or with limits that regions share.
func OnlyMark() Option { return option(func(c *config) { c.one.OnlyMark() }) }

// Headroom keeps a part of the limit for important requests: f says which part a request must
// leave to those above it, from 0 for the most important to less than 1.
//
//	httplimit.Headroom(func(r *http.Request) float64 {
//		switch classOf(r) { // of something that clients cannot choose
//		case "critical":
//			return 0
//		case "batch":
//			return 0.3
//		}
//		return 0.2
//	})
//
// A request that only had to leave room is over no limit of its own: it is answered with 503,
// a Retry-After of one to three seconds at random and no fields of limits; [Refused] has the
// reason headgate.ReasonHeadroom. While a bucket is full, all of its rate is for everybody; a
// fixed window lends what it keeps until it ends; other windows and headgate.Concurrent keep
// it always. A part that is none, such as 30 or -1, counts as 1, which refuses every request.
//
// It is for one limit: those of [Also] have their own. It does not work with [SoftAt],
// [OnlyMark], refusals that count, blocks, or limits that regions share. f must be safe for
// concurrent use.
func Headroom(f func(*http.Request) float64) Option {
	return single("Headroom", func(c *config) { c.one.Headroom = f })
}

// Also adds a further limit for the same requests, such as a daily one. A request is
// charged to all limits or to none. options may be By, Cost, Name, LimitBy, Headroom, SoftAt
// and OnlyMark. By and
// Cost default to those of the first limit, the name to default-2 and so on.
func Also(limit headgate.Limit, options ...Option) Option {
	return option(func(c *config) { c.also = append(c.also, also{limit, options}) })
}

// Dialect chooses the header fields that report limits. It is an [Option]. Refusals
// carry Retry-After in every dialect.
type Dialect uint8

const (
	// AllHeaders is X-RateLimit-* and the IETF fields, the default.
	AllHeaders Dialect = iota
	// IETF is RateLimit and RateLimit-Policy only.
	IETF
	// GitHub is the fields of api.github.com: X-RateLimit-* with the reset in seconds
	// since the Unix epoch.
	GitHub
	// OpenAI is the fields of api.openai.com: X-RateLimit-*-Requests, and
	// X-RateLimit-*-Tokens for limits with the word tokens in their [Name], with the
	// reset as a duration such as 6m0s.
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

// answers returns d as package answer's Dialect, which has the same constants.
func (d Dialect) answers() answer.Dialect { return answer.Dialect(d) }

// Validate returns the error that [New] with these arguments would panic with: a nil
// limiter or one without a store ([store.ErrNoStore]), an invalid limit
// ([headgate.ErrInvalidLimit]), or an invalid option. Call it first if limits come from
// configuration.
func Validate(limiter *headgate.Limiter, limit headgate.Limit, options ...Option) error {
	_, err := build(limiter, limit, options, (*store.Caller).Taken)
	return err
}

// build returns a gate, or an error about its arguments.
func build(limiter *headgate.Limiter, limit headgate.Limit, options []Option, claim checks.Claim) (_ *Gate, err error) {
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
	if g.charges && !g.limits.Charges() {
		return nil, fmt.Errorf("ChargeOn of the limit %q has no effect on Concurrent: its slots are always given back", g.one.Name)
	}
	return g, g.limits.Claim(claim, store.Claim{Whole: "httplimit"})
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
	case c.charges && c.chargeOn == nil:
		return c.lacks("ChargeOn")
	case c.charges && c.refund != nil:
		return fmt.Errorf("the limit %q: use ChargeOn or RefundIf, not both", c.one.Name)
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

// isNilFunc reports whether h is a nil function or pointer, which would panic on each
// refusal.
func isNilFunc(h http.Handler) bool {
	v := reflect.ValueOf(h)
	return (v.Kind() == reflect.Func || v.Kind() == reflect.Pointer) && v.IsNil()
}

func (c *config) lacks(option string) error {
	return errors.New(option + " of the limit " + strconv.Quote(c.one.Name) + " is nil")
}

// whole returns the name of an option of c that applies to all limits, or "".
func (c *config) whole() string {
	switch {
	case c.refund != nil:
		return "RefundIf"
	case c.charges:
		return "ChargeOn"
	case c.dialect != AllHeaders:
		return "a Dialect"
	case c.onLimit != nil:
		return "OnLimit"
	case c.onError != nil:
		return "OnError"
	}
	return ""
}
