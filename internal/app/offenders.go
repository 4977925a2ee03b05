package app

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/internal/decide/control"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/decide/offenders"
	"github.com/headgate/headgate/internal/observe/metrics"
	"github.com/headgate/headgate/internal/rules"
)

// forOperators is how many bans and overrides on_repeat leaves room for.
const forOperators = control.MaxEntries / 10

// openOffenders makes what counts refusals for on_repeat, and returns the option for the
// engine.
func (a *App) openOffenders() engine.Option {
	a.offenders = offenders.New(offenders.Options{
		Store: a.store.Counts, Clock: a.options.Clock, Logger: a.log, Ban: a.banOffenders, Started: a.logOffender,
	})
	return engine.WithRefusals(a.offenders)
}

// watchOffenders starts banning keys. Bans must be open.
func (a *App) watchOffenders() {
	a.life.Every(offenders.FlushInterval, func() { a.offenders.Tick(context.Background()) })
}

// banOffenders bans keys for all processes that share the store.
func (a *App) banOffenders(ctx context.Context, list []offenders.Ban) (started []offenders.Ban, err error) {
	entries := make([]*control.Entry, 0, len(list))
	for i := range list {
		b := &list[i]
		if a.bannedUntil(b) {
			continue // an operator has banned it for longer
		}
		entries = append(entries, &control.Entry{
			Kind: control.Ban, Domain: b.Rule.Domain, Rule: b.Rule.Name, Scope: b.Rule.Scope, Key: b.Key,
			Until: b.Until.UTC().Truncate(time.Millisecond), Created: b.From.UTC(), Reason: b.Reason(), By: offenders.By,
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
		a.unsavedBans.Add(int64(len(entries)))
		err = nil // they are active all the same
	}
	if err = errors.Join(full, err); err == nil {
		return list, nil
	}
	return slices.DeleteFunc(slices.Clone(list), func(b offenders.Ban) bool { return !a.bannedUntil(&b) }), err
}

// bannedUntil reports whether the key of a ban is banned, at least until the ban ends.
func (a *App) bannedUntil(b *offenders.Ban) bool {
	was, _ := a.control.Of(b.Rule.Scope, b.Key)
	return was != nil && !was.Until.Before(b.Until.Truncate(time.Millisecond))
}

// logOffender logs a ban as the admin door logs those by operators.
func (a *App) logOffender(b offenders.Ban) {
	action, after := "ban", "banned until "
	if b.Mode == rules.Shadow {
		action, after = "would_ban", "would be banned until "
	}
	a.log.Info("audit", "action", action, "by", offenders.By, "domain", b.Rule.Domain, "rule", b.Rule.Name, "key", a.keys.Text(b.Key),
		"reason", b.Reason(), "before", "none", "after", after+b.Until.UTC().Format(time.RFC3339))
}

// describeOffenders adds the metrics of on_repeat.
func (a *App) describeOffenders(c *metrics.Asked) {
	banned := c.Counter("headgate_offenders_banned_total",
		"Keys that this process has banned by on_repeat, by mode: enforce, or shadow for those that only would have been.", "domain", "rule", "mode")
	lost := c.Counter("headgate_offenders_lost_total",
		"Refusals that on_repeat has not counted, by reason: too_many_keys, long_key or store; and bans that could not be saved: not_saved.", "reason")
	c.Ask(func(out chan<- prometheus.Metric) {
		n := a.offenders.Counts()
		for b, count := range n.Banned {
			banned(out, float64(count), b.Domain, b.Rule, b.Mode.String())
		}
		lost(out, float64(n.TooManyKeys), "too_many_keys")
		lost(out, float64(n.LongKeys), "long_key")
		lost(out, float64(n.Uncounted), "store")
		lost(out, float64(n.Unsaved+a.unsavedBans.Load()), "not_saved")
	})
}
