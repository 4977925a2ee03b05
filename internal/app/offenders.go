package app

import (
	"context"
	"errors"
	"time"

	"github.com/headgate/headgate/internal/decide/control"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/decide/offenders"
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
	a.life.Every(offenders.FlushInterval, func() { a.offenders.Flush(context.Background()) })
}

// banOffenders bans keys for all processes that share the store.
func (a *App) banOffenders(ctx context.Context, list []offenders.Ban) (started int, err error) {
	entries := make([]*control.Entry, 0, len(list))
	for i := range list {
		b := &list[i]
		if was, _ := a.control.Of(b.Rule.Scope, b.Key); was != nil && was.Until.After(b.Until) {
			started++ // an operator has banned it for longer
			continue
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
	if len(entries) == 0 {
		return started, full
	}
	written, err := a.control.PutAll(ctx, entries)
	if errors.Is(err, control.ErrNotSaved) {
		a.log.Error("bans and overrides not saved", "err", err)
		err = nil // they are active all the same
	}
	return started + written, errors.Join(full, err)
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
