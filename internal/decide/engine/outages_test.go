package engine_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

const localLeases = `
domain: api
limits:
  - {name: exports, match: {path: /exports}, key: [user], concurrency: 4, lease: 30s, on_store_error: {policy: local, share: 0.5}}
  - {name: tokens, match: {path: /llm}, key: [user], rate: 100/day, algorithm: fixed_window, on_store_error: {policy: local, share: 0.5}}
`

// Slots taken from memory while the store was down stay in memory: they are renewed and
// released there, even when the store answers again.
func TestLeasesOfTheFallback(t *testing.T) {
	store, local := &counted{Store: memory.New()}, memory.New()
	e := engine.New(store, parse(t, localLeases), engine.WithFallback(local), engine.WithSecret(shared))
	take := func() (token string, allowed bool) {
		t.Helper()
		v, _ := e.Decide(t.Context(), query1("/exports", 0))
		defer v.Release()
		token, err := e.LeaseToken(t.Context(), &v)
		if err != nil {
			t.Fatal(err)
		}
		if leases := v.Leases(nil); v.Allowed && (len(leases) != 1 || leases[0].Local != store.down || leases[0].Count != 1) {
			t.Errorf("%+v", leases)
		}
		return token, v.Allowed
	}
	ofStore, _ := take()
	store.down = true
	first, _ := take()
	second, ok := take()
	if _, third := take(); !ok || third { // half of 4
		t.Errorf("a second place of memory's two: %t, and a third: %t", ok, third)
	}
	renewed, ending, err := e.RenewToken(t.Context(), first, at(1))
	if err != nil || ending != engine.Done || renewed == "" {
		t.Errorf("renewed as %q, %s, %v", renewed, ending, err)
	}
	if _, ending, err := e.RenewToken(t.Context(), ofStore, at(1)); ending != engine.Gone || !errors.Is(err, headgate.ErrUnavailable) {
		t.Errorf("the place of a store that is down: %s, %v", ending, err)
	}
	store.down = false
	for i, row := range []struct {
		token string
		want  engine.Ending
	}{{first, engine.Gone}, {renewed, engine.Done}, {renewed, engine.Gone}, {second, engine.Done}, {ofStore, engine.Done}} {
		if ending, err := e.ReleaseToken(t.Context(), row.token, at(2)); err != nil || ending != row.want {
			t.Errorf("release %d: %s, %v, want %s", i, ending, err, row.want)
		}
	}
	store.down = true
	for i := range 2 {
		if _, ok := take(); !ok {
			t.Errorf("place %d of memory's two is not free again", i+1)
		}
	}
	// They are unreachable for another process.
	alone := engine.New(store, parse(t, localLeases), engine.WithSecret(shared))
	if ending, err := alone.ReleaseToken(t.Context(), first, at(2)); ending != engine.Gone || err != nil {
		t.Errorf("without a fallback: %s, %v", ending, err)
	}
}

// ReleaseLeases and RenewLeases return how many leases there were.
func TestLeasesAreCounted(t *testing.T) {
	e := engine.New(memory.New(), parse(t, localLeases))
	var leases []engine.Lease
	for range 3 {
		v := decide(t, e, query1("/exports", 0))
		leases = v.Leases(leases)
		v.Release()
	}
	for i, want := range []int{3, 2} {
		if n, err := e.RenewLeases(t.Context(), leases, at(1)); n != want || err != nil {
			t.Errorf("%d were renewed, %v, want %d", n, err, want)
		}
		if n, err := e.ReleaseLeases(t.Context(), leases[:1], at(1)); n != 1-i || err != nil {
			t.Errorf("%d had not ended, %v", n, err)
		}
	}
}

