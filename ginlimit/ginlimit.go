// Package ginlimit puts the limits of package httplimit into gin, with the
// same options, header fields and refusals:
//
//	limiter := headgate.New(memory.New())
//	router.Use(ginlimit.New(limiter, headgate.PerMinute(60), httplimit.ByHeader("X-Api-Key")))
//
// Where an option needs what only gin knows, such as the user that another
// middleware found, [By], [Cost], [LimitBy] and [OnLimit] make it.
//
// It is a module of its own, so that nobody else depends on gin.
package ginlimit

import (
	"bufio"
	"context"
	"net"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
)

// New returns middleware that does for gin what httplimit.New does for
// net/http. Handlers after it do not run for a request that it refuses.
//
// A status that is written only after the middleware has returned, as by an
// error handler used before it, is not seen by httplimit.RefundIf.
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
		if !gate.Refunds() {
			c.Next()
			return
		}
		watched := &writer{ResponseWriter: c.Writer}
		c.Writer = watched
		c.Next()
		pass.Leave(watched.final())
	}
}

// contextKey finds the *gin.Context in the context of a request.
type contextKey struct{}

func contextOf(r *http.Request) (*gin.Context, bool) {
	c, ok := r.Context().Value(contextKey{}).(*gin.Context)
	return c, ok
}

// By counts by what by finds in gin's context:
//
//	ginlimit.By(func(c *gin.Context) (string, bool) { return c.GetString("user"), true })
//
// Requests for which it returns false, or an empty key, are counted together.
// It may be a part of httplimit.Join and httplimit.FirstOf.
func By(by func(*gin.Context) (key string, ok bool)) httplimit.By {
	if by == nil {
		return nil // which New refuses
	}
	return func(r *http.Request) (string, bool) {
		if c, ok := contextOf(r); ok {
			return by(c)
		}
		return "", false // not under New
	}
}

// Cost is httplimit.Cost by gin's context.
func Cost(cost func(*gin.Context) int64) httplimit.Option {
	if cost == nil {
		return httplimit.Cost(nil) // which New refuses
	}
	return httplimit.Cost(func(r *http.Request) int64 {
		if c, ok := contextOf(r); ok {
			return cost(c)
		}
		return 1 // not under New
	})
}

// LimitBy is httplimit.LimitBy by gin's context.
func LimitBy(choose func(*gin.Context) (headgate.Limit, bool)) httplimit.Option {
	if choose == nil {
		return httplimit.LimitBy(nil)
	}
	return httplimit.LimitBy(func(r *http.Request) (headgate.Limit, bool) {
		if c, ok := contextOf(r); ok {
			return choose(c)
		}
		return headgate.Limit{}, false // not under New
	})
}

// OnLimit lets h answer refused requests. The header fields are set before; in
// h, httplimit.Refused(c.Request.Context()) tells more. h chooses the status.
func OnLimit(h gin.HandlerFunc) httplimit.Option {
	if h == nil {
		return httplimit.OnLimit(nil)
	}
	return httplimit.OnLimit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, ok := contextOf(r)
		if !ok {
			w.WriteHeader(http.StatusTooManyRequests) // not under New
			return
		}
		c.Request = r // it knows the decision
		h(c)
	}))
}

// writer knows whether a handler has taken over the connection.
type writer struct {
	gin.ResponseWriter
	hijacked bool
}

// Hijack implements http.Hijacker.
func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := w.ResponseWriter.Hijack()
	w.hijacked = err == nil
	return conn, rw, err
}

// Unwrap returns the writer below, for http.ResponseController.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// final returns the status of the answer, or 0 if nobody knows it.
func (w *writer) final() int {
	if w.hijacked {
		return 0
	}
	return w.Status()
}
