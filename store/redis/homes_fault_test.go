package redis_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testkit/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/blocks"
	"github.com/headgate/headgate/store/failsafe"
	"github.com/headgate/headgate/store/homes"
	"github.com/headgate/headgate/store/redis"
)

// overseas is eu, which counts limits for us and ap, 80 ms away. Each has a Redis, and two
// processes.
type overseas struct {
	*testing.T
	cables  map[string]*redistest.Proxy // to eu, from us and ap
	stores  map[string][]store.Store
	allowed atomic.Int64
	failed  atomic.Int64
	asked   atomic.Int64 // calls from us and ap to eu
	paced   bool
	mine    map[string]*atomic.Int64 // allowed, by region
}

// farStore counts the calls.
type farStore struct {
	*redis.Store
	asked *atomic.Int64
}

func (s farStore) Do(ctx context.Context, b *store.Batch) {
	b.Each(func(ops []store.Op, out []store.Decision, mode store.Mode) error {
		s.asked.Add(1)
		return store.ExecuteAll(ctx, s.Store, ops, out, mode)
	})
}

func newOverseas(t *testing.T, timeout time.Duration) *overseas {
	t.Helper()
	o := &overseas{T: t, cables: map[string]*redistest.Proxy{}, stores: map[string][]store.Store{}, mine: map[string]*atomic.Int64{}}
	eu := redistest.Standalone(t)
	for _, name := range []string{"eu", "us", "ap"} {
		own := eu
		o.mine[name] = new(atomic.Int64)
		if name != "eu" {
			own = redistest.Standalone(t)
			o.cables[name] = redistest.NewProxy(t, eu.Addr)
			o.cables[name].Delay(80 * time.Millisecond)
		}
		for range 2 {
			all := homes.Options{Region: name, Homes: map[string]store.Store{}}
			if name != "eu" {
				far := farStore{open(t, redis.Options{Addresses: []string{o.cables[name].Addr}, Timeout: timeout}), &o.asked}
				all.Homes["eu"] = blocks.New(failsafe.New(far, failsafe.Options{Timeout: timeout}), blocks.Options{})
			}
			here := failsafe.New(open(t, redis.Options{Addresses: []string{own.Addr}, Timeout: patient}), failsafe.Options{Timeout: patient})
			s, err := homes.New(blocks.New(here, blocks.Options{}), all)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Close() })
			o.stores[name] = append(o.stores[name], s)
		}
	}
	return o
}

// load sends requests from all processes of regions, by n callers each, until stop is
// closed or all callers are refused.
func (o *overseas) load(n int, limit headgate.Limit, stop chan struct{}, regions ...string) {
	var wait sync.WaitGroup
	for _, name := range regions {
		for _, s := range o.stores[name] {
			for range n {
				wait.Go(func() { o.call(name, s, limit, stop) })
			}
		}
	}
	wait.Wait()
}

func (o *overseas) call(name string, s store.Store, limit headgate.Limit, stop chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		d, err := store.Execute(context.Background(), s, store.Op{Key: "k", Scope: "api/rule", Rule: limit.Rule(), Cost: 1})
		switch {
		case errors.Is(err, store.ErrUnavailable):
			o.failed.Add(1)
			time.Sleep(10 * time.Millisecond)
		case err != nil:
			o.Error(err)
			return
		case !d.Allowed:
			return
		default:
			o.allowed.Add(1)
			o.mine[name].Add(1)
			if o.paced && name == "eu" { // which is so near that it would use up all
				time.Sleep(100 * time.Millisecond)
			}
		}
	}
}

