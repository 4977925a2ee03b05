// Command steppednode is headgate serve with an adjustable wall clock: the system's plus the
// content of the file CHAOS_CLOCK, in microseconds.
package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/headgate/headgate/internal/app"
	"github.com/headgate/headgate/internal/base/steady"
	"github.com/headgate/headgate/internal/config"
)

func main() {
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func serve() error {
	ahead, err := clock(os.Getenv("CHAOS_CLOCK"))
	if err != nil {
		return err
	}
	c, err := config.Load(config.Sources{File: os.Args[1], Doors: app.Sections()})
	if err != nil {
		return err
	}
	began := time.Now()
	a, err := app.New(app.Options{
		Config: c, Logger: slog.New(slog.NewJSONHandler(os.Stderr, nil)),
		System: steady.System{Read: func() (wall, monotonic int64) {
			now := time.Now()
			return now.Add(ahead()).UnixNano(), int64(now.Sub(began))
		}},
	})
	if err != nil {
		return err
	}
	stop, reload := make(chan os.Signal, 1), make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	signal.Notify(reload, syscall.SIGHUP)
	return a.Run(context.Background(), app.Signals{Stop: stop, Reload: reload}, nil)
}

// clock maps the file, so that writing to it sets the clock.
func clock(name string) (func() time.Duration, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	b, err := syscall.Mmap(int(f.Fd()), 0, 8, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	return func() time.Duration {
		return time.Duration(int64(binary.NativeEndian.Uint64(b))) * time.Microsecond
	}, nil
}
