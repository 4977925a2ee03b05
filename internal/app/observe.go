package app

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/internal/observe/metrics"
	"github.com/headgate/headgate/internal/observe/telemetry"
	"github.com/headgate/headgate/store/failsafe"
	"github.com/headgate/headgate/store/memory"
)

// observation is what operators see of an App.
type observation struct {
	started   time.Time // as the App's clock has it
	began     time.Time // on the monotonic clock
	registry  *prometheus.Registry
	metrics   *metrics.Observer
	telemetry *telemetry.Telemetry // nil if nothing is sent
	opened    atomic.Bool          // all that there are metrics of is there
	otlp      *telemetry.Options
	events    *metrics.Stream
	live      *metrics.Live
	keys      *metrics.KeyView
	memory    *memory.Store   // the store, or the one that stands in for Redis
	safe      *failsafe.Store // nil without Redis

	storeError atomic.Pointer[string] // the last time the circuit opened
}

type failsafeStats = failsafe.Stats

const closedCircuit = failsafe.Closed

// openLive begins to tell live views what happens.
func (a *App) openLive() {
	a.live = metrics.NewLive(a.metrics, a.options.Clock, func() metrics.StoreTick {
		s := a.storeStatus()
		return metrics.StoreTick{Circuit: s.Circuit, Keys: s.Keys}
	})
	a.every(metrics.TickEvery, a.live.Tick)
}

// endStreams ends what would go on for ever, so that the admin door can close.
func (a *App) endStreams() {
	if a.live != nil {
		a.live.Close()
		a.events.Close()
	}
}
