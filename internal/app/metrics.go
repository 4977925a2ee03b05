package app

import (
	"net/http"
	"runtime"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/decide/storing"
	"github.com/headgate/headgate/internal/door/admin"
	"github.com/headgate/headgate/internal/observe/metrics"
	"github.com/headgate/headgate/internal/rules"
)

// openMetrics begins to count and returns what the engine has to know.
func (a *App) openMetrics() engine.Option {
	a.keys = admin.KeyView(a.options.Config)
	a.events = metrics.NewStream(a.keys)
	a.metrics = metrics.New(metrics.Options{
		MaxRules: int(a.options.Config.Metrics.MaxRules),
		Elapsed:  a.elapsed,
		Log:      a.log,
		Watchers: []metrics.Watcher{a.events, &metrics.Debug{Log: a.log, Level: a.options.LogLevel, Key: a.keys.Text}},
		Lacking:  a.warnOfLacking,
	})
	a.metrics.SetRules(a.state.Load().Rules, a.options.Clock())
	a.registry.MustRegister(
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		a.metrics.Collector(),
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
		draining(out, metrics.OneIf(a.draining.Load()))
	})
	a.clockMetrics(c)
	a.reloadMetrics(c)
	a.store.Describe(c)
	storing.DescribeControl(a.control, c)
	a.doors.Describe(c)
	a.queue.Describe(c)
	return c
}

// openLive begins to tell live views what happens.
func (a *App) openLive() {
	a.live = metrics.NewLive(a.metrics, a.options.Clock, func() metrics.StoreTick {
		s := a.store.Status()
		return metrics.StoreTick{Circuit: s.Circuit, Keys: s.Keys}
	})
	a.life.Every(metrics.TickEvery, a.live.Tick)
}

// reloadMetrics tells how reloading goes, and whether the rules in force are those
// of the files.
func (a *App) reloadMetrics(c *metrics.Asked) {
	reloads := c.Counter("headgate_reloads_total", "Times that rules were read, the first included.", "result")
	at := c.Gauge("headgate_reload_last_success_timestamp_seconds", "When the rules in force were read.")
	good := c.Gauge("headgate_reload_last_successful", "0 if the last attempt failed and older rules are in force.")
	held := c.Gauge("headgate_rules_held", "1 while rules are kept from being in force for what they lack.")
	rolledBack := c.Gauge("headgate_rules_rolled_back", "1 while rules from before are in force, as an operator has asked.")
	c.Ask(func(out chan<- prometheus.Metric) {
		s := a.state.Load()
		reloads(out, float64(s.Succeeded), "success")
		reloads(out, float64(s.Failed), "failure")
		at(out, float64(max(s.LoadedAt.UnixMilli(), 0))/1000)
		good(out, metrics.OneIf(s.Failure == nil))
		held(out, metrics.OneIf(s.held != nil))
		rolledBack(out, metrics.OneIf(s.rolledBack))
	})
}
