//go:build !race

// Under the race detector, sync.Pool drops items on purpose.

package httplimit_test

import (
	"net/http"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/middleware/httplimit"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// LimitBy does not allocate.
func TestLimitByAllocatesNothing(t *testing.T) {
	pro := headgate.PerSecond(store.MaxLimit).WithBurst(1)
	allocs := func(options ...httplimit.Option) float64 {
		h := httplimit.New(headgate.New(memory.New()), headgate.PerSecond(store.MaxLimit), options...)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		w, r := discard{http.Header{}}, said("/", nil)
		return testing.AllocsPerRun(1000, func() {
			clear(w.h)
			h.ServeHTTP(w, r)
		})
	}
	plain, chosen := allocs(), allocs(httplimit.LimitBy(func(*http.Request) (headgate.Limit, bool) { return pro, true }))
	if chosen != plain {
		t.Errorf("%v allocations with LimitBy, %v without", chosen, plain)
	}
}