// What a reservation took from memory while the store was down is settled in memory,
// once.
func TestReservationsOfTheFallback(t *testing.T) {
	for _, row := range []struct {
		cost   int64
		left   int64 // of memory's 50
		inDebt bool
	}{{40, 10, false}, {5, 45, false}, {20, 30, false}, {80, 0, true}} {
		db := &counted{Store: memory.New()}
		e := engine.New(db, parse(t, localLeases), engine.WithFallback(memory.New()))
		q := query1("/llm", 0)
		q.Cost = 20
		db.down = true
		v, token, err := e.Reserve(t.Context(), q, time.Minute)
		if !errors.Is(err, headgate.ErrUnavailable) || token == "" || v.Decision.Reason != headgate.ReasonFallback {
			t.Fatalf("%+v, %v", v.Decision, err)
		}
		db.down = false
		for i, want := range []engine.Ending{engine.Done, engine.Settled} {
			out, err := e.Commit(t.Context(), token, row.cost, at(1))
			if err != nil || out.Ending != want || i == 0 && out.InDebt != row.inDebt {
				t.Errorf("commit %d of %d: %+v, %v", i, row.cost, out, err)
			}
		}
		if n := left(t, e, "/llm", "tokens", 1); n != 100 {
			t.Errorf("the store has %d left of 100, and gave none", n)
		}
		db.down = true
		q.Kind, q.Cost = store.KindPeek, 1
		if v, _ := e.Decide(t.Context(), q); v.Decision.Remaining != row.left {
			t.Errorf("cost %d: memory has %d left, want %d", row.cost, v.Decision.Remaining, row.left)
		}
	}
}

const waiting = `
domain: api
limits:
  - {name: hidden, match: {path: /hidden}, key: [user], rate: 1/hour, on_limit: shadow_ban}
  - {name: shown, match: {path: /hidden}, key: [user], rate: 9/hour}
  - {name: user, match: {path: /two}, key: [user], rate: 9/hour}
  - {name: watched, match: {path: /two}, key: [user], rate: 9/hour, mode: shadow}
`

// A request that calls the store twice waits once; without a timeout it waits as long
// as the store takes.
func TestNobodyWaitsTwice(t *testing.T) {
	const timeout, slow = 50 * time.Millisecond, 30 * time.Millisecond
	two := engine.Query{Domain: "api", At: start, Parts: []engine.Part{take(request{"path": "/two", "user": "ann"})}}
	for _, row := range []struct {
		name    string
		timeout time.Duration
		ask     func(ctx context.Context, e *engine.Engine) error
		took    time.Duration
		fails   bool
	}{
		{"parts", timeout, func(ctx context.Context, e *engine.Engine) error { _, err := e.Decide(ctx, two); return err }, timeout, true},
		{"parts, no time-out", 0, func(ctx context.Context, e *engine.Engine) error { _, err := e.Decide(ctx, two); return err }, 2 * slow, false},
		{"one question about parts", 20 * time.Millisecond, func(ctx context.Context, e *engine.Engine) error {
			_, err := e.Decide(ctx, engine.Query{Domain: "api", At: start, Parts: []engine.Part{take(request{"path": "/hidden", "user": "bob"})}})
			return err
		}, slow, false}, // the store limits it itself
		{"a request, no time-out", 0, func(ctx context.Context, e *engine.Engine) error {
			_, err := e.Decide(ctx, query1("/two", 0))
			return err
		}, 2 * slow, false},
		{"a hidden refusal", timeout, askHidden, 2 * slow, false},
		{"a hidden refusal, no time-out", 0, askHidden, 2 * slow, false},
		{"explaining", 20 * time.Millisecond, askExplain, 20 * time.Millisecond, true},
		{"explaining, no time-out", 0, askExplain, slow, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &flaky{Store: memory.New()}
				e := engine.New(store, parse(t, waiting), engine.WithTimeout(row.timeout))
				decide(t, e, query1("/hidden", 0))
				store.slow = slow
				begin := time.Now()
				err := row.ask(t.Context(), e)
				if took := time.Since(begin); took != row.took || errors.Is(err, headgate.ErrUnavailable) != row.fails {
					t.Errorf("took %v, want %v; %v", took, row.took, err)
				}
			})
		})
	}
}

// Who hangs up, or leaves the store no time, is counted like others.
func TestWhoHangsUpIsCounted(t *testing.T) {
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancel := context.WithDeadline(t.Context(), time.Unix(1, 0))
	defer cancel()
	const text = `
domain: api
limits:
  - {name: login, match: {path: /login}, key: [user], rate: 3/hour}
  - {name: plain, match: {path: /plain}, key: [user], rate: 3/hour}
  - {name: watched, match: {path: /login}, key: [user], rate: 100/hour, mode: shadow}
`
	for name, row := range map[string]struct {
		ctx  context.Context
		path string
	}{"hung up": {gone, "/login"}, "no time": {late, "/login"}, "no time, one step": {late, "/plain"}} {
		e := engine.New(&flaky{Store: memory.New()}, parse(t, text), engine.WithTimeout(time.Second))
		for i := range 5 {
			v, err := e.Decide(row.ctx, query1(row.path, 0))
			if v.Allowed != (i < 3) || err != nil {
				t.Errorf("%s, request %d: allowed %t, %s, %v", name, i, v.Allowed, v.Decision.Reason, err)
			}
			v.Release()
		}
	}
}

