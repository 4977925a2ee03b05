package announce

import (
	"errors"
	"log/slog"
	"net/url"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/observe/metrics"
	"github.com/headgate/headgate/internal/observe/warning"
)

// TestMetricsAreReadWhileDeliveriesFail lets the race detector see both at once.
func TestMetricsAreReadWhileDeliveriesFail(t *testing.T) {
	hook := config.Webhook{URL: &url.URL{Scheme: "http", Host: "hooks.example"}}
	a, err := New(&config.EarlyWarning{On: true, Settings: warning.Default(), Webhooks: []config.Webhook{hook}})
	if err != nil {
		t.Fatal(err)
	}
	a.options.Logger = slog.New(slog.DiscardHandler)
	c := &metrics.Asked{}
	a.Describe(c)
	var both sync.WaitGroup
	both.Go(func() {
		out := make(chan prometheus.Metric, 100)
		c.Collect(out)
		if len(out) == 0 {
			t.Error("no metrics of webhooks")
		}
	})
	both.Go(func() { a.noteDelivery(a.hooks[0], errors.New("refused")) })
	both.Wait()
}
