// Package ginlimit provides the limits of package httplimit as middleware for gin, with
// the same options, header fields and refusals:
//
//	limiter := headgate.New(memory.New())
//	router.Use(ginlimit.New(limiter, headgate.PerMinute(60), httplimit.ByHeader("X-Api-Key")))
//
// [By], [Cost], [Headroom], [LimitBy] and [OnLimit] are options with gin's context, for example to
// count by a user that earlier middleware found.
//
// It is a separate module, so that other programs do not depend on gin.
package ginlimit

import (
	"bufio"
	"context"
	"net"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/middleware/httplimit"
)

// New returns gin middleware that works like httplimit.New. Later handlers do not run
// for refused requests.
//
// httplimit.ChargeOn and httplimit.RefundIf do not see a status that is written after the
// middleware has returned, for example by an error handler used before it.
func New(limiter *headgate.Limiter, limit headgate.Limit, options ...httplimit.Option) gin.HandlerFunc {
	gate := httplimit.NewGate(limiter, limit, options...)
	return func(c *gin.Context) {
		r := c.Request.WithContext(context.WithValue(c.Request.Context(), contextKey{}, c))
		pass, ok := gate.Enter(c.Request.Context(), c.Writer, r)
		if !ok {
			c.Abort()
			return
		}
		defer pass.End()
		if ctx, marked := pass.Mark(c.Request.Context()); marked {
			c.Request = c.Request.WithContext(ctx)
		}
		watched := &writer{ResponseWriter: c.Writer, pass: &pass}
		c.Writer = watched
		c.Next()
		watched.answered()
		pass.Leave(watched.final())
	}
}

// contextKey finds the *gin.Context in the context of a request.
type contextKey struct{}

func contextOf(r *http.Request) (*gin.Context, bool) {
	c, ok := r.Context().Value(contextKey{}).(*gin.Context)
	return c, ok
}

// By counts by a value from gin's context:
//
//	ginlimit.By(func(c *gin.Context) (string, bool) { return c.GetString("user"), true })
//
// Requests for which it returns false, or an empty key, are counted together. It can be
// used in httplimit.Join and httplimit.FirstOf.
func By(by func(*gin.Context) (key string, ok bool)) httplimit.By {
	if by == nil {
		return nil // New rejects it
	}
	return func(r *http.Request) (string, bool) {
		if c, ok := contextOf(r); ok {
			return by(c)
		}
		return "", false // used outside New
	}
}

// Cost is httplimit.Cost with gin's context.
func Cost(cost func(*gin.Context) int64) httplimit.Option {
	if cost == nil {
		return httplimit.Cost(nil) // New rejects it
	}
	return httplimit.Cost(func(r *http.Request) int64 {
		if c, ok := contextOf(r); ok {
			return cost(c)
		}
		return 1 // used outside New
	})
}

// Headroom is httplimit.Headroom with gin's context.
func Headroom(f func(*gin.Context) float64) httplimit.Option {
	if f == nil {
		return httplimit.Headroom(nil)
	}
	return httplimit.Headroom(func(r *http.Request) float64 {
		if c, ok := contextOf(r); ok {
			return f(c)
		}
		return 0 // used outside New
	})
}

// LimitBy is httplimit.LimitBy with gin's context.
func LimitBy(choose func(*gin.Context) (headgate.Limit, bool)) httplimit.Option {
	if choose == nil {
		return httplimit.LimitBy(nil)
	}
	return httplimit.LimitBy(func(r *http.Request) (headgate.Limit, bool) {
		if c, ok := contextOf(r); ok {
			return choose(c)
		}
		return headgate.Limit{}, false // used outside New
	})
}

// OnLimit lets h answer refused requests. The header fields are already set; in h,
// httplimit.Refused(c.Request.Context()) returns the decision. h chooses the status.
func OnLimit(h gin.HandlerFunc) httplimit.Option {
	if h == nil {
		return httplimit.OnLimit(nil)
	}
	return httplimit.OnLimit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, ok := contextOf(r)
		if !ok {
			w.WriteHeader(http.StatusTooManyRequests) // used outside New
			return
		}
		c.Request = r // its context has the decision
		h(c)
	}))
}

// writer settles a request when the header of its answer is written, and records whether
// a handler has taken over the connection.
type writer struct {
	gin.ResponseWriter
	pass     *httplimit.Pass
	hijacked bool
}

// answered says that the status and the header are final.
func (w *writer) answered() { w.pass.Answered(w.final(), w.Header()) }

// WriteHeaderNow implements gin.ResponseWriter.
func (w *writer) WriteHeaderNow() {
	w.answered()
	w.ResponseWriter.WriteHeaderNow()
}

// Write implements http.ResponseWriter.
func (w *writer) Write(b []byte) (int, error) {
	w.answered()
	return w.ResponseWriter.Write(b)
}

// WriteString implements io.StringWriter.
func (w *writer) WriteString(s string) (int, error) {
	w.answered()
	return w.ResponseWriter.WriteString(s)
}

// Flush implements http.Flusher.
func (w *writer) Flush() {
	w.answered()
	w.ResponseWriter.Flush()
}

// Hijack implements http.Hijacker.
func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := w.ResponseWriter.Hijack()
	w.hijacked = err == nil
	return conn, rw, err
}

// Unwrap returns the wrapped writer, for http.ResponseController.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// final returns the status of the answer, or 0 if it is unknown.
func (w *writer) final() int {
	if w.hijacked {
		return 0
	}
	return w.Status()
}