func askHidden(ctx context.Context, e *engine.Engine) error {
	v, err := e.Decide(ctx, query1("/hidden", 1))
	if err == nil && v.Outcome() != engine.ShadowBanned {
		return errors.New("it is not banned")
	}
	return err
}

func askExplain(ctx context.Context, e *engine.Engine) error {
	_, err := e.Explain(ctx, engine.ExplainQuery{Domain: "api", Parts: []rules.Request{request{"path": "/two", "user": "ann"}}, Cost: 1, At: start})
	return err
}

// A request refused by hidden rules is disguised only if something was charged and the
// store answered.
func TestHiddenRefusalsThatAreNotDisguised(t *testing.T) {
	text := strings.ReplaceAll(waiting, "on_limit: shadow_ban", "on_limit: shadow_ban, on_store_error: {policy: local, share: 1}")
	db := &counted{Store: memory.New()}
	e := engine.New(db, parse(t, text), engine.WithFallback(memory.New()))
	for i, row := range []struct {
		kind  store.Kind
		down  bool
		calls int
		want  engine.Outcome
	}{
		{store.KindTake, false, 1, engine.Allowed},
		{store.KindPeek, false, 1, engine.ShadowBanned},
		{store.KindTake, false, 2, engine.ShadowBanned},
		{store.KindTake, true, 1, engine.Allowed}, // by memory
		{store.KindTake, true, 1, engine.ShadowBanned},
	} {
		q := query1("/hidden", 0)
		q.Kind = row.kind
		db.calls, db.down = 0, row.down
		v, err := e.Decide(t.Context(), q)
		if v.Outcome() != row.want || db.calls != row.calls || errors.Is(err, headgate.ErrUnavailable) != row.down {
			t.Errorf("row %d: %s, the store was asked %d times, %v; want %s, %d", i, v.Outcome(), db.calls, err, row.want, row.calls)
		}
		v.Release()
	}
}

// Rules that only observe have no answer when the store has failed.
func TestObservingWithoutAStore(t *testing.T) {
	store := &counted{Store: memory.New()}
	e := engine.New(store, parse(t, waiting))
	for range 2 { // the second reuses the memory of the first
		store.down = !store.down
		v, _ := e.Decide(t.Context(), query1("/two", 0))
		want := map[bool]headgate.Reason{true: headgate.ReasonFailOpen, false: headgate.ReasonOK}[store.down]
		for _, r := range v.Results() {
			if r.Decision.Reason != want || !r.Decision.Allowed || v.WouldRefuse != 0 {
				t.Errorf("%s: %+v, want %s", r.Rule.Name, r.Decision, want)
			}
		}
		v.Release()
	}
}

// Tokens of slots whose rules are gone, or no longer limit concurrency, are used up; no
// store is called for them.
func TestTokensOfRulesThatAreGone(t *testing.T) {
	store := &counted{Store: memory.New()}
	for name, text := range map[string]string{
		"gone":  "domain: api\nlimits: []\n",
		"rated": "domain: api\nlimits:\n  - {name: exports, match: {path: /exports}, key: [user], rate: 4/hour}\n",
	} {
		e := engine.New(store, parse(t, localLeases))
		v := decide(t, e, query1("/exports", 0))
		token, err := e.LeaseToken(t.Context(), &v)
		if err != nil || token == "" {
			t.Fatal(err)
		}
		v.Release()
		e.SetRules(parse(t, text))
		store.calls = 0
		if ending, err := e.ReleaseToken(t.Context(), token, 0); ending != engine.Gone || err != nil || store.calls != 0 {
			t.Errorf("%s: release: %s, %v, the store was asked %d times", name, ending, err, store.calls)
		}
		if _, ending, err := e.RenewToken(t.Context(), token, 0); ending != engine.Gone || err != nil || store.calls != 0 {
			t.Errorf("%s: renew: %s, %v, the store was asked %d times", name, ending, err, store.calls)
		}
	}
}

// cut is a store that can be cut off while it is in use.
type cut struct {
	store.Store
	off atomic.Bool
}

