// Package echolimit provides the limits of package httplimit as middleware for echo 5,
// with the same options, header fields and refusals:
//
//	limiter := headgate.New(memory.New())
//	e.Use(echolimit.New(limiter, headgate.PerMinute(60), httplimit.ByHeader("X-Api-Key")))
//
// [By], [Cost], [Headroom], [LimitBy] and [OnLimit] are options with echo's context, for example to
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
	"github.com/headgate/headgate/middleware/httplimit"
)

// New returns echo middleware that works like httplimit.New. Use it before the
// middleware that it should protect.
//
// httplimit.ChargeOn and httplimit.RefundIf use the status that echo answers an error
// with. ChargeOn does not see header fields that the error handler sets.
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
			if ctx, marked := pass.Mark(ctx); marked {
				c.SetRequest(c.Request().WithContext(ctx))
			}
			original := c.Response()
			watched := &writer{ResponseWriter: original, pass: &pass}
			c.SetResponse(watched)
			err := next(c)
			c.SetResponse(original)
			status := watched.final(err)
			pass.Answered(status, original.Header())
			pass.Leave(status)
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

// Headroom is httplimit.Headroom with echo's context.
func Headroom(f func(*echo.Context) float64) httplimit.Option {
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

// writer settles a request when the header of its answer is written, and records whether
// a handler has taken over the connection.
type writer struct {
	http.ResponseWriter
	pass     *httplimit.Pass
	hijacked bool
	began    bool // the answer
}

// WriteHeader implements http.ResponseWriter.
func (w *writer) WriteHeader(status int) {
	// 1xx answers come before the final one, except 101.
	if !w.hijacked && (status >= 200 || status == http.StatusSwitchingProtocols) {
		w.began = true
		w.pass.Answered(status, w.Header())
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *writer) Write(b []byte) (int, error) {
	w.answered()
	return w.ResponseWriter.Write(b)
}

// Hijack implements http.Hijacker.
func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	w.hijacked = err == nil
	return conn, rw, err
}

// Flush implements http.Flusher.
func (w *writer) Flush() { _ = w.FlushError() }

// FlushError is what http.ResponseController calls.
func (w *writer) FlushError() error {
	err := http.NewResponseController(w.ResponseWriter).Flush()
	if err == nil { // otherwise nothing was sent
		w.answered()
	}
	return err
}

// answered says that an answer without WriteHeader has begun.
func (w *writer) answered() {
	if !w.began {
		w.began = true
		w.pass.Answered(w.final(nil), w.Header())
	}
}

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
