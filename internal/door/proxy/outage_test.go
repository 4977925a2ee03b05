package proxy_test

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/door/proxy"
	"github.com/headgate/headgate/store/memory"
)

// An upstream that fails now and then has one outage, which ends when it has been well for
// a while. The next failure is another.
func TestOutagesAreLoggedOnce(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	clock := func() time.Time { return now }
	var log bytes.Buffer
	fails := false
	p := newProxy(t, "domain: api\nlimits:\n  - {name: any, rate: 1000/second}\n", memory.New(memory.WithClock(clock)), func(r *http.Request) (*http.Response, error) {
		if fails {
			return nil, errors.New("dial timeout")
		}
		return ok(r)
	}, func(o *proxy.Options) { o.Clock, o.Logger = clock, slog.New(slog.NewTextHandler(&log, nil)) })
	ask := func(step time.Duration, failing bool) {
		now, fails = now.Add(step), failing
		p.ServeHTTP(httptest.NewRecorder(), request(t.Context(), "GET", "/"))
	}
	lines := func(begun, ended int) {
		t.Helper()
		if b, e := strings.Count(log.String(), "upstream request failed"), strings.Count(log.String(), "reachable again"); b != begun || e != ended {
			t.Errorf("%d outages and %d ends in the log, want %d and %d:\n%s", b, e, begun, ended, &log)
		}
	}
	ask(time.Second, false)
	lines(0, 0)
	for range 200 {
		ask(100*time.Millisecond, true)
		ask(100*time.Millisecond, false)
	}
	lines(1, 0)
	ask(9*time.Second, false)
	lines(1, 0)
	ask(time.Second, false)
	ask(time.Second, false)
	lines(1, 1)
	if !strings.Contains(log.String(), "failed=200") {
		t.Errorf("the end does not say how many requests failed:\n%s", &log)
	}
	ask(time.Second, true)
	lines(2, 1)
}
