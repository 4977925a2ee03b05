package grpclimit

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/decide/checks"
	"github.com/headgate/headgate/store"
)

// Option configures an interceptor. A [By] is an option itself.
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
	one checks.Options[*Call]

	only     []string
	chargeOn []codes.Code
	maxWait  time.Duration
	onError  func(context.Context, error)
	also     []also
}

type also struct {
	limit   headgate.Limit
	options []Option
}

// Name sets the limit's name in refusals. The default is that of
// [headgate.Limit.WithName], or "default". Limits with the same name and store share
// their counts, and keep them when their numbers change. A second interceptor of one kind
// with the same Limiter and an equal limit without a name is an error, because both would
// take from one count, and so is a second [LimitBy] without one. [UnaryServer] and
// [StreamServer] share the count of equal limits.
func Name(name string) Option {
	return single("Name", func(c *config) { c.one.Name, c.one.Scope = name, name })
}

// Cost sets the cost of a call; the default is 1. Cost 0 passes if anything would. A
// negative cost is refused.
func Cost(cost func(*Call) int64) Option {
	return single("Cost", func(c *config) { c.one.Cost = cost })
}

// LimitBy sets a limit for each call, such as that of the user's plan or the method.
// If it returns false, the limit of the interceptor or [Also] applies. Make the limits
// once, not for every call. With a [Name] or [headgate.Limit.WithName], limits of one
// algorithm share a key's count; unnamed ones count with an equal unnamed limit of
// other interceptors. An invalid limit, or two with the same name for one call, refuses it with UNAVAILABLE and calls [OnError]. For no limit, return
// [headgate.Unlimited].
func LimitBy(choose func(*Call) (headgate.Limit, bool)) Option {
	return single("LimitBy", func(c *config) { c.one.LimitBy = choose })
}

// Methods restricts all limits of the interceptor to these methods, given by full
// name, such as /package.Service/Method. Patterns are not supported.
func Methods(names ...string) Option {
	return option(func(c *config) {
		checks.Some(&c.one.Given, "Methods", names)
		c.only = append(c.only, names...)
	})
}

// ChargeOn counts only calls that end with one of these codes, such as failed logins:
//
//	grpclimit.ChargeOn(codes.Unauthenticated, codes.PermissionDenied)
//
// A call is charged before it starts, and refunded when it ends with another code, for a
// stream when the stream ends. So calls in progress never exceed the limit.
//
// At a server, a call counts if nobody saw its status: the handler panics, or the caller
// has canceled it or its deadline has passed. At a client, CANCELED and
// DEADLINE_EXCEEDED are codes like others, and a stream that is never read to its end
// counts. A call also counts if the store cannot refund it within a second, and calls
// [OnError], or if a Redis has been flushed or reconnected to since. ChargeOn does not
// work for [headgate.Concurrent] alone.
func ChargeOn(code ...codes.Code) Option {
	return option(func(c *config) {
		checks.Some(&c.one.Given, "ChargeOn", code)
		c.chargeOn = append(c.chargeOn, code...)
	})
}

// Wait holds a call back for up to d until it fits, instead of refusing it. It fails
// at once if it would have to wait longer than d or its deadline. Calls do not queue:
// when there is capacity again, the first call takes it. It does not work with
// [headgate.Concurrent], since nothing says when a slot becomes free.
func Wait(d time.Duration) Option { return single("Wait", func(c *config) { c.maxWait = d }) }

// OnError calls f with every error of the Limiter: store errors, invalid costs, and
// invalid limits from [LimitBy]. The Limiter's failure policy has already decided
// about the call. f must be safe for concurrent use.
func OnError(f func(context.Context, error)) Option {
	return single("OnError", func(c *config) { c.onError = f })
}

// SoftAt marks calls that use more than a part of the limit, such as 0.8; what is over the
// limit is refused as without it. The handler learns which limits mark a call from [Soft]. It works with every limit, but not with one that regions share.
func SoftAt(part float64) Option { return option(func(c *config) { c.one.SoftAt(part) }) }

