package redis_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testkit/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redis"
)

// TestFaults breaks one server, and the connection to it, during traffic under all
// three policies.
func TestFaults(t *testing.T) {
	// Data that the server has acknowledged survives its death: it has been passed to
	// the kernel by then.
	server := redistest.Standalone(t, "--appendonly", "yes", "--appendfsync", "no")
	for _, tt := range []struct {
		name   string
		begin  func(*redistest.Proxy)
		end    func(*redistest.Proxy)
		effect effect
	}{
		{"cut", (*redistest.Proxy).Cut, (*redistest.Proxy).Heal, outage},
		{"stalled wire", (*redistest.Proxy).Stall, (*redistest.Proxy).Heal, outage},
		{"too slow", func(p *redistest.Proxy) { p.Delay(200 * time.Millisecond) }, (*redistest.Proxy).Heal, outage},
		{"stopped server", func(*redistest.Proxy) { server.Pause() }, func(*redistest.Proxy) { server.Resume() }, outage},
		{"killed server", func(*redistest.Proxy) { server.Kill() }, func(*redistest.Proxy) { server.Restart() }, outage},
		{"reset", (*redistest.Proxy).Reset, (*redistest.Proxy).Heal, hiccup},
		{"half open", (*redistest.Proxy).HalfOpen, (*redistest.Proxy).Heal, hiccup},
		{"slow", func(p *redistest.Proxy) { p.Delay(5 * time.Millisecond) }, (*redistest.Proxy).Heal, harmless},
	} {
		t.Run(tt.name, func(t *testing.T) {
			proxy := redistest.NewProxy(t, server.Addr)
			var log changes
			db := openFailsafe(t, redis.Options{Addresses: []string{proxy.Addr}}, log.add)
			allow, deny, local := policies(t, db, named(tt.name))
			crowds := []*crowd{allow, deny, local}

			ctx, stop := context.WithCancel(t.Context())
			var group sync.WaitGroup
			defer group.Wait()
			defer stop()
			var machine lag
			machine.run(ctx, &group)
			for _, c := range crowds {
				c.run(ctx, &group)
			}
			wait(150 * time.Millisecond)
			recovered(t, crowds...) // or rather: it has begun
			admitted, failed, slowest := make([]int, 3), make([]int, 3), time.Duration(0)
			note := func(i int, seen tally) {
				admitted[i] += seen.allowed[store.ReasonOK] + seen.earlier
				failed[i] += seen.errs
				slowest = max(slowest, seen.slowest)
			}
			for i, c := range crowds {
				note(i, c.seen())
			}
			tt.begin(proxy)
			wait(3 * deadline)
			for i, c := range crowds { // a deadline and the opening of the breaker
				note(i, c.seen())
			}
			wait(350 * time.Millisecond)
			tt.effect.await(&log, crowds)
			for i, c := range crowds {
				during := c.seen()
				note(i, during)
				tt.effect.check(t, c, during, machine.busy())
				t.Logf("%s, during: %s", c.name, during)
			}
			tt.end(proxy)
			took := recovered(t, crowds...)
			stop()
			group.Wait()
			for i, c := range crowds {
				note(i, c.seen())
				admitted[i] += c.drain(redis.Options{Addresses: []string{server.Addr}})
				// Takes of failed calls are lost; nothing is taken twice.
				limit := int(c.limit.N())
				if admitted[i] > limit || admitted[i] < limit-failed[i] {
					t.Errorf("%s: the store admitted %d of %d, and %d calls failed", c.name, admitted[i], limit, failed[i])
				}
			}
			opened := log.check(t, db) / 2
			if opened == 0 && tt.effect == outage {
				t.Error("the breaker did not open")
			}
			if slowest > machine.latest() {
				t.Errorf("somebody waited %s; the deadline is %s, the machine was up to %s late", slowest, deadline, machine.late())
			}
			t.Logf("recovered in %s, breaker opened %d times, slowest call %s, machine %s late, failed %v",
				took, opened, slowest, machine.late(), failed)
		})
	}
}

