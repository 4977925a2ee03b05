package failsafe_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/failsafe"
)

// TestBreakerTrace follows one outage from the first failure to recovery.
func TestBreakerTrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var changes []failsafe.Change
		f := &fake{}
		s := failsafe.New(f, failsafe.Options{
			Breaker:  failsafe.Breaker{Jitter: -1},
			OnChange: func(c failsafe.Change) { changes = append(changes, c) },
		})
		begin := time.Now()
		if err, _ := take(s, t.Context()); err != nil {
			t.Fatal(err)
		}
		f.fails()
		for _, step := range []struct {
			at    time.Duration // since the start
			calls int
			asked int64 // how many calls reach the store
			state failsafe.State
		}{
			{0, 4, 4, failsafe.Closed},
			{0, 9, 9, failsafe.Closed}, // it has just answered a call
			{100 * time.Millisecond, 9, 1, failsafe.Open},
			{149 * time.Millisecond, 9, 0, failsafe.Open},
			{150 * time.Millisecond, 9, 1, failsafe.Open}, // a failed probe; the next wait is 100 ms
			{249 * time.Millisecond, 9, 0, failsafe.Open},
			{250 * time.Millisecond, 9, 1, failsafe.Open}, // 200 ms
			{450 * time.Millisecond, 9, 1, failsafe.Open}, // 250 ms, not 400
			{700 * time.Millisecond, 9, 1, failsafe.Open},
			{949 * time.Millisecond, 9, 0, failsafe.Open},
		} {
			time.Sleep(step.at - time.Since(begin))
			before := f.asked.Load()
			for range step.calls {
				err, took := take(s, t.Context())
				if !errors.Is(err, store.ErrUnavailable) || took != 0 {
					t.Fatalf("at %s: %v after %s", step.at, err, took)
				}
			}
			if asked := f.asked.Load() - before; asked != step.asked || s.Stats().State != step.state {
				t.Fatalf("at %s: asked %d times, %s; want %d, %s", step.at, asked, s.Stats().State, step.asked, step.state)
			}
		}
		f.works()
		if err, _ := take(s, t.Context()); !errors.Is(err, failsafe.ErrOpen) {
			t.Fatalf("before the next probe: %v", err)
		}
		time.Sleep(time.Millisecond)
		for range 5 {
			if err, _ := take(s, t.Context()); err != nil {
				t.Fatalf("recovered: %v", err)
			}
		}
		if len(changes) != 2 || changes[0].State != failsafe.Open || !errors.Is(changes[0].Err, errBroken) ||
			changes[1] != (failsafe.Change{State: failsafe.Closed, After: 850 * time.Millisecond}) {
			t.Errorf("changes: %+v", changes)
		}
		if got := s.Stats(); got.Opened != 1 || got.Probes != 5 || got.Failures != 4+9+1+4 {
			t.Errorf("%+v", got)
		}
	})
}

// TestOneOfSeveralServersIsLost: rare answers of the others keep the breaker closed, if it is
// given the patience.
func TestOneOfSeveralServersIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, row := range []struct {
			silence time.Duration
			opened  uint64
		}{{0, 1}, {time.Second, 0}} {
			f := &fake{answer: func(op store.Op) (store.Decision, error) {
				if op.Key == "lost" {
					return store.Decision{}, errBroken
				}
				return store.Decision{Allowed: true}, nil
			}}
			s := failsafe.New(f, failsafe.Options{Breaker: failsafe.Breaker{Silence: row.silence}})
			ask := func(key string) error {
				_, err := store.Execute(t.Context(), s, store.Op{Key: key, Rule: headgate.PerSecond(1).Rule(), At: 1})
				return err
			}
			for i := range 50 {
				if i%40 == 0 {
					if err := ask("kept"); err != nil {
						t.Errorf("silence %v: %v", row.silence, err)
					}
				}
				if ask("lost") == nil {
					t.Error("the lost server answers")
				}
				time.Sleep(20 * time.Millisecond)
				if s.Stats().Opened > 0 {
					break
				}
			}
			if got := s.Stats().Opened; got != row.opened {
				t.Errorf("silence %v: opened %d times, want %d", row.silence, got, row.opened)
			}
		}
	})
}