func (c *cut) Do(ctx context.Context, b *store.Batch) {
	if c.off.Load() {
		b.Fail(headgate.ErrUnavailable)
		return
	}
	c.Store.Do(ctx, b)
}

// A hold reports renewals that fail and slots taken by others, and silently takes a
// free one again; after Lapse it does nothing any more.
func TestHoldInAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const one = "domain: api\nlimits:\n  - {name: exports, match: {path: /exports}, key: [user], concurrency: 1, lease: 30s}\n"
		store := &cut{Store: memory.New()}
		e := engine.New(store, parse(t, one))
		failures := make(chan error, 9)
		note := func(err error) { failures <- err }
		// heard waits and returns what the hold has reported since the last call.
		heard := func(wait time.Duration) (all []error) {
			time.Sleep(wait)
			for synctest.Wait(); len(failures) > 0; {
				all = append(all, <-failures)
			}
			return all
		}
		enter := func(failed func(error)) *engine.Hold {
			q := query1("/exports", 0)
			q.At = time.Now().UnixMicro()
			v := decide(t, e, q)
			defer v.Release()
			return e.Hold(t.Context(), &v, engine.HoldOptions{Clock: time.Now, Failed: failed})
		}
		first := enter(note)
		store.off.Store(true)
		if all := heard(31 * time.Second); len(all) != 3 || !errors.Is(all[0], headgate.ErrUnavailable) {
			t.Fatalf("three renewals fail before the lease ends: %v", all)
		}
		store.off.Store(false)
		silent := enter(nil) // takes the slot
		if silent == nil {
			t.Fatal("the lease has not ended")
		}
		if all := heard(10 * time.Second); len(all) != 1 || errors.Is(all[0], headgate.ErrUnavailable) {
			t.Errorf("a place that is taken: %v", all)
		}
		silent.End()
		if all := heard(10 * time.Second); len(all) != 0 || enter(nil) != nil { // taken again
			t.Errorf("a place that is free: %v", all)
		}
		first.Lapse()
		first.Lapse()
		first.End() // does nothing
		if enter(nil) != nil {
			t.Error("a lapsed hold has given its place back")
		}
		heard(30 * time.Second)
		last := enter(nil)
		if last == nil {
			t.Error("the lease of a lapsed hold has not ended")
		}
		store.off.Store(true)
		heard(11 * time.Second) // fails without a callback
		last.Lapse()
		var none *engine.Hold
		none.Lapse()
	})
}

// A slot whose release met an outage is free soon after it, not when its lease ends: each
// release is tried again, those that the store has answered are not, and none after the
// lease.
func TestReleasesInAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const two = "domain: api\nlimits:\n  - {name: exports, match: {path: /exports}, key: [user], concurrency: 1, lease: 10m}\n  - {name: all, match: {path: /exports}, concurrency: 1, lease: 1h}\n"
		store := &cut{Store: memory.New()}
		calls := &counted{Store: store}
		e := engine.New(calls, parse(t, two))
		failed := 0
		enter := func() *engine.Hold {
			q := query1("/exports", 0)
			q.At = time.Now().UnixMicro()
			v := decide(t, e, q)
			defer v.Release()
			return e.Hold(t.Context(), &v, engine.HoldOptions{Clock: time.Now, Failed: func(error) { failed++ }})
		}
		for _, outage := range []time.Duration{40 * time.Millisecond, 900 * time.Millisecond, time.Minute} {
			hold := enter()
			if hold == nil {
				t.Fatalf("no slot before an outage of %s", outage)
			}
			store.off.Store(true)
			hold.End()
			hold.End()
			time.Sleep(outage)
			store.off.Store(false)
			time.Sleep(min(outage+20*time.Millisecond, 5*time.Second))
			synctest.Wait()
			calls.calls = 0
			time.Sleep(time.Minute)
			synctest.Wait()
			if calls.calls != 0 {
				t.Errorf("%d calls after both were released", calls.calls)
			}
		}
		if failed != 3 {
			t.Errorf("%d failures were reported, want one for each end", failed)
		}
		hold := enter()
		store.off.Store(true)
		hold.End()
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		calls.calls = 0
		time.Sleep(time.Hour)
		synctest.Wait()
		if calls.calls != 0 {
			t.Errorf("%d calls after the leases have ended", calls.calls)
		}
	})
}
