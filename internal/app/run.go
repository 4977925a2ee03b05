package app

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"
)

// secondThought is how long after the first a signal is no second one. A process
// manager may send the same to a process and to its group.
const secondThought = time.Second

// ErrForced is returned by Run when a second signal cut the draining short.
var ErrForced = errors.New("stopped immediately by a second signal, without draining")

// Run starts the App and stops it on the first SIGINT or SIGTERM from signals,
// or when a door breaks down. SIGHUP reloads the rules. A second signal while
// draining, a second or more after the first, makes Run return ErrForced at
// once; the caller should then exit.
// started, if not nil, is called once all doors are open.
func (a *App) Run(ctx context.Context, signals <-chan os.Signal, started func()) error {
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
		delay = context.WithoutCancel(ctx) // it was the reason to stop
	}
	go func() { stopped <- a.Stop(delay) }()
	return errors.Join(failure, awaitStop(stopped, signals))
}

// awaitStop waits for the end of the draining that has begun now, or for a second
// signal, which cuts it short.
func awaitStop(stopped <-chan error, signals <-chan os.Signal) error {
	begun := time.Now()
	for {
		select {
		case err := <-stopped:
			return err
		case s := <-signals:
			if s != syscall.SIGHUP && time.Since(begun) >= secondThought {
				return ErrForced
			}
		}
	}
}

// attend reloads until it is time to stop. The error is why, if a door broke.
// Reading files may hang; signals are heard meanwhile.
func (a *App) attend(ctx context.Context, signals <-chan os.Signal) error {
	reloads, done := make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(done)
		for range reloads {
			_ = a.Reload() // it has been logged, and /readyz tells
		}
	}()
	defer func() {
		close(reloads)
		a.awaitReading(done)
	}()
	for {
		select {
		case s := <-signals:
			if s != syscall.SIGHUP {
				a.log.Info("signal received", "signal", s.String())
				return nil
			}
			select {
			case reloads <- struct{}{}:
			default: // the one that is waiting will read what is there then
			}
		case err := <-a.doors.Failed():
			a.log.Error("door failed", "err", err)
			return err
		case <-ctx.Done():
			return nil
		}
	}
}
