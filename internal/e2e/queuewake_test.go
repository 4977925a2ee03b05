package e2e

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

// An operator who frees a key, and a reload that raises its limit or lists it, let its queued
// requests go at once. The clock stands still: nothing else wakes them.
func TestWhatFreesAKeyWakesItsQueue(t *testing.T) {
	t.Parallel()
	var arrived atomic.Int64
	f := run(t, queueRulesText, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { arrived.Add(1) }), inFile(t))
	queued := func() {
		t.Helper()
		before := arrived.Load()
		if res, body := f.get(t, f.proxyURL("/orders")); res.StatusCode != http.StatusAccepted || arrived.Load() != before {
			t.Fatal(res.StatusCode, body)
		}
	}
	sent := func(n int64) {
		t.Helper()
		f.await(t, func() bool { return arrived.Load() == n })
	}
	if res, body := f.get(t, f.proxyURL("/orders")); res.StatusCode != http.StatusOK {
		t.Fatal(body)
	}
	for i, action := range []string{"reset", "grant"} {
		queued()
		res, err := f.client.Post("http://"+f.Addr(doorAdmin)+"/v1/keys/"+action, "application/json",
			strings.NewReader(strings.Replace(`{"domain":"api","rule":"orders","key":[]AMOUNT}`, "AMOUNT", map[string]string{"grant": `,"amount":1`}[action], 1)))
		if err != nil {
			t.Fatal(err)
		}
		if text := read(t, res); res.StatusCode != http.StatusOK {
			t.Fatalf("%s: %d %s", action, res.StatusCode, text)
		}
		sent(int64(i) + 2)
	}
	queued()
	writeFile(t, f.config.Rules[0], strings.Replace(queueRulesText, "1/minute", "5/minute", 1))
	if err := f.Reload(); err != nil {
		t.Fatal(err)
	}
	sent(4)
}
