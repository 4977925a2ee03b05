package redis_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/grpclimit"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/rules/rulefile"
	"github.com/headgate/headgate/internal/testkit/redistest"
	"github.com/headgate/headgate/store/redis"
)

// A delayed refund of the library goes only to the Redis that has counted the take, not
// to one that has lost its data since: there it would come off what others have taken,
// and more than the limit would pass.
func TestRefundsToARedisThatLostItsData(t *testing.T) {
	server := redistest.Standalone(t)
	o := redis.Options{Addresses: []string{server.Addr}, Timeout: patient}
	flush := func() { server.Do("FLUSHALL") }
	restart := func() {
		server.Kill()
		server.Restart() // it has no persistence
	}
	for _, loss := range []struct {
		name   string
		before func()
		do     func()
		lost   bool
	}{
		{"kept", func() {}, func() {}, false},
		{"FLUSHALL", func() {}, flush, true},
		{"restart", func() {}, restart, true},
		{"restart with older data", func() { server.Do("SAVE") }, restart, true},
	} {
		for _, algorithm := range []headgate.Algorithm{headgate.TokenBucket, headgate.FixedWindow, headgate.SlidingLog, headgate.SlidingWindow} {
			t.Run(loss.name+" "+algorithm.String(), func(t *testing.T) {
				limiter := headgate.New(warm(t, o))
				limit := headgate.PerHour(10).Using(algorithm)
				for _, path := range []string{"Reservation", "httplimit"} {
					s := slow{limiter, limit, loss.name + algorithm.String() + path, path}
					loss.before()
					refund := s.take(t)
					loss.do()
					if loss.lost {
						s.take(t) // otherwise the data is not lost
					}
					if err := refund(); err != nil {
						t.Logf("%s: %v", path, err) // a connection may have ended
					}
					// A bucket refills by one in six minutes.
					if s.passes(t) == loss.lost {
						t.Errorf("%s: lost %t, and then another 9 pass or not", path, loss.lost)
					}
					// Takes from now on are refunded again, once the last connection to
					// the old server has ended.
					for began, given := time.Now(), !loss.lost; !given; given = s.passes(t) {
						if time.Since(began) > patient {
							t.Fatalf("%s: not given back any more", path)
						}
						if err := limiter.Reset(t.Context(), s.key, limit); err == nil {
							_ = s.take(t)()
						}
					}
				}
			})
		}
	}
}

// warm returns a store that has made all the connections that it needs.
func warm(t *testing.T, o redis.Options) headgate.Store {
	t.Helper()
	store := open(t, o)
	op := headgate.Op{Key: "warm", Limit: headgate.PerHour(1), Kind: headgate.Peek}
	for began, n := time.Now(), 0; n < 200; n++ { // each uses one of a few, at random
		if _, err := store.Take(t.Context(), op); err != nil {
			if n = 0; time.Since(began) > 3*patient {
				t.Fatal(err)
			}
		}
	}
	return store
}

// slow makes requests that take 10 and return it some time later.
type slow struct {
	limiter   *headgate.Limiter
	limit     headgate.Limit
	key, path string
}

// passes reports whether 9 more would pass.
func (s *slow) passes(t *testing.T) bool {
	t.Helper()
	for {
		switch d, err := s.limiter.Peek(t.Context(), s.key, s.limit, 9); {
		case err == nil:
			return d.Allowed
		case t.Context().Err() != nil:
			t.Fatal(err)
		}
	}
}

// take makes a request and returns a function that refunds it.
func (s *slow) take(t *testing.T) (giveBack func() error) {
	t.Helper()
	for began := time.Now(); time.Since(began) < patient; {
		if s.path == "Reservation" {
			r, err := s.limiter.Reserve(t.Context(), s.key, s.limit, 10, 0)
			switch {
			case err != nil: // the server is not back yet
			case !r.OK():
				t.Fatalf("%+v", r.Decision)
			default:
				return func() error { return r.Cancel(context.Background()) }
			}
			continue
		}
		var err error
		gate := httplimit.NewGate(s.limiter, s.limit, httplimit.RefundIf(http.StatusNotFound),
			httplimit.By(func(*http.Request) (string, bool) { return s.key, true }),
			httplimit.Cost(func(*http.Request) int64 { return 10 }),
			httplimit.OnError(func(_ *http.Request, e error) { err = e }))
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
		pass, ok := gate.Enter(t.Context(), httptest.NewRecorder(), r)
		switch {
		case err != nil:
		case !ok:
			t.Fatal("refused")
		default:
			return func() error {
				pass.Leave(http.StatusNotFound)
				return err
			}
		}
	}
	t.Fatal("no answer")
	return nil
}

// In a cluster, a primary that is flushed while it keeps running goes unnoticed:
// refunds then return as much as was taken, and no more.
func TestRefundsToAClusterThatLostItsData(t *testing.T) {
	set := redistest.Cluster(t)
	limiter := headgate.New(warm(t, redis.Options{Addresses: set.Addrs(), Mode: redis.Cluster, Timeout: patient}))
	limit := headgate.PerHour(10).Using(headgate.SlidingLog)
	take := func(n int64) headgate.Reservation {
		r, err := limiter.Reserve(t.Context(), "warm", limit, n, 0)
		if err != nil || !r.OK() {
			t.Fatalf("%+v, %v", r.Decision, err)
		}
		return r
	}
	early := take(4)
	for _, p := range set.Primaries {
		p.Do("FLUSHALL")
	}
	take(10)
	if err := early.Cancel(t.Context()); err != nil {
		t.Error(err)
	}
	if d, err := limiter.Peek(t.Context(), "warm", limit, 1); err != nil || d.Remaining > 4 {
		t.Errorf("%d left, %v", d.Remaining, err)
	}
}

