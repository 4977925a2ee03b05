package app

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/internal/decide/control"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/observe/metrics"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/feature"
	"github.com/headgate/headgate/internal/rules/features"
)

// forOperators is how many bans and overrides features leave room for.
const forOperators = control.MaxEntries / 10

// openFeatures makes what the features of rules do in a process, and returns the option for
// the engine.
func (a *App) openFeatures() engine.Option {
	a.features = features.Open(feature.Process{
		Store: a.store.Counts, Clock: a.options.Clock, Log: a.log, Ban: a.ban, Started: a.logBan,
	})
	return engine.WithRefusals(a.features)
}

// startFeatures starts them. The table of bans must be open.
func (a *App) startFeatures() {
	a.life.Every(feature.Interval, func() { a.features.Tick(context.Background()) })
}

// ban bans keys for all processes that share the store.
func (a *App) ban(ctx context.Context, list []feature.Ban) (started []feature.Ban, unsaved int, err error) {
	entries := make([]*control.Entry, 0, len(list))
	for i := range list {
		b := &list[i]
		if a.bannedUntil(b) {
			continue // an operator has banned it for longer
		}
		entries = append(entries, &control.Entry{
			Kind: control.Ban, Domain: b.Rule.Domain, Rule: b.Rule.Name, Scope: b.Rule.Scope, Key: b.Key,
			Until: b.Until.UTC().Truncate(time.Millisecond), Created: b.From.UTC(), Reason: b.Reason, By: b.By,
		})
	}
	room := max(a.control.Room()-forOperators, 0)
	var full error
	if len(entries) > room {
		entries, full = entries[:room], control.ErrFull
	}
	if len(entries) > 0 {
		_, err = a.control.PutAll(ctx, entries)
	}
	if errors.Is(err, control.ErrNotSaved) {
		a.log.Error("bans and overrides not saved", "err", err)
		unsaved, err = len(entries), nil // they are active all the same
	}
	if err = errors.Join(full, err); err == nil {
		return list, unsaved, nil
	}
	return slices.DeleteFunc(slices.Clone(list), func(b feature.Ban) bool { return !a.bannedUntil(&b) }), unsaved, err
}

// bannedUntil reports whether the key of a ban is banned, at least until the ban ends.
func (a *App) bannedUntil(b *feature.Ban) bool {
	was, _ := a.control.Of(b.Rule.Scope, b.Key)
	return was != nil && !was.Until.Before(b.Until.Truncate(time.Millisecond))
}

// logBan logs a ban as the admin door logs those by operators.
func (a *App) logBan(b feature.Ban) {
	action, after := "ban", "banned until "
	if b.Mode == rules.Shadow {
		action, after = "would_ban", "would be banned until "
	}
	a.log.Info("audit", "action", action, "by", b.By, "domain", b.Rule.Domain, "rule", b.Rule.Name, "key", a.keys.Text(b.Key),
		"reason", b.Reason, "before", "none", "after", after+b.Until.UTC().Format(time.RFC3339))
}

// describeFeatures adds the metrics of features.
func (a *App) describeFeatures(c *metrics.Asked) {
	for _, m := range a.features.Metrics() {
		counter := c.Counter(m.Name, m.Help, m.Labels...)
		c.Ask(func(out chan<- prometheus.Metric) {
			m.Read(func(n int64, labels ...string) { counter(out, float64(n), labels...) })
		})
	}
}