// TestOneProbesOthersFailFast: while a probe waits for a stalled store, no other call
// does.
func TestOneProbesOthersFailFast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{stall: make(chan struct{})}
		s := failsafe.New(f, failsafe.Options{})
		for s.Stats().State == failsafe.Closed {
			_, _ = take(s, t.Context())
		}
		time.Sleep(time.Second)
		before := f.asked.Load()
		var slow, fast int
		var mu sync.Mutex
		var group sync.WaitGroup
		for range 1000 {
			group.Go(func() {
				err, took := take(s, t.Context())
				mu.Lock()
				defer mu.Unlock()
				if errors.Is(err, failsafe.ErrOpen) && took == 0 {
					fast++
				} else if errors.Is(err, failsafe.ErrTimeout) {
					slow++
				}
			})
		}
		group.Wait()
		if asked := f.asked.Load() - before; asked != 1 || slow != 1 || fast != 999 {
			t.Errorf("asked %d times, %d waited, %d failed fast", asked, slow, fast)
		}
	})
}

// TestPartOfTheStoreIsLost: a cluster of which a third fails is not dead.
func TestPartOfTheStoreIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		f := &fake{answer: func(op store.Op) (store.Decision, error) {
			if n++; n%60 < 20 { // 20 failures in a row, then 40 successes
				return store.Decision{}, errBroken
			}
			return store.Decision{Allowed: true}, nil
		}}
		s := failsafe.New(f, failsafe.Options{})
		time.Sleep(time.Second)
		n = 20
		for range 6000 {
			_, _ = take(s, t.Context())
			time.Sleep(100 * time.Microsecond)
		}
		if got := s.Stats(); got.Opened != 0 || got.Failures != 2000 {
			t.Errorf("%+v", got)
		}
	})
}

// TestLateOutcomeOfAnEarlierTurn: a call that started before the breaker opened neither
// closes it nor counts twice.
func TestLateOutcomeOfAnEarlierTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stall := make(chan struct{})
		f := &fake{stall: stall}
		s := failsafe.New(f, failsafe.Options{})
		late := make(chan error)
		go func() {
			err, _ := take(s, t.Context())
			late <- err
		}()
		synctest.Wait()
		f.works()
		f.fails()
		for range 5 {
			_, _ = take(s, t.Context())
		}
		f.works()
		close(stall)
		if err := <-late; err != nil {
			t.Fatal(err)
		}
		if got := s.Stats().State; got != failsafe.Open {
			t.Errorf("the breaker is %s", got)
		}
	})
}

// TestAfterRecoveryTheCountBeginsAnew: failures from before the outage, and calls
// started during it, do not count against the store.
func TestAfterRecoveryTheCountBeginsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{stall: make(chan struct{})}
		s := failsafe.New(f, failsafe.Options{Breaker: failsafe.Breaker{OpenFor: 10 * time.Millisecond, Jitter: -1}})
		for range 20 { // they fail after the recovery
			go func() { _, _ = take(s, t.Context()) }()
		}
		synctest.Wait()
		f.set(func(f *fake) { f.stall = nil })
		f.fails()
		for range 5 {
			_, _ = take(s, t.Context())
		}
		f.works()
		time.Sleep(10 * time.Millisecond)
		if err, _ := take(s, t.Context()); err != nil || s.Stats().State != failsafe.Closed {
			t.Fatalf("the probe: %v, %s", err, s.Stats().State)
		}
		time.Sleep(100 * time.Millisecond)
		if got := s.Stats(); got.Timeouts != 20 {
			t.Fatalf("%+v", got)
		}
		f.fails()
		for range 4 {
			_, _ = take(s, t.Context())
		}
		if got := s.Stats().State; got != failsafe.Closed {
			t.Errorf("four failures since the recovery, and the breaker is %s", got)
		}
		_, _ = take(s, t.Context())
		if got := s.Stats().State; got != failsafe.Open {
			t.Errorf("five failures since the recovery, and the breaker is %s", got)
		}
	})
}

// TestProbesAreSpread: processes that lost their store together do not come back
// together, and none later than 1.25 times the wait.
func TestProbesAreSpread(t *testing.T) {
	var at []time.Duration
	for range 40 {
		synctest.Test(t, func(t *testing.T) {
			f := &fake{}
			f.fails()
			s := failsafe.New(f, failsafe.Options{})
			for s.Stats().State == failsafe.Closed {
				_, _ = take(s, t.Context())
			}
			f.works()
			begin := time.Now()
			for s.Stats().State == failsafe.Open {
				time.Sleep(time.Millisecond)
				_, _ = take(s, t.Context())
			}
			at = append(at, time.Since(begin))
		})
	}
	slices.Sort(at)
	if at[0] < 37*time.Millisecond || at[39] > 64*time.Millisecond {
		t.Errorf("first probes from %s to %s, want within 50 ms ± 25%%", at[0], at[39])
	}
	if at[39]-at[0] < 10*time.Millisecond {
		t.Errorf("40 first probes within %s", at[39]-at[0])
	}
}

