package netbound

import (
	"sync/atomic"
	"time"
)

// A process that is short of CPU must not accept more connections than it can serve.
// Otherwise all wait in one line, until their clients give up and connect again, which costs
// more than to answer them. So a new connection comes after the requests that are ready: it
// is accepted once a turn was short. Those that do not fit wait in the system's line, which
// costs nothing, and which is kept short so that the next is one whose client still waits.
const (
	// longTurn is how long a turn takes at least if requests wait for CPU.
	longTurn = 20 * time.Millisecond
	// perTurn is how many connections are accepted after one short turn, so that turns cost
	// next to nothing. While connections are held back, it is one.
	perTurn = 16
	// mostHeld is how long a connection is held back at most after a first long turn, which may
	// have been a pause. Only after that is the process short of CPU.
	mostHeld = 250 * time.Millisecond
	// waitingHeld is how many connections wait in the system's line while they are held back.
	waitingHeld = 16
	// calmTime is how long turns have to be short until connections are no longer held back.
	// Meanwhile one is taken at each calmTick.
	calmTime = 2 * time.Second
	calmTick = 100 * time.Millisecond
)

// yield holds new connections back while those that are open wait for CPU.
type yield struct {
	turn func() time.Duration // waits for a turn, and returns how long that took
	line func(waiting int)    // sets how many connections wait in the system's line; 0 for its default
	say  func(held bool)      // logs that connections are held back, or no longer
	stop func() bool          // reports whether the listener is about to stop
	end  chan struct{}        // closed with the listener

	begin  time.Time
	credit int          // connections that may be accepted without a turn; only used by before
	long   atomic.Int64 // when the last long turn ended, in nanoseconds since begin
	held   atomic.Bool  // connections are held back
}

// before waits until a connection may be accepted.
func (y *yield) before() {
	if y.credit--; y.credit >= 0 {
		return
	}
	y.credit = perTurn - 1
	var first time.Time // end of the first long turn
	for y.takesLong() && !y.stop() {
		now := time.Now() //nolint:forbidigo // turns take real time
		if first.IsZero() {
			first = now
		} else if now.Sub(first) >= mostHeld {
			y.hold()
			break
		}
	}
	if y.held.Load() {
		y.credit = 0
	}
}

// takesLong reports whether a turn takes long.
func (y *yield) takesLong() bool {
	long := y.turn() >= longTurn
	if long {
		y.long.Store(int64(time.Since(y.begin))) //nolint:forbidigo // as above
	}
	return long
}

// hold begins to hold connections back, until turns have been short for long enough.
func (y *yield) hold() {
	if y.held.Swap(true) {
		return
	}
	y.line(waitingHeld)
	y.say(true)
	go func() {
		tick := time.NewTicker(calmTick) //nolint:forbidigo // as above
		defer tick.Stop()
		for y.takesLong() || time.Since(y.begin)-time.Duration(y.long.Load()) < calmTime { //nolint:forbidigo // as above
			select {
			case <-tick.C:
			case <-y.end:
				return
			}
		}
		y.line(0)
		y.say(false)
		y.held.Store(false)
	}()
}

// Yield makes new connections wait while those that are open wait for CPU. It must be called
// before Accept.
func (w *Watched) Yield() error {
	t, err := newTurn()
	if err != nil {
		return err
	}
	w.turn = t
	w.yield = &yield{
		turn: t.wait, line: func(n int) { setWaiting(w.Listener, n) }, say: w.sayHeld, stop: w.draining.Load, end: w.drained,
		begin: time.Now(), //nolint:forbidigo // turns take real time
	}
	return nil
}

// Held reports whether new connections wait because the process is short of CPU.
func (w *Watched) Held() bool { return w.yield != nil && w.yield.held.Load() }

// sayHeld logs that connections are held back, at most once a minute, and that they no longer
// are.
func (w *Watched) sayHeld(held bool) {
	now := time.Now() //nolint:forbidigo // as above
	switch {
	case held && (w.said.IsZero() || now.Sub(w.said) >= time.Minute):
		w.said, w.saying = now, true
		w.log.Warn("short of CPU: new connections wait until open ones are served", "waiting_max", waitingHeld)
	case !held && w.saying:
		w.saying = false
		w.log.Info("new connections no longer wait for CPU")
	}
}
