//go:build unix

package main

import (
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/headgate/headgate/internal/app"
)

// TestManyReloadsLeaveRoomToStop: a server that receives SIGHUPs while it starts still
// receives the SIGTERM after them.
func TestManyReloadsLeaveRoomToStop(t *testing.T) {
	f := flags{noFile: true}
	c, err := f.load(map[string]string{"listen.api": "127.0.0.1:0", "listen.grpc": "off", "listen.resp": "off", "listen.admin": "off"})
	if err != nil {
		t.Fatal(err)
	}
	log := slog.Default()
	t.Cleanup(func() { // what serve changes in the process
		slog.SetDefault(log)
		signal.Reset(syscall.SIGPIPE)
	})
	seen := make(chan os.Signal, 1)
	signal.Notify(seen, syscall.SIGHUP, syscall.SIGTERM)
	defer signal.Stop(seen)
	send := func(s syscall.Signal) {
		if err := syscall.Kill(os.Getpid(), s); err != nil {
			t.Error(err)
		}
		<-seen // all channels have received it, or have had no room
	}
	if err := serve(t.Context(), streams{out: io.Discard, err: io.Discard}, app.Options{Config: c}, func(*app.App) {
		for range 16 {
			send(syscall.SIGHUP)
		}
		send(syscall.SIGTERM)
	}); err != nil {
		t.Error(err)
	}
}