// TestBreakerUnderRace switches the store on and off under load. Run it with -race.
func TestBreakerUnderRace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		state := failsafe.Closed
		s := failsafe.New(f, failsafe.Options{OnChange: func(c failsafe.Change) {
			if c.State == state {
				t.Errorf("two changes to %s in a row", c.State)
			}
			state = c.State
		}})
		var group sync.WaitGroup
		for range 8 {
			group.Go(func() {
				for range 3000 {
					_, _ = take(s, t.Context())
					time.Sleep(time.Millisecond)
				}
			})
		}
		for range 5 {
			time.Sleep(200 * time.Millisecond)
			f.fails()
			time.Sleep(200 * time.Millisecond)
			f.works()
		}
		group.Wait()
		if got := s.Stats(); got.State != failsafe.Closed || got.Opened == 0 {
			t.Errorf("%+v", got)
		}
	})
}

// TestFullStoreIsThere: a store without memory for new keys still answers, so it is
// still called.
func TestFullStoreIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{answer: func(o store.Op) (store.Decision, error) {
			if o.Key == "new" {
				return store.Decision{}, fmt.Errorf("redis: %w", store.ErrFull)
			}
			return store.Decision{Allowed: true}, nil
		}}
		s := failsafe.New(f, failsafe.Options{})
		for range 100 {
			time.Sleep(timeout)
			if _, err := store.Execute(t.Context(), s, op("new")); !errors.Is(err, store.ErrFull) || !errors.Is(err, store.ErrUnavailable) {
				t.Fatal(err)
			}
		}
		if d, err := store.Execute(t.Context(), s, op("old")); !d.Allowed || err != nil {
			t.Error(d, err)
		}
		if got := s.Stats(); got.Full != 100 || got.Failures != 100 || got.Opened != 0 {
			t.Errorf("%+v", got)
		}
	})
}

// TestRefusingStoreIsThere: an error about one request says nothing about others, which
// still reach the store; a probe that gets one closes the breaker.
func TestRefusingStoreIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("connection refused")
		var down bool
		f := &fake{answer: func(o store.Op) (store.Decision, error) {
			switch {
			case down:
				return store.Decision{}, broken
			case o.Key == "bad":
				return store.Decision{}, fmt.Errorf("redis: %w", store.ErrRefused)
			}
			return store.Decision{Allowed: true}, nil
		}}
		s := failsafe.New(f, failsafe.Options{})
		for range 100 {
			time.Sleep(timeout)
			if _, err := store.Execute(t.Context(), s, op("bad")); !errors.Is(err, store.ErrRefused) || !errors.Is(err, store.ErrUnavailable) {
				t.Fatal(err)
			}
		}
		if got := s.Stats(); got.Refused != 100 || got.Failures != 100 || got.Opened != 0 {
			t.Errorf("%+v", got)
		}
		if err := s.Last(store.ErrRefused); !errors.Is(err, store.ErrRefused) {
			t.Error(err)
		}
		if err := s.Last(store.ErrReadOnly); err != nil {
			t.Error(err)
		}
		down = true
		for range 10 {
			time.Sleep(timeout)
			_, _ = store.Execute(t.Context(), s, op("other"))
		}
		down = false
		time.Sleep(time.Second)
		_, _ = store.Execute(t.Context(), s, op("bad"))
		if got := s.Stats(); got.State != failsafe.Closed || got.Opened != 1 {
			t.Errorf("after a probe that was answered with an error: %+v", got)
		}
	})
}

// TestOpenBreakerTellsWhy: the error of a call that is not sent ends with the last
// failure, which is that of the last probe.
func TestOpenBreakerTellsWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		s := failsafe.New(f, failsafe.Options{Breaker: failsafe.Breaker{Failures: 1, Jitter: -1}})
		for _, why := range []string{"connection refused", "x509: certificate has expired"} {
			f.set(func(f *fake) {
				f.answer = func(store.Op) (store.Decision, error) { return store.Decision{}, errors.New(why) }
			})
			_, _ = take(s, t.Context()) // opens it, or probes
			err, _ := take(s, t.Context())
			if !errors.Is(err, failsafe.ErrOpen) || !strings.HasSuffix(err.Error(), "circuit breaker open: store unavailable: "+why) {
				t.Errorf("%v, want %s", err, why)
			}
			time.Sleep(failsafe.DefaultLongest)
		}
	})
}
