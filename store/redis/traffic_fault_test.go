package redis_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/failsafe"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/redis"
)

const (
	// deadline is the timeout of the stores under test.
	deadline = failsafe.DefaultTimeout
	// never is a period in which nothing refills during a test.
	never = 400 * 24 * time.Hour
	// comeback is how soon after the fault everything must have recovered.
	comeback = 15 * time.Second
)

// openFailsafe returns a store on redis wrapped in failsafe, with the default deadline
// and probes: docs/run/failure.md describes the results.
func openFailsafe(t *testing.T, o redis.Options, changed func(failsafe.Change)) *failsafe.Store {
	t.Helper()
	o.Timeout = deadline
	inner, err := redis.New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	s := failsafe.New(inner, failsafe.Options{
		Timeout:   deadline,
		DenyCache: failsafe.DenyCache{Entries: 1024},
		OnChange:  changed,
	})
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// tally counts the answers to callers.
type tally struct {
	allowed, refused map[store.Reason]int
	// errs is the number of answers with an error.
	errs int
	// inRow is the number of answers without an error since the last one with.
	inRow int
	// slowest is the longest wait of any caller.
	slowest time.Duration
	// earlier is how many calls were allowed by the store that had started before the
	// tally; it says nothing else about them.
	earlier int
}

func newTally() tally {
	return tally{allowed: make(map[store.Reason]int), refused: make(map[store.Reason]int)}
}

func (a tally) String() string {
	return fmt.Sprintf("allowed %v, refused %v, %d errors, slowest %s", a.allowed, a.refused, a.errs, a.slowest)
}

// crowd sends requests for one limit repeatedly from several goroutines.
type crowd struct {
	t       *testing.T
	name    string
	limiter *headgate.Limiter
	limit   headgate.Limit
	keys    []string

	mu    sync.Mutex
	tally tally
	since time.Time // when the tally started
}

// run sends requests until ctx is done, each worker every two milliseconds.
func (c *crowd) run(ctx context.Context, group *sync.WaitGroup) {
	c.seen()
	for w := range 4 {
		group.Go(func() {
			tick := time.NewTicker(2 * time.Millisecond)
			defer tick.Stop()
			for i := w; ; i++ {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				}
				c.ask(c.keys[i%len(c.keys)])
			}
		})
	}
}

func (c *crowd) ask(key string) {
	begin := time.Now()
	d, err := c.limiter.Allow(context.Background(), key, c.limit)
	took := time.Since(begin)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case begin.Before(c.since) && d.Allowed && err == nil:
		c.tally.earlier++
	case begin.Before(c.since):
	case d.Allowed:
		c.tally.allowed[d.Reason]++
	default:
		c.tally.refused[d.Reason]++
	}
	c.tally.slowest = max(c.tally.slowest, took)
	c.tally.inRow++
	if err != nil {
		c.tally.errs, c.tally.inRow = c.tally.errs+1, 0
		if !errors.Is(err, store.ErrUnavailable) {
			c.t.Errorf("%s: the error is none of ours: %v", c.name, err)
		}
	}
	degraded := d.Reason == store.ReasonFailOpen || d.Reason == store.ReasonFailClosed || d.Reason == store.ReasonFallback
	if degraded != (err != nil) {
		c.t.Errorf("%s: reason %s with error %v", c.name, d.Reason, err)
	}
}

// seen returns the tally so far and starts a new one.
func (c *crowd) seen() tally {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.tally
	c.tally, c.since = newTally(), time.Now()
	return old
}

// until waits until the tally is as it should be.
func (c *crowd) until(what string, is func(tally) bool) {
	c.t.Helper()
	for began := time.Now(); ; wait(time.Millisecond) {
		c.mu.Lock()
		done, now := is(c.tally), c.tally.String()
		c.mu.Unlock()
		if done {
			return
		}
		if time.Since(began) > comeback {
			c.t.Fatalf("%s: not %s after %s: %s", c.name, what, comeback, now)
		}
	}
}

// well reports whether the last n answers came without an error.
func (c *crowd) well(n int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tally.inRow >= n
}

// drain takes what is left of every key and returns how much it was.
func (c *crowd) drain(o redis.Options) int {
	c.t.Helper()
	total := 0
	for _, key := range c.keys {
		total += drain(c.t, o, key, c.limit)
	}
	return total
}