// A request that gives up waiting for its turn releases its slot in the Redis that has
// it, but not in one that has lost its data since.
func TestPlacesInARedisThatLostItsData(t *testing.T) {
	server := redistest.Standalone(t)
	o := redis.Options{Addresses: []string{server.Addr}, Timeout: patient}
	limit := headgate.PerHour(10).Using(headgate.LeakyBucket)
	for path, wait := range map[string]func(*testing.T, headgate.Store) (string, func()){
		"grpclimit": func(t *testing.T, store headgate.Store) (string, func()) {
			return "", waitInGRPC(t, headgate.New(store), limit)
		},
		"delay": waitInEngine,
	} {
		for _, lost := range []bool{false, true} {
			t.Run(fmt.Sprint(path, " lost ", lost), func(t *testing.T) {
				store := warm(t, o)
				limiter := headgate.New(store)
				scope, giveUp := wait(t, store)
				took := headgate.Op{Key: "one", Scope: scope, Limit: limit}
				if lost {
					server.Do("FLUSHALL")
					took.Kind, took.Cost = headgate.Charge, 10
					if _, err := limiter.Do(t.Context(), took); err != nil {
						t.Fatal(err)
					}
				}
				giveUp()
				took.Kind, took.Cost = headgate.Peek, 1
				d, err := limiter.Do(t.Context(), took)
				if want := map[bool]int64{false: 9, true: 0}[lost]; err != nil || d.Remaining != want {
					t.Errorf("%d places left, want %d: %v", d.Remaining, want, err)
				}
				took.Kind = headgate.Reset
				if _, err := limiter.Do(t.Context(), took); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// waitInGRPC makes a call that takes 1, and one that takes 4 and waits, and returns a
// function that gives that one up.
func waitInGRPC(t *testing.T, limiter *headgate.Limiter, limit headgate.Limit) (giveUp func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	for _, cost := range []int64{1, 4} {
		call := grpclimit.UnaryServer(limiter, limit,
			grpclimit.By(func(*grpclimit.Call) (string, bool) { return "one", true }),
			grpclimit.Cost(func(*grpclimit.Call) int64 { return cost }))
		next := func(context.Context, any) (any, error) { return nil, nil }
		if cost == 1 {
			if _, err := call(ctx, nil, &grpc.UnaryServerInfo{}, next); err != nil {
				t.Fatal(err)
			}
			continue
		}
		go func() {
			defer close(done)
			_, _ = call(ctx, nil, &grpc.UnaryServerInfo{}, next)
		}()
	}
	for left := int64(10); left > 5; { // it waits once it has taken its slot
		d, err := limiter.Peek(t.Context(), "one", limit, 1)
		if left = d.Remaining; err != nil {
			t.Fatal(err)
		}
	}
	return func() {
		cancel()
		<-done
	}
}

// waitInEngine does the same under a rule, and also returns its scope.
func waitInEngine(t *testing.T, store headgate.Store) (scope string, giveUp func()) {
	t.Helper()
	rs, diagnostics := rulefile.Parse(rulefile.Source{Name: "test.yaml", Data: []byte(`
domain: api
limits:
  - {name: queue, key: [user], rate: 10/hour, algorithm: leaky_bucket, on_limit: {action: delay, max_wait: 1h}}
`)})
	if rs == nil {
		t.Fatal(diagnostics)
	}
	e := engine.New(store, rs)
	for _, cost := range []int64{1, 4} {
		began := time.Now()
		v, err := e.Again(t.Context(), "api", []engine.Claim{{Rule: "queue", Key: "one", Cost: cost}}, began.UnixMicro())
		if err != nil || !v.Allowed || v.Delay > 0 != (cost == 4) {
			t.Fatalf("%+v, %v", v, err)
		}
		giveUp = func() {
			if err := e.Undo(t.Context(), &v, time.Now().UnixMicro()); err != nil {
				t.Error(err)
			}
		}
	}
	return rs.Rule("api", "queue").Scope, giveUp
}

// The answer of a refund that the store ignores, because it may have lost the take, says
// until when the take may still count.
func TestIgnoredRefundsSaySo(t *testing.T) {
	server := redistest.Standalone(t)
	s := warm(t, redis.Options{Addresses: []string{server.Addr}, Timeout: patient})
	op := headgate.Op{Key: "k", Limit: headgate.PerHour(10), Cost: 3}
	taken, err := s.Take(t.Context(), op)
	if err != nil {
		t.Fatal(err)
	}
	op.Kind, op.Cost, op.CountsUntil = headgate.Refund, 1, taken.CountsUntil
	for _, row := range []struct {
		age  time.Duration
		want int64
	}{{time.Hour, taken.CountsUntil}, {time.Nanosecond, 0}} {
		op.Age = row.age
		one, err := s.Take(t.Context(), op)
		if err != nil {
			t.Fatal(err)
		}
		out := make([]headgate.Decision, 1)
		if err := s.Do(t.Context(), []headgate.Op{op}, out, headgate.Independent); err != nil {
			t.Fatal(err)
		}
		if one.CountsUntil != row.want || out[0].CountsUntil != row.want {
			t.Errorf("taken %s ago: alone %d, in a batch %d, want %d", row.age, one.CountsUntil, out[0].CountsUntil, row.want)
		}
	}
}
