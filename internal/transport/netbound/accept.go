package netbound

import (
	"context"
	"errors"
	"net"
	"time"
)

// The pauses after a connection could not be accepted: they double from the
// first to the last.
const (
	firstPause = 5 * time.Millisecond
	lastPause  = time.Second
)

// AcceptAll hands every connection of l to handle, which must not take long,
// until ctx is done and l is closed; it then returns nil. After an error that
// passes, such as having no file descriptors left, it tries again after a pause,
// for others will be closed; [Watched] tells of it. Any other error is returned.
func AcceptAll(ctx context.Context, l net.Listener, handle func(net.Conn)) error {
	var pause time.Duration
	for {
		nc, err := l.Accept()
		switch {
		case err == nil:
			pause = 0
			handle(nc)
			continue
		case ctx.Err() != nil:
			return nil //nolint:nilerr // that is how it ends
		case !passes(err):
			return err
		}
		pause = min(max(2*pause, firstPause), lastPause)
		waiting, cancel := context.WithTimeout(ctx, pause)
		<-waiting.Done()
		cancel()
	}
}

// passes reports whether an error says of itself that it passes. What package
// net deprecates about Temporary is that time-outs are among it; of a listener
// it means what it says, and package net/http goes by it too.
func passes(err error) bool {
	temporary, ok := errors.AsType[interface {
		error
		Temporary() bool
	}](err)
	return ok && temporary.Temporary()
}