// drain takes what is left of a key and returns how much it was. It has a long timeout,
// so as not to lose what a call has taken.
func drain(t *testing.T, o redis.Options, key string, limit headgate.Limit) int {
	t.Helper()
	o.Timeout = patient
	db := open(t, o)
	await(t, db, store.Op{Key: key, Rule: limit.Rule(), Kind: store.KindPeek, Cost: 1})
	limiter := headgate.New(db)
	for total := int64(0); ; {
		d, err := limiter.AllowUpTo(t.Context(), key, limit, limit.N())
		if err != nil {
			t.Fatalf("draining %s: %v", key, err)
		}
		if !d.Allowed {
			return int(total)
		}
		total += d.Granted
	}
}

// policies returns a crowd for each failure policy, all on one store. keys returns the
// keys of one crowd.
func policies(t *testing.T, store store.Store, keys func(name string) []string) (allow, deny, local *crowd) {
	t.Helper()
	limit := headgate.Per(4000, never)
	with := func(name string, options ...headgate.Option) *crowd {
		return &crowd{t: t, name: name, limit: limit, keys: keys(name), limiter: headgate.New(store, options...)}
	}
	return with("allow"), with("deny", headgate.WithFailurePolicy(headgate.FailClosed)),
		with("local", headgate.WithFallback(memory.New(), 0.05), headgate.WithFailurePolicy(headgate.FailClosed))
}

// named returns one key for each crowd.
func named(key string) func(string) []string {
	return func(name string) []string { return []string{key + " " + name} }
}

// lag measures how late this machine runs goroutines, which no deadline can compensate.
type lag struct {
	mu    sync.Mutex
	worst time.Duration
}

func (l *lag) run(ctx context.Context, group *sync.WaitGroup) {
	group.Go(func() {
		for ctx.Err() == nil {
			begin := time.Now()
			timer := time.NewTimer(time.Millisecond)
			<-timer.C
			late := time.Since(begin) - time.Millisecond
			l.mu.Lock()
			l.worst = max(l.worst, late)
			l.mu.Unlock()
		}
	})
}

// latest returns the longest that a call may have taken: its deadline plus the lag of
// the machine. The sample of one goroutine is only an estimate: another thread may have
// been slower, and an answer passes through several. Anything a call must not wait for,
// such as a silent server or a closing connection, takes a second or more.
func (l *lag) latest() time.Duration {
	return deadline + 800*time.Millisecond + 10*l.late()
}

// late returns the largest lag so far.
func (l *lag) late() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.worst
}

// busy reports whether the lag is so large that a healthy server may have missed the
// deadline.
func (l *lag) busy() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.worst > deadline/5
}

// wait lets traffic run for a while, on the real clock, like the servers.
func wait(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
}

// recovered waits until the store answers all crowds again, and returns how long that
// took.
func recovered(t *testing.T, crowds ...*crowd) time.Duration {
	t.Helper()
	begin := time.Now()
	for _, c := range crowds {
		for !c.well(50) {
			if time.Since(begin) > comeback {
				t.Fatalf("%s: not well %s after the fault: %s", c.name, comeback, c.seen())
			}
			wait(time.Millisecond)
		}
	}
	return time.Since(begin)
}

// changes collects the changes of the breaker.
type changes struct {
	mu   sync.Mutex
	list []failsafe.State
	errs []error
}

func (c *changes) add(change failsafe.Change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = append(c.list, change.State)
	c.errs = append(c.errs, change.Err)
}

// open reports whether the breaker is open.
func (c *changes) open() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.list) > 0 && c.list[len(c.list)-1] != failsafe.Closed
}

// check requires that each change differs from the previous one, and that the breaker
// closes if the store is called. It returns the number of changes.
func (c *changes) check(t *testing.T, db store.Store) int {
	t.Helper()
	// A busy machine may have opened it again at the last moment.
	for began := time.Now(); c.open() && time.Since(began) < comeback; wait(time.Millisecond) {
		_, _ = store.Execute(t.Context(), db, one)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	state := failsafe.Closed
	for _, next := range c.list {
		if next == state {
			t.Errorf("changes: %v", c.list)
		}
		state = next
	}
	if state != failsafe.Closed {
		t.Errorf("the breaker is still %s", state)
	}
	return len(c.list)
}
