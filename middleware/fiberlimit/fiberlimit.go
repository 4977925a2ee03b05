// Package fiberlimit provides the limits of package httplimit as middleware for fiber 3,
// with the same options, header fields and refusals:
//
//	limiter := headgate.New(memory.New())
//	app.Use(fiberlimit.New(limiter, headgate.PerMinute(60), httplimit.ByHeader("X-Api-Key")))
//
// [By], [Cost], [Headroom], [LimitBy] and [OnLimit] are options with fiber's context, for example to
// count by a user that earlier middleware found.
//
// It is a separate module, so that other programs do not depend on fiber.
package fiberlimit

import (
	"errors"
	"net/http"
	"strings"
	"sync"

	"github.com/gofiber/fiber/v3"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/middleware/httplimit"
)

// New returns fiber middleware that works like httplimit.New. fiber is not built on
// net/http: options that take an *http.Request get one with Method, Host, URL,
// RequestURI, Header, RemoteAddr and a context, and must not keep it. Addresses come
// from httplimit.ByIP, not from fiber's proxy settings.
//
// A slot of headgate.Concurrent is held until the handlers have returned and their
// stream, such as that of SendStream or SendStreamWriter, is written or aborted.
//
// httplimit.ChargeOn and httplimit.RefundIf use the status of the answer, or of the
// returned *fiber.Error; any other error counts as a 500. ChargeOn does not see header
// fields that the error handler sets. fasthttp does not report clients that leave: a waiting
// request keeps its slot, and a client that hung up may get a refund, unless the
// context set by SetContext ends.
func New(limiter *headgate.Limiter, limit headgate.Limit, options ...httplimit.Option) fiber.Handler {
	gate := httplimit.NewGate(limiter, limit, options...)
	exchanges := sync.Pool{New: func() any { return newExchange() }}
	return func(c fiber.Ctx) error {
		x, _ := exchanges.Get().(*exchange)
		x.begin(c)
		// Not deferred: what a panic leaves behind is not reused.
		pass, ok := gate.Enter(c.Context(), x, x.request)
		defer pass.End() // if a handler panics
		err := x.err
		if ok {
			x.setHeader()
			if ctx, marked := pass.Mark(c.Context()); marked {
				c.SetContext(ctx)
			}
			err = c.Next()
			x.answered(gate, &pass, status(c, err))
			if pass.Holds() && c.Response().IsBodyStream() {
				holdStream(c.Response(), pass)
				pass = httplimit.Pass{}
				x.c = nil // c is reused soon; the pass keeps the rest of x
				return err
			}
			pass.End()
		}
		x.end()
		exchanges.Put(x)
		return err
	}
}

// status returns the status that c will be answered with, or 0 if it is unknown.
func status(c fiber.Ctx, err error) int {
	if c.RequestCtx().Hijacked() {
		return 0
	}
	if err == nil {
		return c.Response().StatusCode()
	}
	if told, ok := errors.AsType[*fiber.Error](err); ok {
		return told.Code
	}
	return http.StatusInternalServerError
}

// By counts by a value from fiber's context:
//
//	fiberlimit.By(func(c fiber.Ctx) (string, bool) { return fiber.Locals[string](c, "user"), true })
//
// Requests for which it returns false, or an empty key, are counted together. It can be
// used in httplimit.Join and httplimit.FirstOf. The key may be a string that fiber
// reuses after the request.
func By(by func(fiber.Ctx) (key string, ok bool)) httplimit.By {
	if by == nil {
		return nil // New rejects it
	}
	return func(r *http.Request) (string, bool) {
		x, ok := exchangeOf(r)
		if !ok {
			return "", false // used outside New
		}
		key, ok := by(x.c)
		return strings.Clone(key), ok // stores keep keys, and fiber reuses the memory of its strings
	}
}

// Cost is httplimit.Cost with fiber's context.
func Cost(cost func(fiber.Ctx) int64) httplimit.Option {
	if cost == nil {
		return httplimit.Cost(nil) // New rejects it
	}
	return httplimit.Cost(func(r *http.Request) int64 {
		if x, ok := exchangeOf(r); ok {
			return cost(x.c)
		}
		return 1 // used outside New
	})
}

// Headroom is httplimit.Headroom with fiber's context.
func Headroom(f func(fiber.Ctx) float64) httplimit.Option {
	if f == nil {
		return httplimit.Headroom(nil)
	}
	return httplimit.Headroom(func(r *http.Request) float64 {
		if x, ok := exchangeOf(r); ok {
			return f(x.c)
		}
		return 0 // used outside New
	})
}

// LimitBy is httplimit.LimitBy with fiber's context.
func LimitBy(choose func(fiber.Ctx) (headgate.Limit, bool)) httplimit.Option {
	if choose == nil {
		return httplimit.LimitBy(nil)
	}
	return httplimit.LimitBy(func(r *http.Request) (headgate.Limit, bool) {
		if x, ok := exchangeOf(r); ok {
			return choose(x.c)
		}
		return headgate.Limit{}, false // used outside New
	})
}

// OnLimit lets h answer refused requests. The header fields are already set; in h,
// [Refused] returns the decision. h chooses the status, and its error is returned by the
// middleware.
func OnLimit(h fiber.Handler) httplimit.Option {
	if h == nil {
		return httplimit.OnLimit(nil)
	}
	return httplimit.OnLimit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x, ok := exchangeOf(r)
		if !ok {
			w.WriteHeader(http.StatusTooManyRequests) // used outside New
			return
		}
		x.setHeader()
		if d, ok := httplimit.Refused(r.Context()); ok {
			fiber.Locals(x.c, refusedKey{}, d)
		}
		x.err = h(x.c)
	}))
}

type refusedKey struct{}

// Refused returns the decision about the request of an [OnLimit] handler, the
// tightest if there are several limits. It reports false for any other request.
func Refused(c fiber.Ctx) (headgate.Decision, bool) {
	d, ok := c.Locals(refusedKey{}).(headgate.Decision)
	return d, ok
}
