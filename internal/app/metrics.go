package app

import (
	"net/http"
	"runtime"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/observe/metrics"
	"github.com/headgate/headgate/internal/rules"
)

// openMetrics begins to count and returns what the engine has to know.
func (a *App) openMetrics() engine.Option {
	a.keys = &metrics.KeyView{Hashes: a.options.Config.HashesKeys(), LogHashes: a.options.Config.Admin.Keys != config.PlainKeys}
	a.events = metrics.NewStream(a.keys)
	a.metrics = metrics.New(metrics.Options{
		MaxRules: int(a.options.Config.Metrics.MaxRules),
		Elapsed:  a.elapsed,
		Log:      a.log,
		Watchers: []metrics.Watcher{a.events, &metrics.Debug{Log: a.log, Level: a.options.LogLevel, Key: a.keys.Text}},
		Lacking:  a.warnOfLacking,
	})
	a.metrics.SetRules(a.state.Load().rules, a.options.Clock())
	a.register(
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		a.metrics.Collector(), a.selfCollector(),
	)
	return engine.WithObserver(a.telemetry.Observer(a.metrics))
}

// warnOfLacking says that a rule counts everybody together, for want of what it
// counts by.
func (a *App) warnOfLacking(r *rules.Rule, parts uint64) {
	var names []string
	for i, k := range r.Key {
		if parts&(1<<i) != 0 {
			names = append(names, k.Attribute.String())
		}
	}
	a.log.Warn("no request has what a rule counts by, so that they are all counted together",
		"rule", r.Name, "domain", r.Domain, "at", r.Position(), "lacking", strings.Join(names, ", "), "requests", metrics.LackingAfter,
		"hint", "check the name; key_missing: skip leaves out requests without it")
}

// elapsed is a clock that never jumps, for durations.
func (a *App) elapsed() time.Duration { return time.Since(a.began) }

// measured returns a store that tells how long another one takes.
func (a *App) measured(s headgate.Store) headgate.Store {
	m := metrics.NewStore(s, a.elapsed)
	a.register(m.Collector())
	return m
}

// register adds metrics to those at /metrics. Whoever adds a part of the App
// that has metrics of its own calls it once, before the doors are served.
func (a *App) register(list ...prometheus.Collector) {
	for _, c := range list {
		a.registry.MustRegister(c)
	}
}

// metricsHandler serves GET /metrics.
func (a *App) metricsHandler() http.Handler {
	return promhttp.HandlerFor(a.registry, promhttp.HandlerOpts{
		Registry: a.registry, EnableOpenMetrics: true, MaxRequestsInFlight: 4, Timeout: 30 * time.Second,
	})
}

// selfCollector tells about the process: what it is, its rules, its store and
// its doors.
func (a *App) selfCollector() prometheus.Collector {
	c := &metrics.Asked{}
	build := c.Gauge("headgate_build_info", "1, labelled with what this process is.", "version", "goversion")
	draining := c.Gauge("headgate_draining", "1 once the process has been asked to stop.")
	c.Ask(func(out chan<- prometheus.Metric) {
		build(out, 1, versionOf(a.options.Version), runtime.Version())
		draining(out, oneIf(a.draining.Load()))
	})
	a.clockMetrics(c)
	a.reloadMetrics(c)
	a.shrinkMetrics(c)
	a.memoryMetrics(c)
	a.snapshotMetrics(c)
	a.storeMetrics(c)
	a.storeHealthMetrics(c)
	a.connectionMetrics(c)
	a.perClientMetrics(c)
	a.overloadMetrics(c)
	a.roomMetrics(c)
	a.queueMetrics(c)
	a.controlMetrics(c)
	return c
}

func oneIf(yes bool) float64 { //nolint:revive // a fact, not a mode
	if yes {
		return 1
	}
	return 0
}

