package app

import (
	"cmp"
	"context"
	"net/http"
	"runtime"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/headgate/headgate/internal/base/steady"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/counts/storing"
	"github.com/headgate/headgate/internal/door"
	"github.com/headgate/headgate/internal/door/admin"
	"github.com/headgate/headgate/internal/observe/metrics"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/follow"
)

// openMetrics starts counting.
func (a *App) openMetrics() {
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
}

// warnOfLacking warns that all requests lack the rule's key and share one count.
func (a *App) warnOfLacking(r *rules.Rule, parts uint64) {
	var names []string
	for i, k := range r.Key {
		if parts&(1<<i) != 0 {
			names = append(names, k.Attribute.String())
		}
	}
	a.log.Warn("no request has the rule's key: all requests share one count",
		"rule", r.Name, "domain", r.Domain, "at", r.Position(), "lacking", strings.Join(names, ", "), "requests", metrics.LackingAfter,
		"hint", "check the attribute's name, or skip requests without it: key_missing: skip")
}

// elapsed is a monotonic clock, for durations.
func (a *App) elapsed() time.Duration { return time.Since(a.began) }

// metricsHandler serves GET /metrics.
func (a *App) metricsHandler() http.Handler {
	return promhttp.HandlerFor(a.registry, promhttp.HandlerOpts{
		Registry: a.registry, EnableOpenMetrics: true, MaxRequestsInFlight: 4, Timeout: 30 * time.Second,
	})
}

// selfCollector returns the metrics of the process: version, rules, store and doors.
func (a *App) selfCollector() prometheus.Collector {
	c := &metrics.Asked{}
	build := c.Gauge("headgate_build_info", "Always 1, labelled with the versions of Headgate and of Go.", "version", "goversion")
	draining := c.Gauge("headgate_draining", "1 while the process is stopping, else 0.")
	c.Ask(func(out chan<- prometheus.Metric) {
		build(out, 1, versionOf(a.options.Version), runtime.Version())
		draining(out, metrics.OneIf(a.draining.Load()))
	})
	a.clockMetrics(c)
	a.reloadMetrics(c)
	a.store.Describe(c)
	a.store.DescribeBlocks(c, a.metrics.Labels)
	a.store.DescribeRegions(c, a.metrics.Labels, func() *rules.Ruleset { return a.state.Load().Rules })
	a.store.DescribeHomes(c)
	a.store.DescribeFollowed(c)
	storing.DescribeControl(a.control, c)
	a.describeFeatures(c)
	a.doors.Describe(c)
	a.queue.Describe(c)
	if a.warns != nil {
		a.warns.Describe(c)
	}
	return c
}

// openLive starts feeding the live views.
func (a *App) openLive() {
	a.live = metrics.NewLive(a.metrics, a.options.Clock, func() metrics.StoreTick {
		s := a.store.Status()
		return metrics.StoreTick{Kind: s.Kind, Circuit: s.Circuit, Keys: s.Keys}
	})
	a.life.Every(metrics.TickEvery, a.live.Tick)
}

