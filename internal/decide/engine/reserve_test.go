package engine_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

const leaseRules = `
domain: api
limits:
  - {name: exports, match: {path: /exports}, key: [user], concurrency: 2, lease: 30s}
  - {name: daily, match: {path: /exports}, key: [user], rate: 5/day, algorithm: fixed_window}
  - {name: tokens, match: {path: /llm}, key: [user], rate: 1000/day, algorithm: fixed_window}
`

// shared is a secret shared by engines.
func shared(context.Context) ([]byte, error) { return []byte("a secret of sufficient length"), nil }

// twoNodes returns engines that share a store and a secret.
func twoNodes(t *testing.T) [2]*engine.Engine {
	t.Helper()
	store := memory.New()
	rs := parse(t, leaseRules)
	return [2]*engine.Engine{
		engine.New(store, rs, engine.WithSecret(shared)), engine.New(store, rs, engine.WithSecret(shared)),
	}
}

// left returns what a rule has left for ann.
func left(t *testing.T, e *engine.Engine, path, rule string, seconds float64) int64 {
	t.Helper()
	q := ask(request{"path": path, "user": "ann"}, seconds)
	q.Kind = store.KindPeek
	v := decide(t, e, q)
	defer v.Release()
	for _, r := range v.Results() {
		if r.Rule.Name == rule {
			return r.Decision.Remaining
		}
	}
	t.Fatalf("no rule %s", rule)
	return 0
}

// TestLeaseTokens: a token ends its lease on either node, once, and a rate charged with
// it stays charged.
func TestLeaseTokens(t *testing.T) {
	nodes := twoNodes(t)
	ctx := t.Context()
	take := func(seconds float64) (token string, allowed bool) {
		t.Helper()
		v := decide(t, nodes[0], ask(request{"path": "/exports", "user": "ann"}, seconds))
		defer v.Release()
		token, err := nodes[0].LeaseToken(ctx, &v)
		if err != nil || v.Allowed != (token != "") {
			t.Fatalf("allowed %t, token %q, %v", v.Allowed, token, err)
		}
		return token, v.Allowed
	}
	release := func(token string, seconds float64, want engine.Ending) {
		t.Helper()
		if got, err := nodes[1].ReleaseToken(ctx, token, start+int64(seconds*1e6)); err != nil || got != want {
			t.Errorf("release: %s, %v; want %s", got, err, want)
		}
	}
	first, _ := take(0)
	second, _ := take(1)
	if _, ok := take(2); ok {
		t.Error("a third of two")
	}
	if n := left(t, nodes[1], "/exports", "daily", 2); n != 3 {
		t.Errorf("%d of the day are left, want 3: the third was refused", n)
	}
	release(first, 3, engine.Done)
	release(first, 3, engine.Gone)
	third, ok := take(4)
	if !ok {
		t.Error("a released place is not free")
	}
	renewed, ending, err := nodes[1].RenewToken(ctx, second, start+20e6)
	if err != nil || ending != engine.Done {
		t.Fatalf("renewal: %s, %v", ending, err)
	}
	if _, ending, _ := nodes[1].RenewToken(ctx, second, start+20e6); ending != engine.Gone {
		t.Errorf("renewal by an old token: %s", ending)
	}
	if n := left(t, nodes[0], "/exports", "exports", 40); n != 1 {
		t.Errorf("%d places, want 1: one of two was renewed", n)
	}
	release(third, 40, engine.Gone) // its 30 s are over
	release(renewed, 40, engine.Done)
	if n := left(t, nodes[0], "/exports", "exports", 40); n != 2 {
		t.Errorf("%d places in the end, want 2", n)
	}
}

