// Package echolimit puts the limits of package httplimit into echo, version 5,
// with the same options, header fields and refusals:
//
//	limiter := headgate.New(memory.New())
//	e.Use(echolimit.New(limiter, headgate.PerMinute(60), httplimit.ByHeader("X-Api-Key")))
//
// Where an option needs what only echo knows, such as the user that another
// middleware found, [By], [Cost], [LimitBy] and [OnLimit] make it.
//
// It is a module of its own, so that nobody else depends on echo.
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

// New returns middleware that does for echo what httplimit.New does for
// net/http. Use it before the middleware whose work is to be limited.
//
// httplimit.RefundIf goes by the status that echo answers an error with.
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

// By counts by what by finds in echo's context:
//
//	echolimit.By(func(c *echo.Context) (string, bool) {
//		user, ok := c.Get("user").(string)
//		return user, ok
//	})
//
// Requests for which it returns false, or an empty key, are counted together.
// It may be a part of httplimit.Join and httplimit.FirstOf.
func By(by func(*echo.Context) (key string, ok bool)) httplimit.By {
	if by == nil {
		return nil // which New refuses
	}
	return func(r *http.Request) (string, bool) {
		if x, ok := exchangeOf(r); ok {
			return by(x.c)
		}
		return "", false // not under New
	}
}

// Cost is httplimit.Cost by echo's context.
func Cost(cost func(*echo.Context) int64) httplimit.Option {
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

// LimitBy is httplimit.LimitBy by echo's context.
func LimitBy(choose func(*echo.Context) (headgate.Limit, bool)) httplimit.Option {
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
// h, httplimit.Refused(c.Request().Context()) tells more. h chooses the status;
// its error is the middleware's.
func OnLimit(h echo.HandlerFunc) httplimit.Option {
	if h == nil {
		return httplimit.OnLimit(nil)
	}
	return httplimit.OnLimit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x, ok := exchangeOf(r)
		if !ok {
			w.WriteHeader(http.StatusTooManyRequests) // not under New
			return
		}
		x.c.SetRequest(r) // it knows the decision
		x.err = h(x.c)
	}))
}

// writer knows whether a handler has taken over the connection.
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

// Unwrap returns the writer below, for http.ResponseController and echo.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// final returns the status of the answer of a handler that returned err, or 0
// if nobody knows it.
func (w *writer) final(err error) int {
	if w.hijacked {
		return 0
	}
	_, status := echo.ResolveResponseStatus(w.ResponseWriter, err)
	return status
}
