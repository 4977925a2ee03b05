package netbound

import (
	"errors"
	"log/slog"
	"net"
	"os"
	"sync/atomic"
)

// Watched is a listener that counts, and logs once for each time it lasts, that
// connections cannot be accepted since something has run out, such as file
// descriptors. Servers try again after a pause and say nothing.
type Watched struct {
	net.Listener
	log    *slog.Logger
	failed atomic.Int64 // in all
	since  atomic.Int64 // of those, since it began; 0 while all is well

	drain
}

// Watch watches l.
func Watch(l net.Listener, log *slog.Logger) *Watched {
	return &Watched{Listener: l, log: log, drain: drain{drained: make(chan struct{}), ended: make(chan struct{})}}
}

// Failed returns how often a connection could not be accepted.
func (w *Watched) Failed() int64 { return w.failed.Load() }

// Accept implements net.Listener.
func (w *Watched) Accept() (net.Conn, error) {
	nc, err := w.Listener.Accept()
	switch {
	case err != nil && w.draining.Load() && (errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, net.ErrClosed)):
		return w.lastComer()
	case err == nil:
		if w.since.Load() > 0 {
			w.log.Info("connections are accepted again", "failed", w.since.Swap(0))
		}
	case passes(err):
		w.failed.Add(1)
		if w.since.Add(1) == 1 {
			w.log.Error("connections cannot be accepted", "err", err, "hint", "the process may need more file descriptors: LimitNOFILE=, ulimit -n")
		}
	}
	return nc, err
}
