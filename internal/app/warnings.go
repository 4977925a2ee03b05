package app

import (
	"context"
	"time"

	"github.com/headgate/headgate/internal/observe/announce"
)

// startWarnings starts looking for what to warn of, if that is configured.
func (a *App) startWarnings() error {
	if a.warns == nil {
		return nil
	}
	wall := time.Now // which receivers compare with theirs
	if a.clock != nil {
		wall = a.clock.Wall
	}
	if err := a.warns.Start(announce.Options{
		File: a.store.FileFor("warnings"), Store: a.store.Counts, Clock: a.options.Clock, Wall: wall,
		KeySecret: a.options.Config.RuleOptions.KeySecret, Keys: a.keys, Events: a.events, Logger: a.log, Life: &a.life,
	}); err != nil {
		return err
	}
	a.life.OnEnd(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = a.closeWarnings(ctx) // after a start that failed
	})
	return nil
}

// lastWarnings is how long the stop waits for messages that are being sent.
const lastWarnings = time.Second

// closeWarnings stops sending warnings. What has not been delivered is sent after the next
// start.
func (a *App) closeWarnings(ctx context.Context) error {
	if a.warns == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, lastWarnings)
	defer cancel()
	return a.warns.Close(ctx)
}
