package failsafe_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/failsafe"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/storetest"
)

const timeout = failsafe.DefaultTimeout

func op(key string) store.Op {
	return store.Op{Key: key, Scope: "s", Rule: headgate.PerMinute(5).Rule(), Cost: 1}
}

// take makes one call and returns its error and duration.
func take(s store.Store, ctx context.Context) (error, time.Duration) { //nolint:staticcheck // the error is what is asked for, the time comes along
	begin := time.Now()
	_, err := store.Execute(ctx, s, op("k"))
	return err, time.Since(begin)
}

func TestConformance(t *testing.T) {
	storetest.Run(t, storetest.Harness{Open: func(*testing.T) store.Store {
		return failsafe.New(memory.New(), failsafe.Options{Timeout: 10 * time.Second})
	}})
}

func TestConformanceInGoroutines(t *testing.T) {
	storetest.Run(t, storetest.Harness{Open: func(*testing.T) store.Store {
		return failsafe.New(memory.New(), failsafe.Options{IgnoresContext: true, Timeout: 10 * time.Second})
	}})
}

// TestDeadline: no call waits longer than the Timeout, however the store stalls: the
// first call, one after a success, one after a pause, in Take and Do.
func TestDeadline(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		for _, trusted := range []bool{false, true} {
			t.Run(fmt.Sprintf("deaf=%v trusted=%v", deaf, trusted), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := &fake{}
					s := failsafe.New(f, failsafe.Options{IgnoresContext: deaf, Breaker: failsafe.Breaker{Failures: 1000}})
					if trusted {
						time.Sleep(timeout)
						if err, _ := take(s, t.Context()); err != nil {
							t.Fatal(err)
						}
					}
					stall := make(chan struct{})
					f.set(func(f *fake) { f.stall, f.deaf = stall, deaf })
					var group sync.WaitGroup
					for i := range 100 {
						group.Go(func() {
							time.Sleep(time.Duration(i) * time.Millisecond)
							var err error
							begin := time.Now()
							if i%2 == 0 {
								_, err = store.Execute(t.Context(), s, op("k"))
							} else {
								err = store.ExecuteAll(t.Context(), s, []store.Op{op("a"), op("b")}, make([]store.Decision, 2), store.AllOrNothing)
							}
							took := time.Since(begin)
							if !errors.Is(err, failsafe.ErrTimeout) || !errors.Is(err, store.ErrUnavailable) {
								t.Errorf("call %d: %v", i, err)
							}
							if took > timeout || took < timeout*7/8 {
								t.Errorf("call %d took %s", i, took)
							}
						})
					}
					group.Wait()
					if got := s.Stats(); got.Timeouts != 100 || deaf != (got.Stuck == 100) {
						t.Errorf("%+v", got)
					}
					close(stall)
					synctest.Wait()
					if got := s.Stats().Stuck; got != 0 {
						t.Errorf("%d calls are stuck after the store has answered", got)
					}
				})
			})
		}
	}
}

// TestAbandonedCallOwnsItsMemory: the caller may reuse its key and slices while the
// store still has the request.
func TestAbandonedCallOwnsItsMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stall, seen := make(chan struct{}), make(chan store.Op, 2)
		f := &fake{stall: stall, deaf: true, answer: func(op store.Op) (store.Decision, error) {
			op.Key = strings.Clone(op.Key)
			seen <- op
			return store.Decision{Allowed: true, Granted: 7}, nil
		}}
		s := failsafe.New(f, failsafe.Options{})
		// Keys as the engine builds them: in a reused buffer.
		buffer := []byte("ab")
		ops, out := []store.Op{op(""), op("")}, make([]store.Decision, 2)
		ops[0].Key, ops[1].Key = unsafe.String(&buffer[0], 1), unsafe.String(&buffer[1], 1)
		if err := store.ExecuteAll(t.Context(), s, ops, out, store.Independent); !errors.Is(err, failsafe.ErrTimeout) {
			t.Fatal(err)
		}
		copy(buffer, "xy")
		ops[0].Scope, ops[1].Scope = "other", "other"
		close(stall)
		synctest.Wait()
		if a, b := <-seen, <-seen; a.Key != "a" || b.Key != "b" || a.Scope != "s" || b.Scope != "s" {
			t.Errorf("the store saw %+v, %+v", a, b)
		}
		if out[0] != (store.Decision{}) {
			t.Errorf("a late answer was written: %+v", out[0])
		}
	})
}

// TestStuckCallsAreBounded: the number of goroutines is limited if the store never
// returns, and everything works when it is back.
func TestStuckCallsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stall := make(chan struct{})
		f := &fake{stall: stall, deaf: true}
		s := failsafe.New(f, failsafe.Options{Breaker: failsafe.Breaker{Failures: 1 << 30}})
		for range 30 {
			var group sync.WaitGroup
			for range 100 {
				group.Go(func() {
					if err, took := take(s, context.Background()); !errors.Is(err, store.ErrUnavailable) || took > timeout {
						t.Errorf("%v after %s", err, took)
					}
				})
			}
			group.Wait()
		}
		if got := s.Stats().Stuck; got < 1000 || got > 1200 {
			t.Errorf("%d calls are stuck, want about 1024 of 3000", got)
		}
		f.works()
		close(stall)
		synctest.Wait()
		if err, _ := take(s, context.Background()); err != nil || s.Stats().Stuck != 0 {
			t.Errorf("afterwards: %v, %d stuck", err, s.Stats().Stuck)
		}
	})
}