// reloadMetrics tells how reloading goes.
func (a *App) reloadMetrics(c *metrics.Asked) {
	reloads := c.Counter("headgate_reloads_total", "Times that rules were read, the first included.", "result")
	at := c.Gauge("headgate_reload_last_success_timestamp_seconds", "When the rules in force were read.")
	good := c.Gauge("headgate_reload_last_successful", "0 if the last attempt failed and older rules are in force.")
	c.Ask(func(out chan<- prometheus.Metric) {
		r := a.state.Load()
		reloads(out, float64(r.succeeded), "success")
		reloads(out, float64(r.failed), "failure")
		at(out, float64(max(r.loadedAt.UnixMilli(), 0))/1000)
		good(out, oneIf(r.failure == nil))
	})
}

// memoryMetrics tells about the embedded store; beside Redis, about the one
// that stands in for it.
func (a *App) memoryMetrics(c *metrics.Asked) {
	keys := c.Gauge("headgate_memory_keys", "Keys in this process's memory.")
	most := c.Gauge("headgate_memory_max_keys", "How many keys there may be.")
	bytes := c.Gauge("headgate_memory_bytes", "Bytes that they take.")
	evicted := c.Counter("headgate_memory_evicted_total", "Keys that were forgotten to make room, by whether they still counted.", "state")
	swept := c.Counter("headgate_memory_swept_total", "Keys that were forgotten because they were as good as unused.")
	c.Ask(func(out chan<- prometheus.Metric) {
		s := a.memory.Stats()
		keys(out, float64(s.Keys))
		most(out, float64(a.maxKeys()))
		bytes(out, float64(s.Bytes))
		evicted(out, float64(s.Evicted-s.EvictedInDebt), "fresh")
		evicted(out, float64(s.EvictedInDebt), "in_debt")
		swept(out, float64(s.Swept))
	})
}

// storeMetrics tells about the shared store, as seen from here. Memory is always
// there.
func (a *App) storeMetrics(c *metrics.Asked) {
	circuit := c.Gauge("headgate_store_circuit_open", "1 while the store is taken for dead and only probed.")
	opened := c.Counter("headgate_store_circuit_opened_total", "How often that began.")
	errs := c.Counter("headgate_store_errors_total", "Questions that the store did not answer: too late, out of memory, writing nothing, refused, with another error, or not asked while the circuit was open.", "kind")
	hits := c.Counter("headgate_deny_cache_hits_total", "Refusals that were known without asking the store.")
	c.Ask(func(out chan<- prometheus.Metric) {
		var s failsafeStats
		if a.safe != nil {
			s = a.safe.Stats()
		}
		circuit(out, oneIf(s.State != closedCircuit))
		opened(out, float64(s.Opened))
		errs(out, float64(s.Timeouts), "timeout")
		errs(out, float64(s.Full), "full")
		errs(out, float64(s.ReadOnly), "read_only")
		errs(out, float64(s.Refused), "refused")
		errs(out, float64(s.Failures-s.Timeouts-s.Full-s.ReadOnly-s.Refused), "error")
		errs(out, float64(s.FailedFast), "circuit_open")
		hits(out, float64(s.CacheHits))
	})
}

// connectionMetrics tells about the doors whose connections are bounded and
// counted by their listener.
func (a *App) connectionMetrics(c *metrics.Asked) {
	open := c.Gauge("headgate_connections", "Connections that are open.", "door")
	ever := c.Counter("headgate_connections_total", "Connections, by what became of them.", "door", "result")
	c.Ask(func(out chan<- prometheus.Metric) {
		for _, d := range a.doors {
			if d.bound == nil {
				continue
			}
			s := d.bound.Stats()
			open(out, float64(s.Open), d.Name)
			ever(out, float64(s.Accepted-s.Rejected), d.Name, "accepted")
			ever(out, float64(s.Evicted), d.Name, "evicted")
			ever(out, float64(s.Rejected), d.Name, "rejected")
		}
	})
}