// effect is the effect of a fault on callers.
type effect int

const (
	harmless effect = iota
	// hiccup: some calls fail, then the fault ends without help.
	hiccup
	// outage: every call fails until the fault ends.
	outage
)

// await waits until an outage affects all callers: the breaker is open, and the local
// share is used up, which takes longer on a busy machine.
func (e effect) await(log *changes, crowds []*crowd) {
	if e != outage {
		return
	}
	for _, c := range crowds {
		c.t.Helper()
		c.until("an outage", func(now tally) bool {
			return log.open() && now.errs > 0 && (c.name != "local" || now.refused[store.ReasonFallback] > 0)
		})
	}
}

// check checks the answers to callers during the fault. A busy machine misses deadlines
// for no other reason.
func (e effect) check(t *testing.T, c *crowd, during tally, busy bool) {
	t.Helper()
	switch e {
	case harmless:
		if during.errs*10 > during.allowed[store.ReasonOK] && !busy {
			t.Errorf("%s: %s", c.name, during)
		}
		return
	case hiccup:
		return
	case outage:
	}
	if during.allowed[store.ReasonOK] != 0 || during.errs == 0 {
		t.Errorf("%s: not an outage: %s", c.name, during)
	}
	switch c.name {
	case "allow":
		if len(during.refused) != 0 {
			t.Errorf("allow: %s", during)
		}
	case "deny":
		if len(during.allowed) != 0 {
			t.Errorf("deny: %s", during)
		}
	case "local":
		if share := int(headgate.LimitOf(c.limit.Rule().Share(0.05)).N()); during.allowed[store.ReasonFallback] > share || during.refused[store.ReasonFallback] == 0 {
			t.Errorf("local, a share of %d: %s", share, during)
		}
	}
}

// TestServerThatMayNotWrite: a primary that was made a replica refuses every write;
// this is a failure like any other, and ends when it may write again. Nothing is
// counted in between.
func TestServerThatMayNotWrite(t *testing.T) {
	server := redistest.Standalone(t)
	db := open(t, redis.Options{Addresses: []string{server.Addr}, Timeout: patient})
	take(t, db, one)
	server.Do("REPLICAOF", "127.0.0.1", "1")
	for range 20 {
		if _, err := store.Execute(t.Context(), db, one); !errors.Is(err, store.ErrUnavailable) {
			t.Fatalf("a replica took: %v", err)
		}
	}
	server.Do("REPLICAOF", "NO", "ONE")
	await(t, db, store.Op{Key: "other", Rule: headgate.PerHour(1000).Rule(), Cost: 1})
	if d := take(t, db, one); d.Remaining != 1 {
		t.Errorf("%+v, want one left of three", d)
	}
}

// TestFlappingWire: a connection that comes and goes loses some answers, but no counts.
func TestFlappingWire(t *testing.T) {
	server := redistest.Standalone(t)
	proxy := redistest.NewProxy(t, server.Addr)
	db := openFailsafe(t, redis.Options{Addresses: []string{proxy.Addr}}, nil)
	op := store.Op{Key: "k", Rule: headgate.PerDay(1_000_000).WithAlgorithm(store.FixedWindow).Rule(), Cost: 1}
	counted, unknown := int64(0), int64(0)
	for range 20 {
		proxy.Cut()
		for range 20 {
			if _, err := store.Execute(t.Context(), db, op); err == nil {
				counted++
			} else {
				unknown++
			}
		}
		proxy.Heal()
		for range 20 {
			if _, err := store.Execute(t.Context(), db, op); err == nil {
				counted++
			} else {
				unknown++
			}
		}
	}
	direct := open(t, redis.Options{Addresses: []string{server.Addr}, Timeout: patient})
	op.Kind, op.Cost = store.KindPeek, 0
	if n := 1_000_000 - take(t, direct, op).Remaining; n < counted || n > counted+unknown {
		t.Errorf("%d counted, %d answered and %d not", n, counted, unknown)
	}
}
