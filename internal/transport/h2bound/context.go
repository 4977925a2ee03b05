package h2bound

import (
	"context"
	"net/http"
)

type connKey struct{}

// NewContext returns ctx for requests that come by c.
func NewContext(ctx context.Context, c *Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// From returns the connection of the request with ctx, or nil if it does not
// count.
func From(ctx context.Context) *Conn {
	c, _ := ctx.Value(connKey{}).(*Conn)
	return c
}

// Owing serves by h, and counts what h writes until the client takes it.
func Owing(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 2 {
			if c := From(r.Context()); c != nil {
				w = &owing{ResponseWriter: w, conn: c}
			}
		}
		h.ServeHTTP(w, r)
	})
}

type owing struct {
	http.ResponseWriter
	conn *Conn
}

// Write implements http.ResponseWriter.
func (o *owing) Write(p []byte) (int, error) {
	o.conn.Owes(len(p))
	defer o.conn.Owes(-len(p))
	return o.ResponseWriter.Write(p)
}

// Unwrap is for http.ResponseController.
func (o *owing) Unwrap() http.ResponseWriter { return o.ResponseWriter }
