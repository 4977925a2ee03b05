package door

import (
	"net/http"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/door/answer"
	"github.com/headgate/headgate/internal/transport/overload"
)

// Shedding refuses what h serves while the process has too much to do, which
// sheds reports.
func Shedding(sheds func(overload.Load) bool, l overload.Load, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if sheds(l) {
			defer answer.Unwanted(w, r, r.Body)()
			w.Header().Set("Retry-After", "1")
			answer.Problem(w, http.StatusServiceUnavailable, "overloaded: this process is short of memory or file descriptors")
			return
		}
		h.ServeHTTP(w, r)
	})
}

// Seldom is for lines in the log that come no more than once a minute, so that
// a flood does not fill it.
type Seldom struct{ last atomic.Int64 }

// Passes reports whether it is time for a line again.
func (s *Seldom) Passes(at time.Time) bool {
	now, before := at.UnixNano(), s.last.Load()
	return (before == 0 || now-before >= int64(time.Minute)) && s.last.CompareAndSwap(before, now)
}
