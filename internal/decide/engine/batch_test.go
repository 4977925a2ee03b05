package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// pipelined is a store that counts its calls.
type pipelined struct {
	store.Store

	asked int
	fail  error // for every second group
}

func (p *pipelined) Do(ctx context.Context, b *store.Batch) {
	if len(b.Groups) > 1 {
		p.asked++
	}
	i := 0
	b.Each(func(ops []store.Op, out []store.Decision, mode store.Mode) error {
		i++
		if p.fail != nil && i%2 == 0 {
			return p.fail
		}
		return store.ExecuteAll(ctx, p.Store, ops, out, mode)
	})
}

const batchRules = `
domain: api
limits:
  - {name: one, match: {path: /a}, key: [user], rate: 5/day, algorithm: fixed_window, cost: 2}
  - {name: two, match: {path: /a}, rate: 17/day, algorithm: fixed_window, on_store_error: deny}
  - {name: seen, match: {path: /a}, key: [user], rate: 3/day, algorithm: fixed_window, mode: shadow}
  - {name: part, match: {path: /a}, key: [user], rate: 4/day, algorithm: sliding_window, percent: 50}
  - {name: alone, match: {path: /b}, key: [user], rate: 6/day}
  - {name: busy, match: {path: /b}, key: [user], concurrency: 4}
  - {name: only-seen, match: {path: /c}, key: [user], rate: 3/day, mode: shadow}
  - {name: secret, match: {path: /h}, key: [user], rate: 2/day, algorithm: fixed_window, on_limit: shadow_ban}
  - {name: open, match: {path: /h}, key: [user], rate: 4/day, algorithm: fixed_window}
  - {name: hammer, match: {path: /d}, key: [user], rate: 3/day, algorithm: sliding_log, count_denied: true}
  - {name: slow, match: {path: /q}, key: [user], rate: 3/day, algorithm: leaky_bucket, burst: 3}
`

// described returns everything in a verdict.
func described(v *engine.Verdict, err error) string {
	text := fmt.Sprint(v.Allowed, v.Known, v.WouldRefuse, v.Outcome(), v.Delay, v.Decision, err)
	for _, r := range v.Results() {
		r.Decision.Lease = 0
		text += fmt.Sprintf("\n  %s %q %t %+v", r.Rule.Name, r.Key, r.Enforced, r.Decision)
	}
	return text
}

// A batch gives the answers that its queries would get one by one, with at most three
// calls to the store: for enforced limits, for disguising hidden refusals, and for
// rules that only observe.
func TestBatchIsEachByItself(t *testing.T) {
	rs := parse(t, batchRules)
	except := engine.NewExceptions([]engine.Exception{
		banned(rs, "alone", "bob", 100), banned(rs, "secret", "bob", 100), banned(rs, "only-seen", "cat", 100),
		with(t, rs, "one", "cat", "20/day", 100),
	}, at(0))
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 0))
		db := &pipelined{Store: memory.New()}
		batch, single := engine.New(db, rs), engine.New(memory.New(), rs)
		queries := make([]engine.Query, 80)
		for i := range queries {
			path := [...]string{"/a", "/a", "/b", "/c", "/h", "/q", "/d", "/none"}[r.IntN(8)]
			q := ask(request{"path": path, "user": [...]string{"ann", "bob", "cat"}[r.IntN(3)]}, 0)
			if path != "/h" {
				q.Cost = r.Int64N(4) - 1 // -1 is an error
				q.Kind = [...]store.Kind{store.KindTake, store.KindTake, store.KindPeek}[r.IntN(3)]
			}
			q.Endless = r.IntN(5) == 0
			if r.IntN(20) == 0 {
				q.Domain = "unknown"
			}
			queries[i] = q
		}
		batch.SetExceptions(except)
		single.SetExceptions(except)
		var got []string
		batch.DecideBatch(t.Context(), len(queries),
			func(i int) engine.Query { return queries[i] },
			func(i int, v *engine.Verdict, err error) {
				if i != len(got) {
					t.Errorf("answer %d came as number %d", i, len(got))
				}
				got = append(got, described(v, err))
			})
		for i := range queries {
			v, err := single.Decide(t.Context(), queries[i])
			if want := described(&v, err); got[i] != want {
				t.Errorf("seed %d, query %d, %v\n got %s\nwant %s", seed, i, queries[i], got[i], want)
			}
			v.Release()
		}
		if db.asked > 3 {
			t.Errorf("the store was asked %d times", db.asked)
		}
	}
}

// Queries that the store did not answer are answered by the policy.
func TestBatchInPart(t *testing.T) {
	store := &pipelined{Store: memory.New(), fail: headgate.ErrUnavailable}
	e := engine.New(store, parse(t, batchRules))
	e.DecideBatch(t.Context(), 4,
		func(int) engine.Query { return query1("/a", 0) },
		func(i int, v *engine.Verdict, err error) {
			if failed := i%2 == 1; v.Allowed == failed || errors.Is(err, headgate.ErrUnavailable) != (failed || i == 2) {
				t.Errorf("%d: %+v %v", i, v.Decision, err)
			}
		})
}

// A hidden refusal is charged to limits that only mark unless a limit that the client can
// see refuses too, also one that earlier queries of the batch have used up, and for a
// banned client.
func TestHiddenRefusalsChargeAllOrNothing(t *testing.T) {
	rs := parse(t, `
domain: api
limits:
  - {name: marks, match: {path: /a}, key: [user], rate: 60/day, algorithm: fixed_window, on_limit: pass}
  - {name: secret, match: {path: /a}, key: [user], rate: 3/day, algorithm: fixed_window, on_limit: shadow_ban}
  - {name: seen, match: {path: /a}, key: [team], rate: 3/day, algorithm: fixed_window}
`)
	for _, ban := range []bool{false, true} {
		for _, together := range []bool{false, true} {
			e := engine.New(&pipelined{Store: memory.New()}, rs)
			first := ask(request{"path": "/a", "user": "ann", "team": "blue"}, 0)
			if first.Cost = 3; ban {
				e.SetExceptions(engine.NewExceptions([]engine.Exception{banned(rs, "secret", "ann", 60)}, at(0)))
			}
			decide(t, e, first)
			before := left(t, e, "/a", "marks", 0)
			costs := []int64{2, 1, 2}
			query := func(i int) engine.Query {
				q := ask(request{"path": "/a", "user": "ann", "team": "red"}, 0)
				q.Cost = costs[i]
				return q
			}
			if together {
				e.DecideBatch(t.Context(), len(costs), query, func(int, *engine.Verdict, error) {})
			} else {
				for i := range costs {
					decide(t, e, query(i))
				}
			}
			if n := before - left(t, e, "/a", "marks", 0); n != 3 {
				t.Errorf("banned %t, together %t: %d charged, want 3", ban, together, n)
			}
		}
	}
}
