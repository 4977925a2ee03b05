package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/door/admin"
	"github.com/headgate/headgate/internal/testkit/redistest"
)

const placeRules = `domain: api
limits:
  - {name: exports, match: {path: /exports}, key: [user], concurrency: 2, lease: 60s}
`

const (
	placesOfAnn = `{"rule":"exports","key":["ann"]}`
	exportOfAnn = `{"domain":"api","attributes":{"path":"/exports","user":"ann"}}`
)

// Keys of a concurrency rule: operators' actions on them, and the effect on in-flight
// requests.
func TestKeysOfPlaces(t *testing.T) {
	t.Run("memory", func(t *testing.T) { testKeysOfPlaces(t, run(t, placeRules, nil, withAdmin)) })
	t.Run("redis", func(t *testing.T) {
		f := run(t, placeRules, nil, withAdmin, onRedis(redistest.Standalone(t).Addr), func(c *config.Config) { c.Store.Redis.DenyCache = 0 })
		f.journal.await(t, "store connected")
		f.clock.advance(time.Since(f.clock.Now())) // Redis drops ended leases by its own clock
		testKeysOfPlaces(t, f)
	})
}

func testKeysOfPlaces(t *testing.T, f *fixture) {
	t.Helper()
	left := func(action, body string, want int64) admin.KeyAnswer {
		t.Helper()
		got := f.mustKeys(t, action, body)
		if got.Remaining != want || got.Limit != 2 || got.Allowed != (want > 0) || !strings.Contains(got.LimitText, "concurrent") {
			t.Errorf("%s: %+v, want %d left of 2", action, got, want)
		}
		return got
	}
	var leases []string
	take := func(want int, held bool) {
		t.Helper()
		status, out := f.ask(t, "/v1/check", exportOfAnn)
		lease, _ := out["lease"].(string)
		if status != want || (lease != "") != held {
			t.Fatalf("%d %v, want %d, with a lease: %t", status, out, want, held)
		}
		if held {
			leases = append(leases, lease)
		}
	}
	release := func(i int, want bool) {
		t.Helper()
		if _, out := f.ask(t, "/v1/release", fmt.Sprintf(`{"lease":%q}`, leases[i])); out["released"] != want {
			t.Errorf("release of %d: %v, want %t", i, out, want)
		}
	}

	left("peek", placesOfAnn, 2)
	take(http.StatusOK, true)
	take(http.StatusOK, true)
	full := left("peek", placesOfAnn, 0)
	if full.RetryAfter == nil || *full.RetryAfter <= 0 || *full.RetryAfter > 60_000 {
		t.Errorf("a full key: %+v", full)
	}
	take(http.StatusTooManyRequests, false)

	// Credit admits one request, which holds no slot.
	left("grant", `{"rule":"exports","key":["ann"],"amount":1}`, 1)
	take(http.StatusOK, false)
	take(http.StatusTooManyRequests, false)

	// Nor does cancelling a reservation made with credit free a slot of others.
	left("grant", `{"rule":"exports","key":["ann"],"amount":1}`, 1)
	_, reserved := f.ask(t, "/v1/reserve", exportOfAnn)
	if _, out := f.ask(t, "/v1/cancel", fmt.Sprintf(`{"reservation":%q}`, reserved["reservation"])); out["cancelled"] != true {
		t.Errorf("cancel: %v", out)
	}
	left("peek", placesOfAnn, 0)
	release(0, true)
	release(0, false)
	left("peek", placesOfAnn, 1)

	// A reset frees all slots. Their previous holders free no slots of others.
	f.clock.advance(time.Second)
	left("reset", placesOfAnn, 2)
	take(http.StatusOK, true)
	take(http.StatusOK, true)
	release(1, false)
	left("peek", placesOfAnn, 0)
	release(2, true)
	release(3, true)
	left("peek", placesOfAnn, 2)

	status, _, text := f.keys(t, "override", `{"rule":"exports","key":["ann"],"rate":"5/minute","for":"1h"}`)
	if status != http.StatusBadRequest || !strings.Contains(text, "limits concurrency") {
		t.Errorf("override: %d %s", status, text)
	}
	f.mustKeys(t, "ban", `{"rule":"exports","key":["ann"],"for":"1h"}`)
	take(http.StatusTooManyRequests, false)
	if got := f.mustKeys(t, "unban", placesOfAnn); !got.Changed || got.BannedUntil != nil {
		t.Errorf("unban: %+v", got)
	}
	take(http.StatusOK, true)
}
