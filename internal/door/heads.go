package door

import (
	"context"
	"net/http"
	"net/netip"
	"time"

	"github.com/headgate/headgate/internal/answer"
	"github.com/headgate/headgate/internal/transport/membound"
	"github.com/headgate/headgate/internal/transport/netbound"
)

// boundHeads bounds the memory of the headers of requests in progress over HTTP/2: HPACK lets a
// client name a field that it has sent once with a byte, as often as it likes. Over HTTP/1 they
// are counted as they arrive; see package netbound.
func boundHeads(room *membound.Bound, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		over := int64(0)
		if r.ProtoMajor == 2 {
			over = sizeOf(r) - netbound.FreeHead
		}
		if over <= 0 {
			next.ServeHTTP(w, r)
			return
		}
		ctx, end := context.WithCancel(r.Context())
		defer end()
		from, _ := netip.ParseAddrPort(r.RemoteAddr)                  // of a Unix socket there is none
		account := room.Open(&heldHead{time.Now(), end}, from.Addr()) //nolint:forbidigo // clients are slow on the real clock
		defer account.Close()
		if !account.Take(2 * over) { // net/http has it, and what passes the request on
			w.Header().Set("Retry-After", "1")
			answer.Problem(w, http.StatusServiceUnavailable, "no memory for the request's header; retry later")
			return
		}
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// sizeOf returns the size of a request's header.
func sizeOf(r *http.Request) int64 {
	size := len(r.RequestURI) + len(r.Host)
	for name, values := range r.Header {
		for _, value := range values {
			size += len(name) + len(value)
		}
	}
	return int64(size)
}

// heldHead is a header as a [membound.Holder].
type heldHead struct {
	since time.Time
	end   context.CancelFunc
}

// Slow implements [membound.Holder].
func (h *heldHead) Slow(now time.Time, held int64) int64 {
	return held * min(now.Sub(h.since), netbound.WaitsMost).Milliseconds()
}

// Evict implements [membound.Holder].
func (h *heldHead) Evict() { h.end() }
