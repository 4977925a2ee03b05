package netbound_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/transport/netbound"
)

// script is a listener with scripted results: an error, or a connection for nil. At the
// end it waits to be closed.
type script struct {
	net.Listener
	begin  time.Time
	steps  []error
	at     []time.Duration // when it was asked
	closed chan struct{}
}

func (s *script) Accept() (net.Conn, error) {
	s.at = append(s.at, time.Since(s.begin))
	if len(s.steps) == 0 {
		<-s.closed
		return nil, net.ErrClosed
	}
	err := s.steps[0]
	s.steps = s.steps[1:]
	if err != nil {
		return nil, err
	}
	near, far := net.Pipe()
	_ = far.Close()
	return near, nil
}

func TestAcceptAllOutlivesErrorsThatPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
		l := &script{begin: time.Now(), closed: make(chan struct{})}
		l.steps = []error{full, full, nil, full, nil}
		for range 10 {
			l.steps = append(l.steps, full)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var log bytes.Buffer
		handled, done := 0, make(chan error)
		go func() {
			done <- netbound.AcceptAll(ctx, netbound.Watch(l, slog.New(slog.NewTextHandler(&log, nil))), func(nc net.Conn) {
				handled++
				_ = nc.Close()
			})
		}()
		time.Sleep(time.Minute)
		cancel()
		close(l.closed)
		if err := <-done; err != nil || handled != 2 {
			t.Errorf("ended with %v after %d connections", err, handled)
		}
		// Pauses between calls, in milliseconds. A success resets them.
		var pauses []int64
		for i := 1; i < len(l.at); i++ {
			pauses = append(pauses, (l.at[i] - l.at[i-1]).Milliseconds())
		}
		if want := []int64{5, 10, 0, 5, 0, 5, 10, 20, 40, 80, 160, 320, 640, 1000, 1000}; !reflect.DeepEqual(pauses, want) {
			t.Errorf("pauses %v, want %v", pauses, want)
		}
		// Each start and each end of the failures.
		if n, m := strings.Count(log.String(), "too many open files"), strings.Count(log.String(), "accepting connections again"); n != 3 || m != 2 {
			t.Errorf("%d and %d lines in the log:\n%s", n, m, &log)
		}
	})
}

func TestAcceptAllEnds(t *testing.T) {
	broken := errors.New("broken")
	full := &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
	for _, row := range []struct {
		name  string
		steps []error
		stop  bool // by its context
		want  error
	}{
		{"for an error that stays", []error{nil, broken}, false, broken},
		{"when closed by another", []error{net.ErrClosed}, false, net.ErrClosed},
		{"when told to", []error{nil, net.ErrClosed}, true, nil},
		{"when told to, whatever the error", []error{broken}, true, nil},
		{"when told to while it pauses", []error{full, full, full, full, broken}, true, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			l := &script{begin: time.Now(), steps: row.steps}
			switch {
			case row.stop && errors.Is(row.steps[0], syscall.EMFILE):
				time.AfterFunc(7*time.Millisecond, cancel)
			case row.stop:
				cancel()
			}
			err := netbound.AcceptAll(ctx, l, func(nc net.Conn) { _ = nc.Close() })
			if !errors.Is(err, row.want) || (row.want == nil) != (err == nil) {
				t.Errorf("%s: %v, want %v", row.name, err, row.want)
			}
			if d := time.Since(l.begin); d > 7*time.Millisecond {
				t.Errorf("%s: took %v", row.name, d)
			}
		})
	}
}