// TestHomeCountsExactly: from three regions at once, exactly the limit is admitted.
func TestHomeCountsExactly(t *testing.T) {
	t.Parallel()
	per := headgate.LimitOf(headgate.PerDay(300).Rule().InRegions(store.Regions{Home: "eu"}))
	for name, limit := range map[string]headgate.Limit{
		"sliding_log": per.WithAlgorithm(store.SlidingLog), "fixed_window": per.WithAlgorithm(store.FixedWindow),
		"in blocks":     headgate.LimitOf(per.WithAlgorithm(store.FixedWindow).Rule().InBlocks(store.Blocks{MaxAge: time.Second, MaxOver: 0.05})),
		"first request": per.WithAlgorithm(store.FixedWindow).WithAnchor(store.AnchorFirstRequest), "count_denied": per.WithAlgorithm(store.SlidingLog).WithRefusalsCounted(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOverseas(t, patient)
			o.paced = true
			began := time.Now()
			o.load(5, limit, nil, "eu", "us", "ap")
			if got := o.allowed.Load(); got != limit.N() || o.failed.Load() > 0 {
				t.Errorf("%d of %d were admitted, %d failed", got, limit.N(), o.failed.Load())
			}
			for name, n := range o.mine {
				if n.Load() == 0 {
					t.Errorf("%s took nothing", name)
				}
			}
			t.Logf("%d admitted in %.1f s: eu %d, us %d, ap %d", o.allowed.Load(), time.Since(began).Seconds(), o.mine["eu"].Load(), o.mine["us"].Load(), o.mine["ap"].Load())
		})
	}
}

// TestHomeIsCutOffAndHeals: meanwhile eu counts on, the others fail fast, and afterwards
// they count together again; never is more admitted than the limit.
func TestHomeIsCutOffAndHeals(t *testing.T) {
	t.Parallel()
	const n = 20_000
	limit := headgate.LimitOf(headgate.PerDay(n).WithAlgorithm(store.SlidingLog).Rule().InRegions(store.Regions{Home: "eu"}))
	o := newOverseas(t, time.Second)
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() { defer close(done); o.load(5, limit, stop, "us", "ap") }()
	await := func(what string, ok func() bool) {
		t.Helper()
		for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal(what)
			}
		}
	}
	await("nothing is admitted", func() bool { return o.allowed.Load() > 100 })
	for _, c := range o.cables {
		c.Cut()
	}
	await("nothing fails", func() bool { return o.failed.Load() > 100 })
	before := o.allowed.Load()
	began := time.Now()
	_, err := store.Execute(t.Context(), o.stores["us"][0], store.Op{Key: "k", Scope: "api/rule", Rule: limit.Rule(), Cost: 1})
	if took := time.Since(began); err == nil || took > comeback { // a second, or forever
		t.Errorf("cut off: %v after %s", err, took)
	}
	if d, err := store.Execute(t.Context(), o.stores["us"][0], store.Op{Key: "k", Rule: headgate.PerDay(9).Rule(), Cost: 1}); err != nil || !d.Allowed {
		t.Errorf("a limit of us: %v, %v", d, err)
	}
	for _, c := range o.cables {
		c.Heal()
	}
	await("it does not heal", func() bool { return o.allowed.Load() > before+100 })
	close(stop)
	<-done
	o.load(20, limit, nil, "eu")
	got := o.allowed.Load()
	if got > n || got < n-o.failed.Load() { // a request that failed may have counted
		t.Errorf("%d of %d were admitted, %d failed", got, n, o.failed.Load())
	}
	t.Logf("%d of %d admitted, %d failed", got, n, o.failed.Load())
}

// TestBlocksSpareTheOcean: nearly all decisions of a busy key need no round trip. (That
// they do not wait for one either is tested in a bubble: store/blocks, TestBlocksOutlastAStall.)
func TestBlocksSpareTheOcean(t *testing.T) {
	t.Parallel()
	limit := headgate.LimitOf(headgate.PerMinute(600_000).WithAlgorithm(store.FixedWindow).Rule().InRegions(store.Regions{Home: "eu"}).InBlocks(store.Blocks{MaxAge: time.Second, MaxOver: 0.05}))
	o := newOverseas(t, time.Second)
	s := o.stores["us"][0]
	var all sync.WaitGroup
	decide := func(n int) {
		for range n {
			all.Go(func() {
				d, err := store.Execute(t.Context(), s, store.Op{Key: "k", Scope: "api/rule", Rule: limit.Rule(), Cost: 1})
				if err != nil || !d.Allowed {
					t.Errorf("%+v, %v", d, err)
				}
			})
			wait(time.Millisecond)
		}
		all.Wait()
	}
	decide(1000) // connects, loads scripts and draws
	const n = 2000
	before := o.asked.Load()
	decide(n)
	if asked := o.asked.Load() - before; asked > n/10 { // 1% on an idle machine
		t.Errorf("%d decisions took %d calls", n, asked)
	} else {
		t.Logf("%d decisions took %d calls", n, asked)
	}
}