// OnlyMark marks calls over the limit instead of refusing them; see [Soft]. They count too,
// up to one limit more, so a caller that was over it for a day is not marked for another.
// With [Also], calls that another limit refuses do not count. It costs a second call to the
// store if there is another limit, and does not work with headgate.LeakyBucket, with
// refusals that count, with blocks, or with limits that regions share.
func OnlyMark() Option { return option(func(c *config) { c.one.OnlyMark() }) }

// Headroom keeps a part of the limit for important calls: f says which part a call must leave
// to those above it, from 0 for the most important to less than 1, by something that callers
// cannot choose.
//
// A call that only had to leave room is over no limit of its own: it fails with UNAVAILABLE,
// google.rpc.RetryInfo of one to three seconds at random, and google.rpc.ErrorInfo with the
// reason HEADROOM. [Wait] waits for as long. While a bucket is full, all of its rate is for
// everybody; a fixed window lends what it keeps until it ends; other windows and
// headgate.Concurrent keep it always. A part that is none, such as 30 or -1, counts as 1,
// which refuses every call.
//
// It is for one limit: those of [Also] have their own. It does not work with [SoftAt],
// [OnlyMark], refusals that count, blocks, or limits that regions share. f must be safe for
// concurrent use.
func Headroom(f func(*Call) float64) Option {
	return single("Headroom", func(c *config) { c.one.Headroom = f })
}

// Also adds a further limit for the same calls, such as a daily one. A call is charged
// to all limits or to none. options may be By, Cost, Name, LimitBy, Headroom, SoftAt and
// OnlyMark. By and Cost
// default to those of the first limit, the name to default-2 and so on.
func Also(limit headgate.Limit, options ...Option) Option {
	return option(func(c *config) { c.also = append(c.also, also{limit, options}) })
}

// Validate returns the error that an interceptor with these arguments would panic
// with: a nil limiter or one without a store ([store.ErrNoStore]), an invalid limit
// ([headgate.ErrInvalidLimit]), or an invalid option. Call it first if limits come from
// configuration.
func Validate(limiter *headgate.Limiter, limit headgate.Limit, options ...Option) error {
	g, err := build(limiter, limit, All(), options)
	if err != nil {
		return err
	}
	return g.claim((*store.Caller).Taken, "")
}

// gate is what all interceptors share.
type gate struct {
	config
	limits checks.Limits[*Call]
	client bool
}

// claim claims the limits without a name for a kind of interceptor.
func (g *gate) claim(claim checks.Claim, kind string) error {
	if err := g.limits.Claim(claim, store.Claim{Whole: "grpclimit", Part: kind}); err != nil {
		return fmt.Errorf("grpclimit: %w", err)
	}
	return nil
}

func newGate(kind string, limiter *headgate.Limiter, limit headgate.Limit, by By, options []Option) *gate {
	g, err := build(limiter, limit, by, options)
	if err == nil {
		err = g.claim((*store.Caller).Claim, kind)
	}
	if err != nil {
		panic(err) //nolint:forbidigo // like http.ServeMux.Handle: a bug in the program; see Validate
	}
	return g
}

// build returns a gate, or an error about its arguments.
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
	if len(g.chargeOn) > 0 && !g.limits.Charges() {
		return nil, fmt.Errorf("ChargeOn of the limit %q has no effect on Concurrent: its slots are always given back", g.one.Name)
	}
	if g.maxWait > 0 && !g.limits.Charges() {
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
	for _, code := range c.chargeOn {
		if code > codes.Unauthenticated {
			return fmt.Errorf("ChargeOn of the limit %q: gRPC has no code %d", c.one.Name, code)
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

// whole returns the name of an option of c that applies to all limits, or "".
func (c *config) whole() string {
	switch {
	case c.only != nil:
		return "Methods"
	case c.chargeOn != nil:
		return "ChargeOn"
	case c.maxWait != 0:
		return "Wait"
	case c.onError != nil:
		return "OnError"
	}
	return ""
}

// notMethod returns why name cannot be a method, or "".
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
