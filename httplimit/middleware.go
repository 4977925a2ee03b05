package httplimit

import (
	"net/http"

	"github.com/headgate/headgate"
)

// New returns middleware that lets requests pass as limit allows, counted by
// [ByIP] unless an option says otherwise, and refuses the others with 429. A
// refusal because the store could not answer (headgate.FailureDeny) is a 503.
//
// Requests to a leaky bucket wait for their turn. One whose client goes away
// before gives its place back.
//
// New panics if it is given no limiter, or an invalid limit: such a middleware
// would refuse everything. The middleware panics if it is given no handler. For limits that are not known before the program runs,
// ask [Validate] first.
func New(limiter *headgate.Limiter, limit headgate.Limit, options ...Option) func(http.Handler) http.Handler {
	gate := NewGate(limiter, limit, options...)
	return func(next http.Handler) http.Handler {
		if next == nil {
			panic("httplimit: the middleware was given no handler") //nolint:forbidigo // as New does
		}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			pass, ok := gate.Enter(r.Context(), w, r)
			if !ok {
				return
			}
			defer pass.End()
			if !gate.Refunds() {
				next.ServeHTTP(w, r)
				return
			}
			watched := &statusWriter{ResponseWriter: w}
			next.ServeHTTP(watched, r)
			pass.Leave(watched.final())
		})
	}
}