// TestCallersDeadline: an earlier deadline is honored. A caller with a short deadline
// does not make the store look dead, but one that gave it enough time does.
func TestCallersDeadline(t *testing.T) {
	for _, tt := range []struct {
		patience time.Duration
		state    failsafe.State
	}{
		{timeout / 25, failsafe.Closed},
		{timeout * 2 / 5, failsafe.Open},
	} {
		t.Run(tt.patience.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fake{stall: make(chan struct{})}
				s := failsafe.New(f, failsafe.Options{})
				for range 10 {
					ctx, cancel := context.WithTimeout(t.Context(), tt.patience)
					err, took := take(s, ctx)
					cancel()
					if !errors.Is(err, store.ErrUnavailable) || took > tt.patience {
						t.Fatalf("%v after %s", err, took)
					}
				}
				if got := s.Stats().State; got != tt.state {
					t.Errorf("the breaker is %s, want %s", got, tt.state)
				}
			})
		})
	}
}

// TestStoresThatEndBeforeTheirContext: a client may choose a deadline that is too short for
// the store. That is no failure of the store, even if it notices first.
func TestStoresThatEndBeforeTheirContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{answer: func(store.Op) (store.Decision, error) { return store.Decision{}, context.DeadlineExceeded }}
		s := failsafe.New(f, failsafe.Options{})
		for range 10 {
			ctx, cancel := context.WithTimeout(t.Context(), timeout/100)
			if err, _ := take(s, ctx); !errors.Is(err, failsafe.ErrTimeout) {
				t.Error(err)
			}
			cancel()
		}
		if got := s.Stats().State; got != failsafe.Closed {
			t.Errorf("the breaker is %s", got)
		}
	})
}

func TestContextValuesAndCancellation(t *testing.T) {
	type name struct{}
	synctest.Test(t, func(t *testing.T) {
		s := failsafe.New(&seer{t: t, key: name{}}, failsafe.Options{})
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), name{}, "trace"))
		for range 2 { // in a goroutine, then in line
			if err, _ := take(s, ctx); err != nil {
				t.Fatal(err)
			}
		}
		cancel() // the caller has gone, but its log wants an answer
		if err, _ := take(s, ctx); err != nil {
			t.Errorf("after cancel: %v", err)
		}
	})
}

// seer checks the context that reaches the inner store.
type seer struct {
	fake
	t   *testing.T
	key any
}

func (s *seer) Do(ctx context.Context, b *store.Batch) {
	if len(b.Ops) == 0 { // of Validate
		return
	}
	if got := ctx.Value(s.key); got != "trace" {
		s.t.Errorf("value %v", got)
	}
	if _, ok := ctx.Deadline(); !ok || ctx.Err() != nil {
		s.t.Errorf("deadline %v, err %v", ok, ctx.Err())
	}
	for i := range b.Out {
		b.Out[i].Allowed = true
	}
}

// TestErrors: the errors that callers get, and their effect on the breaker.
func TestErrors(t *testing.T) {
	unset := op("k")
	unset.Rule = headgate.Limit{}.Rule()
	negative := op("k")
	negative.Cost = -1
	for _, tt := range []struct {
		name  string
		op    store.Op
		inner error
		want  error
		asked int64
		fails uint64
	}{
		{"broken", op("k"), errBroken, store.ErrUnavailable, 1, 1},
		{"broken keeps its cause", op("k"), errBroken, errBroken, 1, 1},
		{"closed", op("k"), store.ErrClosed, store.ErrClosed, 1, 1},
		{"cross slot", op("k"), store.ErrCrossSlot, store.ErrCrossSlot, 1, 0},
		{"unset limit", unset, nil, store.ErrInvalidLimit, 0, 0},
		{"negative cost", negative, nil, store.ErrInvalidCost, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, do := range []bool{false, true} {
				f := &fake{answer: func(store.Op) (store.Decision, error) { return store.Decision{}, tt.inner }}
				s := failsafe.New(f, failsafe.Options{})
				var err error
				if do {
					err = store.ExecuteAll(t.Context(), s, []store.Op{tt.op}, make([]store.Decision, 1), store.Independent)
				} else {
					_, err = store.Execute(t.Context(), s, tt.op)
				}
				if !errors.Is(err, tt.want) {
					t.Errorf("do=%v: %v, want %v", do, err, tt.want)
				}
				if got := s.Stats().Failures; got != tt.fails || f.asked.Load() != tt.asked {
					t.Errorf("do=%v: %d failures, asked %d times", do, got, f.asked.Load())
				}
			}
		})
	}
	f := &fake{}
	s := failsafe.New(f, failsafe.Options{})
	if err := store.ExecuteAll(t.Context(), s, make([]store.Op, 2), make([]store.Decision, 1), store.Independent); err == nil {
		t.Error("out is too short, and nobody says so")
	}
	if err := s.Close(); err != nil || !f.closed {
		t.Errorf("Close: %v, %v", err, f.closed)
	}
}