// TestTokensFromElsewhere: a token that was not sealed with the same secret for the
// same purpose is refused and changes nothing.
func TestTokensFromElsewhere(t *testing.T) {
	nodes := twoNodes(t)
	ctx := t.Context()
	v, reservation, err := nodes[0].Reserve(ctx, ask(request{"path": "/exports", "user": "ann"}, 0), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	lease, err := nodes[0].LeaseToken(ctx, &v)
	if err != nil {
		t.Fatal(err)
	}
	v.Release()
	stranger := engine.New(memory.New(), parse(t, leaseRules))
	damaged := []byte(lease)
	damaged[len(damaged)/2] ^= 1
	for name, ask := range map[string]func() error{
		"another secret":           func() error { _, err := stranger.ReleaseToken(ctx, lease, start); return err },
		"another secret, to renew": func() error { _, _, err := stranger.RenewToken(ctx, lease, start); return err },
		"a reservation as a lease": func() error { _, err := nodes[0].ReleaseToken(ctx, reservation, start); return err },
		"a lease as a reservation": func() error { _, err := nodes[0].Cancel(ctx, lease, start); return err },
		"damaged":                  func() error { _, err := nodes[0].ReleaseToken(ctx, string(damaged), start); return err },
		"empty":                    func() error { _, err := nodes[0].ReleaseToken(ctx, "", start); return err },
		"no base64":                func() error { _, err := nodes[0].Commit(ctx, "\x00\xff{", 1, start); return err },
	} {
		if err := ask(); !errors.Is(err, engine.ErrBadToken) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := nodes[0].Commit(ctx, reservation, -1, start); !errors.Is(err, headgate.ErrInvalidCost) {
		t.Errorf("a negative cost: %v", err)
	}
	if n := left(t, nodes[0], "/exports", "exports", 0); n != 1 {
		t.Errorf("%d places, want 1", n)
	}
	none := engine.New(memory.New(), parse(t, leaseRules), engine.WithSecret(func(context.Context) ([]byte, error) { return nil, errors.New("gone") }))
	v = decide(t, none, ask(request{"path": "/exports", "user": "ann"}, 0))
	if token, err := none.LeaseToken(ctx, &v); token != "" || !errors.Is(err, headgate.ErrUnavailable) {
		t.Errorf("without a secret: %q, %v", token, err)
	}
}

// TestReservationsOfRulesThatAreGone: rules that a reload has removed are named, the
// rest is settled.
func TestReservationsOfRulesThatAreGone(t *testing.T) {
	nodes := twoNodes(t)
	v, token, err := nodes[0].Reserve(t.Context(), ask(request{"path": "/exports", "user": "ann"}, 0), time.Minute)
	if err != nil || token == "" {
		t.Fatalf("%q, %v", token, err)
	}
	v.Release()
	nodes[0].SetRules(parse(t, `
domain: api
limits:
  - {name: exports, match: {path: /exports}, key: [user], rate: 7/minute}
  - {name: other, match: {path: /exports}, key: [user], rate: 5/day, algorithm: fixed_window}
`))
	s, err := nodes[0].Cancel(t.Context(), token, start)
	if err != nil || s.Ending != engine.Done || len(s.Lost) != 1 || s.Lost[0] != "daily" {
		t.Errorf("%+v, %v", s, err)
	}
}

// open is a reservation known to the oracle.
type open struct {
	token          string
	at, until      float64
	estimate, cost int64
	settled        bool
}

// TestReservationsAgainstAnOracle: whatever is reserved, committed, cancelled and
// retried on two nodes, in time or not, each request counts once.
func TestReservationsAgainstAnOracle(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	for range 60 {
		nodes := twoNodes(t)
		var all []*open
		used, now := int64(0), 0.0
		for range 60 {
			node := nodes[rng.IntN(2)]
			now += float64(rng.IntN(20))
			if len(all) == 0 || rng.IntN(3) == 0 {
				used += reserve(t, node, rng, now, used, &all)
			} else {
				used += settle(t, node, rng, now, all[rng.IntN(len(all))])
			}
			if got, want := left(t, node, "/llm", "tokens", now), max(1000-used, 0); got != want {
				t.Fatalf("%d left, want %d", got, want)
			}
		}
	}
}

func reserve(t *testing.T, node *engine.Engine, rng *rand.Rand, now float64, used int64, all *[]*open) (taken int64) {
	t.Helper()
	q := ask(request{"path": "/llm", "user": "ann"}, now)
	q.Cost = 1 + rng.Int64N(200)
	ttl := 1 + rng.IntN(100)
	v, token, err := node.Reserve(t.Context(), q, time.Duration(ttl)*time.Second)
	defer v.Release()
	if err != nil || v.Allowed != (used+q.Cost <= 1000) || v.Allowed != (token != "") {
		t.Fatalf("%d used, reserve %d: %+v, %v", used, q.Cost, v.Decision, err)
	}
	if !v.Allowed {
		return 0
	}
	*all = append(*all, &open{token: token, at: now, until: now + float64(ttl), estimate: q.Cost})
	return q.Cost
}

func settle(t *testing.T, node *engine.Engine, rng *rand.Rand, now float64, o *open) (more int64) {
	t.Helper()
	want := engine.Done
	switch {
	case now >= o.until:
		want = engine.Expired
	case o.settled:
		want = engine.Settled
	}
	cost, at := rng.Int64N(400), start+int64(now*1e6)
	var s engine.Settlement
	var err error
	if rng.IntN(4) == 0 {
		cost = 0
		s, err = node.Cancel(t.Context(), o.token, at)
	} else {
		s, err = node.Commit(t.Context(), o.token, cost, at)
	}
	if err != nil || s.Ending != want {
		t.Fatalf("at %v, %+v: %+v, %v; want %s", now, o, s, err, want)
	}
	if want != engine.Done {
		return 0
	}
	o.settled, o.cost = true, cost
	return cost - o.estimate
}

// TestHold: slots are held as long as a request runs, and are free when it ends; a lost
// slot is taken again if one is free.
func TestHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := memory.New()
		e := engine.New(db, parse(t, leaseRules))
		var failures []error
		options := engine.HoldOptions{Clock: time.Now, Failed: func(err error) { failures = append(failures, err) }}
		enter := func(user string) (*engine.Hold, bool) {
			q := ask(request{"path": "/exports", "user": user}, 0)
			q.At = time.Now().UnixMicro()
			v := decide(t, e, q)
			defer v.Release()
			return e.Hold(t.Context(), &v, options), v.Allowed
		}
		a, _ := enter("ann")
		b, _ := enter("ann")
		time.Sleep(5 * time.Minute)
		if _, ok := enter("ann"); ok {
			t.Error("a third of two, after the time of a lease")
		}
		a.End()
		a.End()
		if _, ok := enter("ann"); !ok {
			t.Error("no place after the end of a request")
		}
		b.End()
		var none *engine.Hold
		none.End()
		if len(failures) > 0 {
			t.Errorf("failures: %v", failures)
		}
		c, _ := enter("bob")
		reset := store.Op{Key: string(headgate.AppendKey(nil, "bob")), Scope: "api/exports", Rule: headgate.Concurrent(2).Rule(), Kind: store.KindReset}
		if _, err := store.Execute(t.Context(), db, reset); err != nil {
			t.Fatal(err)
		}
		time.Sleep(11 * time.Second) // it has been renewed, that is, taken again
		if _, ok := enter("bob"); !ok {
			t.Error("a second of two")
		}
		if _, ok := enter("bob"); ok {
			t.Error("a third: the lost slot was not taken again")
		}
		c.End()
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	})
}
