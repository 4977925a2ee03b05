// Package fiberlimit puts the limits of package httplimit into fiber, version
// 3, with the same options, header fields and refusals:
//
//	limiter := headgate.New(memory.New())
//	app.Use(fiberlimit.New(limiter, headgate.PerMinute(60), httplimit.ByHeader("X-Api-Key")))
//
// Where an option needs what only fiber knows, such as the user that another
// middleware found, [By], [Cost], [LimitBy] and [OnLimit] make it.
//
// It is a module of its own, so that nobody else depends on fiber.
package fiberlimit

import (
	"errors"
	"net/http"
	"strings"
	"sync"

	"github.com/gofiber/fiber/v3"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
)

// New returns middleware that does for fiber what httplimit.New does for
// net/http. fiber is not built on net/http: options that take an *http.Request
// get one with Method, Host, URL, RequestURI, Header, RemoteAddr and a context,
// and must not keep it. Addresses are found by httplimit.ByIP, not by fiber's
// own settings about proxies.
//
// A place of headgate.Concurrent is held until the handlers have returned and the
// stream that they have set, as with SendStream and SendStreamWriter, has been
// written or broken off.
//
// httplimit.RefundIf goes by the status of what handlers answer, or of the
// *fiber.Error that they return; any other error counts as a 500. fasthttp does
// not tell when a client goes away, so a request that waits for its turn gives
// it back, and one whose client hung up is not refunded, only if the context
// that was set by SetContext ends.
func New(limiter *headgate.Limiter, limit headgate.Limit, options ...httplimit.Option) fiber.Handler {
	gate := httplimit.NewGate(limiter, limit, options...)
	exchanges := sync.Pool{New: func() any { return newExchange() }}
	return func(c fiber.Ctx) error {
		x, _ := exchanges.Get().(*exchange)
		x.begin(c)
		// Not deferred: what a panic leaves behind is not used again.
		pass, ok := gate.Enter(c.Context(), x, x.request)
		defer pass.End() // of a handler that panics
		err := x.err
		if ok {
			x.setHeader()
			err = c.Next()
			pass.Leave(status(c, err))
			if pass.Holds() && c.Response().IsBodyStream() {
				holdStream(c.Response(), pass)
				pass = httplimit.Pass{}
				x.c = nil // that of another request soon; the pass keeps the rest of x
				return err
			}
			pass.End()
		}
		x.end()
		exchanges.Put(x)
		return err
	}
}

// status returns what c will be answered with, or 0 if nobody knows.
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

// By counts by what by finds in fiber's context:
//
//	fiberlimit.By(func(c fiber.Ctx) (string, bool) { return fiber.Locals[string](c, "user"), true })
//
// Requests for which it returns false, or an empty key, are counted together.
// It may be a part of httplimit.Join and httplimit.FirstOf. The key may be a
// string that fiber uses again after the request.
func By(by func(fiber.Ctx) (key string, ok bool)) httplimit.By {
	if by == nil {
		return nil // which New refuses
	}
	return func(r *http.Request) (string, bool) {
		x, ok := exchangeOf(r)
		if !ok {
			return "", false // not under New
		}
		key, ok := by(x.c)
		return strings.Clone(key), ok // stores keep keys, and the memory of fiber's strings is not theirs
	}
}

// Cost is httplimit.Cost by fiber's context.
func Cost(cost func(fiber.Ctx) int64) httplimit.Option {
	if cost == nil {
		return httplimit.Cost(nil) // which New refuses
	}
	return httplimit.Cost(func(r *http.Request) int64 {
		if x, ok := exchangeOf(r); ok {
			return cost(x.c)
		}
		return 1 // not under New
	})
}

// LimitBy is httplimit.LimitBy by fiber's context.
func LimitBy(choose func(fiber.Ctx) (headgate.Limit, bool)) httplimit.Option {
	if choose == nil {
		return httplimit.LimitBy(nil)
	}
	return httplimit.LimitBy(func(r *http.Request) (headgate.Limit, bool) {
		if x, ok := exchangeOf(r); ok {
			return choose(x.c)
		}
		return headgate.Limit{}, false // not under New
	})
}

// OnLimit lets h answer refused requests. The header fields are set before; in
// h, [Refused] tells more. h chooses the status; its error is the middleware's.
func OnLimit(h fiber.Handler) httplimit.Option {
	if h == nil {
		return httplimit.OnLimit(nil)
	}
	return httplimit.OnLimit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x, ok := exchangeOf(r)
		if !ok {
			w.WriteHeader(http.StatusTooManyRequests) // not under New
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
