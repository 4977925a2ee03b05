package netbound

import (
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// waiter is a yield whose turns take what the test says.
type waiter struct {
	*yield
	took  atomic.Int64 // of a turn
	turns atomic.Int64
	lines []int // what the system's line was set to
	said  []bool
}

func newWaiter() *waiter {
	w := new(waiter)
	w.yield = &yield{
		turn: func() time.Duration {
			w.turns.Add(1)
			took := time.Duration(w.took.Load())
			time.Sleep(took)
			return took
		},
		line: func(n int) { w.lines = append(w.lines, n) },
		say:  func(held bool) { w.said = append(w.said, held) },
		stop: func() bool { return false }, end: make(chan struct{}), begin: time.Now(),
	}
	return w
}

// accept returns how long n connections waited, together.
func (w *waiter) accept(n int) time.Duration {
	begin := time.Now()
	for range n {
		w.before()
	}
	return time.Since(begin)
}

// On a machine with enough CPU nothing waits, and few turns are taken.
func TestCalmAcceptsAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWaiter()
		if took := w.accept(1000); took > 0 || w.turns.Load() > 1000/perTurn+1 || w.held.Load() {
			t.Errorf("waited %v in %d turns, held: %t", took, w.turns.Load(), w.held.Load())
		}
	})
}

// A pause of the process is one long turn, however long: a garbage collection, a machine that
// slept, a debugger. Nothing is held back after it.
func TestPauseHoldsNothingBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWaiter()
		left := 0
		w.turn = func() time.Duration {
			took := []time.Duration{0, longTurn, longTurn, time.Hour}[left] // then it catches up
			left = max(left-1, 0)
			time.Sleep(took)
			return took
		}
		for range 3 {
			w.credit, left = 0, 3
			w.accept(1)
		}
		if w.held.Load() || len(w.lines) > 0 {
			t.Error("held back")
		}
	})
}

// While turns are long, a few connections get through, and the system's line is short. It is
// as long as before once turns have been short for a while, even without new connections.
func TestShortOfCPU(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWaiter()
		w.took.Store(int64(longTurn))
		const n = 8
		if took := w.accept(n); took < (n-1)*mostHeld || took > (n+1)*(mostHeld+longTurn) || !w.held.Load() {
			t.Errorf("%d connections waited %v, held: %t", n, took, w.held.Load())
		}
		w.took.Store(int64(longTurn / 2)) // room for some more: each waits for a turn
		w.accept(1)
		if took := w.accept(n); took != n*longTurn/2 {
			t.Errorf("%d connections waited %v with short turns", n, took)
		}
		time.Sleep(calmTime / 2)
		if !w.held.Load() {
			t.Error("no longer held after half of the time")
		}
		w.took.Store(int64(longTurn))
		time.Sleep(calmTime)
		w.took.Store(0)
		time.Sleep(calmTime - calmTick)
		if !w.held.Load() {
			t.Error("no longer held, though a turn was long")
		}
		time.Sleep(3 * calmTick)
		if w.held.Load() || !slices.Equal(w.lines, []int{waitingHeld, 0}) || !slices.Equal(w.said, []bool{true, false}) {
			t.Errorf("held: %t, lines %v, said %v", w.held.Load(), w.lines, w.said)
		}
	})
}

// A listener that is about to stop holds nothing back: what waits must be answered.
func TestStoppingAcceptsAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWaiter()
		w.took.Store(int64(longTurn))
		w.stop = func() bool { return true }
		if took := w.accept(1); took > longTurn || w.held.Load() {
			t.Errorf("waited %v", took)
		}
	})
}

// It is logged that connections are held back, and that they no longer are, once a minute.
func TestHeldIsLogged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var text strings.Builder
		w := Watch(nil, slog.New(slog.NewTextHandler(&text, nil)))
		for range 3 {
			w.sayHeld(true)
			w.sayHeld(false)
			time.Sleep(45 * time.Second)
		}
		if warns, infos := strings.Count(text.String(), "level=WARN"), strings.Count(text.String(), "level=INFO"); warns != 2 || infos != 2 {
			t.Errorf("%d and %d lines: %s", warns, infos, text.String())
		}
	})
}

// A real turn takes the poller's way, and ends with the listener.
func TestYieldingListener(t *testing.T) {
	inner, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := Watch(inner, slog.New(slog.DiscardHandler))
	if err := w.Yield(); err != nil {
		t.Fatal(err)
	}
	w.yield.turn = func() time.Duration { // however busy the machine is
		w.turn.wait()
		return 0
	}
	w.yield.line(waitingHeld)
	for _, held := range []bool{true, false} {
		w.yield.held.Store(held)
		client, err := new(net.Dialer).DialContext(t.Context(), "tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		nc, err := w.Accept()
		if err != nil || w.Held() != held {
			t.Fatalf("%v, held: %t", err, w.Held())
		}
		_, _ = client.Close(), nc.Close()
		w.yield.line(0)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if took := w.turn.wait(); took != 0 {
		t.Errorf("a turn took %v after the end", took)
	}
}
