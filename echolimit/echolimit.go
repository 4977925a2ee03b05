// Package echolimit provides the limits of package httplimit as middleware for echo 5,
// with the same options, header fields and refusals:
//
//	limiter := headgate.New(memory.New())
//	e.Use(echolimit.New(limiter, headgate.PerMinute(60), httplimit.ByHeader("X-Api-Key")))
//
// [By], [Cost], [LimitBy] and [OnLimit] are options with echo's context, for example to
// count by a user that earlier middleware found.
//
// It is a separate module, so that other programs do not depend on echo.
package echolimit

import (
	"bufio"
	"context"
	"net"
	"net/http"

	"github.com/labstack/echo/v5"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
)

// New returns echo middleware that works like httplimit.New. Use it before the
// middleware that it should protect.
//
// httplimit.RefundIf uses the status that echo answers an error with.
func New(limiter *headgate.Limiter, limit headgate.Limit, options ...httplimit.Option) echo.MiddlewareFunc {
	gate := httplimit.NewGate(limiter, limit, options...)
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			x := &exchange{c: c}
			ctx := c.Request().Context()
			pass, ok := gate.Enter(ctx, c.Response(), c.Request().WithContext(context.WithValue(ctx, exchangeKey{}, x)))
			if !ok {
				return x.err
			}
			defer pass.End()
			if !gate.Refunds() {
				return next(c)
			}
			original := c.Response()
			watched := &writer{ResponseWriter: original}
			c.SetResponse(watched)
			err := next(c)
			c.SetResponse(original)
			pass.Leave(watched.final(err))
			return err
		}
	}
}

// exchange is a request on its way through the gate.
type exchange struct {
	c   *echo.Context
	err error // of OnLimit
}

// exchangeKey finds the exchange in the context of a request.
type exchangeKey struct{}

func exchangeOf(r *http.Request) (*exchange, bool) {
	x, ok := r.Context().Value(exchangeKey{}).(*exchange)
	return x, ok
}

// By counts by a value from echo's context:
//
//	echolimit.By(func(c *echo.Context) (string, bool) {
//		user, ok := c.Get("user").(string)
//		return user, ok
//	})
//
// Requests for which it returns false, or an empty key, are counted together. It can be
// used in httplimit.Join and httplimit.FirstOf.
func By(by func(*echo.Context) (key string, ok bool)) httplimit.By {
	if by == nil {
		return nil // New rejects it
	}
	return func(r *http.Request) (string, bool) {
		if x, ok := exchangeOf(r); ok {
			return by(x.c)
		}
		return "", false // used outside New
	}
}

// Cost is httplimit.Cost with echo's context.
func Cost(cost func(*echo.Context) int64) httplimit.Option {
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

// LimitBy is httplimit.LimitBy with echo's context.
func LimitBy(choose func(*echo.Context) (headgate.Limit, bool)) httplimit.Option {
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
// httplimit.Refused(c.Request().Context()) returns the decision. h chooses the status,
// and its error is returned by the middleware.
func OnLimit(h echo.HandlerFunc) httplimit.Option {
	if h == nil {
		return httplimit.OnLimit(nil)
	}
	return httplimit.OnLimit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x, ok := exchangeOf(r)
		if !ok {
			w.WriteHeader(http.StatusTooManyRequests) // used outside New
			return
		}
		x.c.SetRequest(r) // its context has the decision
		x.err = h(x.c)
	}))
}

// writer records whether a handler has taken over the connection.
type writer struct {
	http.ResponseWriter
	hijacked bool
}

// Hijack implements http.Hijacker.
func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	w.hijacked = err == nil
	return conn, rw, err
}

// Flush implements http.Flusher.
func (w *writer) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }

// Unwrap returns the wrapped writer, for http.ResponseController and echo.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// final returns the status of the answer of a handler that returned err, or 0 if it is
// unknown.
func (w *writer) final(err error) int {
	if w.hijacked {
		return 0
	}
	_, status := echo.ResolveResponseStatus(w.ResponseWriter, err)
	return status
}
