package app

import (
	"context"
	"time"

	"github.com/headgate/headgate/internal/observe/announce"
)

// startWarnings starts looking for what to warn of, if that is configured.
func (a *App) startWarnings() {
	if a.warns == nil {
		return
	}
	a.warns.Start(announce.Options{
		Store: a.store.Counts, Clock: a.options.Clock, KeySecret: string(a.options.Config.RuleOptions.KeySecret),
		Keys: a.keys, Events: a.events, Logger: a.log, Life: &a.life,
	})
	a.life.OnEnd(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = a.closeWarnings(ctx) // after a start that failed
	})
}

// lastWarnings is how long the stop waits for messages that are being sent.
const lastWarnings = time.Second

// closeWarnings stops sending warnings.
func (a *App) closeWarnings(ctx context.Context) error {
	if a.warns == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, lastWarnings)
	defer cancel()
	return a.warns.Close(ctx)
}