// reloadMetrics adds metrics about reloads and the active rules.
func (a *App) reloadMetrics(c *metrics.Asked) {
	reloads := c.Counter("headgate_reloads_total", "Times the rules were read, including the first time, by result.", "result")
	at := c.Gauge("headgate_reload_last_success_timestamp_seconds", "Time when the active rules were read, in seconds since the Unix epoch.")
	good := c.Gauge("headgate_reload_last_successful", "1 if the last reload succeeded, 0 if it failed and older rules are active.")
	held := c.Gauge("headgate_rules_held", "1 while reload.guard holds new rules back, else 0.")
	rolledBack := c.Gauge("headgate_rules_rolled_back", "1 while rules are active that an operator has rolled back to, else 0.")
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

// readiness answers /readyz.
func (a *App) readiness(ctx context.Context) door.Readiness {
	state := a.state.Load()
	stats := state.Rules.Stats()
	r := door.Readiness{
		Draining: a.draining.Load(), Store: a.store.Ready(ctx), StoreMayFail: a.options.Config.Store.Kind == config.InRedis,
		Rules: door.RulesState{
			Domains: stats.Domains, Rules: stats.Rules, Files: stats.Files, LoadedAt: state.LoadedAt,
			Waiting: state.waiting, Succeeded: state.Succeeded, Failed: state.Failed,
		},
	}
	if state.Failure != nil {
		r.Rules.LastFailed = &door.FailedReload{At: state.FailedAt, Error: state.Failure.Error()}
	}
	return r
}

// status returns the part of the status that the process knows.
func (a *App) status(ctx context.Context) admin.Status {
	ready := a.readiness(ctx)
	s := admin.Status{
		Version: versionOf(a.options.Version), Started: a.started, Ready: ready.Ready(), Store: a.store.Status(), Doors: []admin.DoorStatus{},
	}
	if ready.Store != nil {
		s.Store.Healthy, s.Store.Error = false, cmp.Or(s.Store.Error, ready.Store.Error())
	}
	a.doors.Addresses(func(name, address string) { s.Doors = append(s.Doors, admin.DoorStatus{Name: name, Address: address}) })
	return s
}

// loaded returns the active rules and their source, for operators.
func (a *App) loaded() (source string, read follow.Reading) {
	source = string(cmp.Or(a.options.Config.RulesFrom, config.FromFiles))
	if len(a.options.BuiltIn) > 0 {
		source = "built_in"
	}
	return source, a.state.Load().Reading
}

func versionOf(v string) string { return cmp.Or(v, "unknown") }

// lookAtClock is how often the clock is compared with the wall clock. Differences of at
// least tellFrom are logged.
const (
	lookAtClock = time.Second
	tellFrom    = time.Second
)

// watchClock logs changes of the wall clock, and how the clock follows them.
func (a *App) watchClock() {
	if a.clock == nil {
		return
	}
	var last steady.Status
	a.life.Every(lookAtClock, func() {
		now := a.clock.Status()
		a.tellClock(&last, &now)
		last = now
	})
}

// tellClock logs one line for every change.
func (a *App) tellClock(last, now *steady.Status) {
	if now.Slept > last.Slept {
		a.log.Info("machine resumed from sleep", "for", (now.Slept - last.Slept).Round(time.Millisecond).String())
	}
	if now.Steps > last.Steps {
		a.log.Warn("wall clock stayed ahead: jumped forward to it, so that much time has passed for every key",
			"by", (now.Stepped - last.Stepped).Round(time.Millisecond).String())
	}
	was, is := last.Difference.Abs() >= tellFrom, now.Difference.Abs() >= tellFrom
	switch {
	case is && (!was || (now.Difference-last.Difference).Abs() >= time.Minute):
		a.tellDifference(now.Difference.Round(time.Millisecond))
	case was && !is && now.Steps == last.Steps:
		a.log.Info("time matches the wall clock again")
	}
}

// tellDifference logs that the wall clock was set.
func (a *App) tellDifference(d time.Duration) {
	switch {
	case d < -steady.Large:
		a.log.Error("wall clock set back by more than a day: calendar windows are wrong until a restart", "difference", d.String())
	case d > steady.Small:
		a.log.Warn("wall clock set forward: will jump to it if it stays there", "difference", d.String())
	default:
		a.log.Warn("wall clock set: adjusting slowly", "difference", d.String())
	}
}

// clockMetrics adds metrics about the difference to the wall clock.
func (a *App) clockMetrics(c *metrics.Asked) {
	difference := c.Gauge("headgate_clock_difference_seconds", "Wall clock minus the clock that limits use, in seconds.")
	steps := c.Counter("headgate_clock_steps_total", "Times the clock that limits use jumped forward to a wall clock that stayed ahead.")
	c.Ask(func(out chan<- prometheus.Metric) {
		var s steady.Status
		if a.clock != nil {
			s = a.clock.Status()
		}
		difference(out, s.Difference.Seconds())
		steps(out, float64(s.Steps))
	})
}
