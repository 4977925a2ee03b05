package app

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/internal/base/steady"
	"github.com/headgate/headgate/internal/observe/metrics"
)

// lookAtClock is how often the clock is held against the wall clock, which it
// differs from noticeably by tellFrom.
const (
	lookAtClock = time.Second
	tellFrom    = time.Second
)

// watchClock logs when the wall clock is set, and what becomes of that.
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
		a.log.Info("the machine has slept", "for", (now.Slept - last.Slept).Round(time.Millisecond).String())
	}
	if now.Steps > last.Steps {
		a.log.Warn("the wall clock has stayed ahead and is followed: every key has been given that much time",
			"by", (now.Stepped - last.Stepped).Round(time.Millisecond).String())
	}
	was, is := last.Difference.Abs() >= tellFrom, now.Difference.Abs() >= tellFrom
	switch {
	case is && (!was || (now.Difference-last.Difference).Abs() >= time.Minute):
		a.tellDifference(now.Difference.Round(time.Millisecond))
	case was && !is && now.Steps == last.Steps:
		a.log.Info("the time is that of the wall clock again")
	}
}

// tellDifference logs that the wall clock was set.
func (a *App) tellDifference(d time.Duration) {
	switch {
	case d < -steady.Large:
		a.log.Error("the wall clock was set back by more than a day: only a restart follows it, calendar windows are off until then", "difference", d.String())
	case d > steady.Small:
		a.log.Warn("the wall clock was set forward: it is followed if it stays there", "difference", d.String())
	default:
		a.log.Warn("the wall clock was set: it is followed slowly", "difference", d.String())
	}
}

// clockMetrics tells how the clock stands to the wall clock.
func (a *App) clockMetrics(c *metrics.Asked) {
	difference := c.Gauge("headgate_clock_difference_seconds", "The wall clock less the time that limits go by.")
	steps := c.Counter("headgate_clock_steps_total", "Times that a wall clock which stayed ahead was followed in one step.")
	c.Ask(func(out chan<- prometheus.Metric) {
		var s steady.Status
		if a.clock != nil {
			s = a.clock.Status()
		}
		difference(out, s.Difference.Seconds())
		steps(out, float64(s.Steps))
	})
}
