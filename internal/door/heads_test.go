package door

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/transport/membound"
)

// TestHeadersOverHTTP2: large headers take as much memory as there is for them. Requests that
// have held theirs for long are ended for others; where nobody is slow, a new one is refused.
func TestHeadersOverHTTP2(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 1 << 20
		room := membound.New(membound.Options{Most: most})
		var ended atomic.Int64
		release := make(chan struct{})
		h := boundHeads(room, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/wait" {
				select {
				case <-release:
				case <-r.Context().Done():
					ended.Add(1)
				}
			}
			w.WriteHeader(http.StatusNoContent)
		}))
		send := func(path string, major, size int) int {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody)
			r.ProtoMajor = major
			r.Header.Set("Cookie", strings.Repeat("x", size))
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code == http.StatusServiceUnavailable && w.Header().Get("Retry-After") != "1" {
				t.Errorf("refused with %v", w.Header())
			}
			return w.Code
		}
		var all sync.WaitGroup
		wait := func(n, major, size int) {
			for range n {
				all.Go(func() { send("/wait", major, size) })
			}
			synctest.Wait()
		}
		wait(100, 1, 60_000)
		wait(100, 2, 1_000)
		if held := room.Held(); held != 0 {
			t.Errorf("%d bytes are held by HTTP/1 and small headers", held)
		}
		wait(50, 2, 34_000)
		if held := room.Held(); held > most || held < most-128<<10 {
			t.Errorf("%d bytes are held", held)
		}
		if got := send("/", 2, 34_000); got != http.StatusServiceUnavailable {
			t.Errorf("nobody is slow: %d", got)
		}
		if got := send("/", 2, 1_000); got != http.StatusNoContent {
			t.Errorf("a small one: %d", got)
		}
		time.Sleep(2 * membound.Long)
		if got := send("/", 2, 34_000); got != http.StatusNoContent {
			t.Errorf("a large one while others are slow: %d", got)
		}
		synctest.Wait()
		if got := ended.Load(); got != 1 {
			t.Errorf("%d were ended, want 1", got)
		}
		close(release)
		all.Wait()
		if held := room.Held(); held != 0 {
			t.Errorf("%d bytes are held by nobody", held)
		}
	})
}
