package app

import (
	"context"
	"errors"
	"os"
	"time"
)

// secondThought is how long a further signal is ignored: a process manager may
// signal a process and its group.
const secondThought = time.Second

// ErrForced is returned by Run when a second signal ends the draining.
var ErrForced = errors.New("stopped immediately by a second signal, without draining")

// Signals are what a process receives. Each kind has a channel of its own, so that many of
// one leave room for the other while nobody reads them.
type Signals struct {
	Stop   <-chan os.Signal // SIGINT and SIGTERM
	Reload <-chan os.Signal // SIGHUP
}

// Run starts the App, and stops it on the first signal to stop, when a door fails or
// when ctx is done. A signal to reload reloads the rules. A second signal to stop while
// draining, a second or more after the first, makes Run return ErrForced at once;
// the caller should then exit. started, if not nil, is called when all doors are open.
func (a *App) Run(ctx context.Context, signals Signals, started func()) error {
	if err := a.Start(ctx); err != nil {
		return err
	}
	if started != nil {
		started()
	}
	failure := a.attend(ctx, signals)
	stopped := make(chan error, 1)
	delay := ctx
	if ctx.Err() != nil {
		delay = context.WithoutCancel(ctx) // ctx was the reason to stop
	}
	go func() { stopped <- a.Stop(delay) }()
	return errors.Join(failure, awaitStop(stopped, signals.Stop))
}

// awaitStop waits for the end of draining or for a second signal.
func awaitStop(stopped <-chan error, again <-chan os.Signal) error {
	begun := time.Now()
	for {
		select {
		case err := <-stopped:
			return err
		case <-again:
			if time.Since(begun) >= secondThought {
				return ErrForced
			}
		}
	}
}

// attend handles signals until it is time to stop. The error is set if a door
// failed. Reloads run in the background, since reading files may hang.
func (a *App) attend(ctx context.Context, signals Signals) error {
	reloads, done := make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(done)
		for range reloads {
			a.renew()
		}
	}()
	defer func() {
		close(reloads)
		a.awaitReading(done)
	}()
	for {
		select {
		case s := <-signals.Stop:
			a.log.Info("signal received", "signal", s.String())
			return nil
		case <-signals.Reload:
			select {
			case reloads <- struct{}{}:
			default: // a waiting reload will read the current files
			}
		case err := <-a.doors.Failed():
			a.log.Error("door failed", "err", err)
			return err
		case <-ctx.Done():
			return nil
		}
	}
}
