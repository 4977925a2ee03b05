package app_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/testkit/redistest"
)

// A slow request that turns out to cost nothing refunds its estimate to the Redis that
// counted it, but not if Redis has lost its data since: the refund would reduce what
// others have taken.
func TestCostsOfARedisThatLostItsData(t *testing.T) {
	const text = `
domain: api
limits:
  - {name: tokens, key: ["header:X-Key"], rate: 10/day, algorithm: ALGORITHM, on_store_error: deny, cost: {estimate: 10, from_response: X-Cost}}
`
	for _, algorithm := range []string{"token_bucket", "fixed_window", "sliding_log"} {
		t.Run(algorithm, func(t *testing.T) {
			t.Parallel()
			server := redistest.Standalone(t)
			server.Do("CONFIG", "SET", "slowlog-log-slower-than", "0")
			server.Do("CONFIG", "SET", "slowlog-max-len", "10000")
			entered, leave := make(chan struct{}), make(chan struct{})
			f := newFixture(t, strings.Replace(text, "ALGORITHM", algorithm, 1), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("X-Cost", "10")
				if r.URL.Path == "/slow" {
					entered <- struct{}{}
					select {
					case <-leave:
					case <-t.Context().Done():
					}
					w.Header().Set("X-Cost", "0")
				}
			}), onRedis(server.Addr), func(c *config.Config) {
				c.Store.Redis.Timeout = 20 * time.Second // no refund without an answer
			})
			f.start(t)
			get := func(path, key string) int {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, f.proxyURL(path), http.NoBody)
				if err != nil {
					t.Error(err)
					return 0
				}
				r.Header.Set("X-Key", key)
				res, err := http.DefaultClient.Do(r)
				if err != nil {
					t.Error(err)
					return 0
				}
				_ = res.Body.Close()
				return res.StatusCode
			}
			f.await(t, func() bool { return get("/quick", "first") == http.StatusOK }) // it may connect late
			for _, lost := range []bool{false, true} {
				key := map[bool]string{false: "kept", true: "lost"}[lost]
				done := make(chan int)
				go func() { done <- get("/slow", key) }()
				<-entered
				// Its record is written in parallel; nothing waits for it.
				record, name := regexp.MustCompile(`\S*`+key+`}:taken\S*`), ""
				f.await(t, func() bool {
					name = record.FindString(server.Do("KEYS", "*"))
					return name != ""
				})
				if lost {
					server.Do("FLUSHALL")
					if status := get("/quick", key); status != http.StatusOK {
						t.Errorf("the data is not lost: %d", status)
					}
				}
				if status := get("/quick", key); status != http.StatusTooManyRequests {
					t.Errorf("%s: not exhausted: %d", key, status)
				}
				server.Do("SLOWLOG", "RESET")
				leave <- struct{}{}
				if status := <-done; status != http.StatusOK {
					t.Errorf("%s: %d", key, status)
				}
				// The refund looks up the record.
				f.await(t, func() bool { return strings.Contains(server.Do("SLOWLOG", "GET", "-1"), name) })
				want := http.StatusOK
				if lost {
					want = http.StatusTooManyRequests
				}
				if status := get("/quick", key); status != want && (algorithm != "token_bucket" || lost) {
					t.Errorf("%s: then %d, want %d", key, status, want)
				}
			}
		})
	}
}
