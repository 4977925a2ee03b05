package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

const settleRules = `
domain: api
limits:
  - {name: refilled, match: {path: /bucket}, key: [user], rate: 60/minute}
  - {name: tokens, match: {path: /llm}, key: [user], rate: 100/day, algorithm: fixed_window}
  - {name: keyless, match: {path: /places}, concurrency: 3}
  - {name: small, match: {path: /two}, key: [user], concurrency: 2}
  - {name: large, match: {path: /two}, key: [user], concurrency: 5}
`

// A reservation refunds what time has not: 10 are reserved from a bucket of one per
// second, and others have taken 20 when it is settled.
func TestReservationsAreSettledLate(t *testing.T) {
	for _, row := range []struct {
		after      float64
		cost, left int64
	}{{0, 3, 37}, {8, 3, 40}, {10, 0, 40}, {11, 3, 37}, {4, 15, 29}} {
		e := engine.New(memory.New(), parse(t, settleRules))
		q := query1("/bucket", 100)
		q.Cost = 10
		v, token, err := e.Reserve(t.Context(), q, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		v.Release()
		other := query1("/bucket", 100+row.after)
		other.Cost = 20
		decide(t, e, other)
		out, err := e.Commit(t.Context(), token, row.cost, at(100+row.after))
		if err != nil || out.Ending != engine.Done {
			t.Errorf("%+v, %v", out, err)
		}
		want := row.left
		if row.after == 11 {
			want = 40 // nothing of it counts any more, whatever the real cost
		}
		if n := left(t, e, "/bucket", "refilled", 100+row.after); n != want {
			t.Errorf("after %v s at %d: %d left, want %d", row.after, row.cost, n, want)
		}
	}
}

// A reservation is settled only once, is not in debt if it cost what was estimated, and
// may consist only of slots, or of nothing.
func TestReservationsAreSettledOnce(t *testing.T) {
	e := engine.New(memory.New(), parse(t, settleRules))
	reserve := func(path string, cost int64) string {
		t.Helper()
		q := query1(path, 0)
		q.Cost = cost
		v, token, err := e.Reserve(t.Context(), q, time.Hour)
		if err != nil || !v.Allowed || token == "" {
			t.Fatalf("%s: %+v, %q, %v", path, v.Decision, token, err)
		}
		v.Release()
		return token
	}
	exact, dear := reserve("/llm", 20), reserve("/llm", 20)
	places, nothing := reserve("/places", 1), reserve("/free", 1)
	for i, row := range []struct {
		token  string
		cost   int64
		minute float64
		want   engine.Settlement
	}{
		{dear, 200, 1, engine.Settlement{InDebt: true}},
		{exact, 20, 2, engine.Settlement{}},
		{exact, 20, 50, engine.Settlement{Ending: engine.Settled}},
		{dear, 200, 59, engine.Settlement{Ending: engine.Settled}},
		{dear, 200, 60, engine.Settlement{Ending: engine.Expired}},
		{places, 1, 0.5, engine.Settlement{}},
		{places, 1, 0.5, engine.Settlement{Ending: engine.Settled}},
		{nothing, 7, 3, engine.Settlement{}},
		{nothing, 7, 4, engine.Settlement{}}, // nothing to do a second time either
		{nothing, 7, 60, engine.Settlement{Ending: engine.Expired}},
	} {
		got, err := e.Commit(t.Context(), row.token, row.cost, at(60*row.minute))
		if err != nil || got.Ending != row.want.Ending || got.InDebt != row.want.InDebt || len(got.Lost) != 0 {
			t.Errorf("row %d: %+v, %v, want %+v", i, got, err, row.want)
		}
		if n := left(t, e, "/places", "keyless", 31); row.token == places && n != 3 {
			t.Errorf("row %d: %d of 3 places are free when it is settled", i, n)
		}
	}
}

// Settling counts no refusals: a limit with count_denied has the same left as one without,
// whether the difference fits or not, the first time and later, alone or with other keys.
func TestSettlingCountsNoRefusals(t *testing.T) {
	for _, algorithm := range []string{"fixed_window", "sliding_log", "sliding_window", "sliding_buckets"} {
		for _, other := range []string{"", "  - {name: other, match: {path: [/plain, /denied]}, key: [team], rate: 1000/hour, algorithm: fixed_window}\n"} {
			window := "key: [user], rate: 60/hour, algorithm: " + algorithm
			rs := parse(t, "domain: api\nlimits:\n"+other+
				"  - {name: plain, match: {path: /plain}, "+window+"}\n"+
				"  - {name: denied, match: {path: /denied}, "+window+", count_denied: true}\n")
			for _, cost := range []int64{0, 1, 35, 41, 80, 1000} {
				e := engine.New(memory.New(), rs)
				var got [2]string
				for i, name := range []string{"plain", "denied"} {
					q := ask(request{"path": "/" + name, "user": "ann", "team": name}, 0)
					q.Cost = 20
					decide(t, e, q)
					q.Cost = 1
					v, token, err := e.Reserve(t.Context(), q, time.Hour)
					if err != nil || !v.Allowed {
						t.Fatalf("%+v, %v", v.Decision, err)
					}
					for second := range 4 {
						out, err := e.Commit(t.Context(), token, cost, at(float64(second)))
						if err != nil || (out.Ending == engine.Settled) != (second > 0) {
							t.Errorf("commit %d: %+v, %v", second, out, err)
						}
						q.Kind, q.At = store.KindPeek, at(float64(second))
						v := decide(t, e, q)
						for _, r := range v.Results() {
							if d := r.Decision; r.Rule.Name == name {
								got[i] += fmt.Sprintln(out.InDebt, d.Remaining, d.RetryAfter, d.ResetAfter)
							}
						}
					}
				}
				if got[0] != got[1] {
					t.Errorf("%s, other %q, cost %d: with count_denied\n%swithout\n%s", algorithm, other, cost, got[1], got[0])
				}
			}
		}
	}
}

// A rule that only observes and would have refused has nothing reserved, so nothing is
// settled.
func TestReservationsOfRulesThatObserve(t *testing.T) {
	e := engine.New(memory.New(), parse(t, `
domain: api
limits:
  - {name: tokens, match: {path: /llm}, key: [user], rate: 100/day, algorithm: fixed_window}
  - {name: trial, match: {path: /llm}, key: [user], rate: 20/day, algorithm: fixed_window, mode: shadow}
`))
	q := query1("/llm", 0)
	q.Cost = 30
	v, token, err := e.Reserve(t.Context(), q, time.Minute)
	if err != nil || v.WouldRefuse != 1 {
		t.Fatalf("%+v, %v", v, err)
	}
	v.Release()
	if out, err := e.Commit(t.Context(), token, 15, at(1)); err != nil || out.Ending != engine.Done || out.InDebt {
		t.Errorf("%+v, %v", out, err)
	}
	for rule, want := range map[string]int64{"tokens": 85, "trial": 20} {
		if n := left(t, e, "/llm", rule, 2); n != want {
			t.Errorf("%s: %d left, want %d", rule, n, want)
		}
	}
}

// A take without a time is undone completely.
func TestUndoWithoutATime(t *testing.T) {
	e := engine.New(memory.New(), parse(t, settleRules))
	q := query1("/llm", 0)
	q.At, q.Cost = 0, 30
	v := decide(t, e, q)
	if err := e.Refund(t.Context(), &v, time.Now().UnixMicro()); err != nil {
		t.Fatal(err)
	}
	q.Kind, q.Cost = store.KindPeek, 1
	if again := decide(t, e, q); again.Decision.Remaining != 100 {
		t.Errorf("%d left of 100", again.Decision.Remaining)
	}
}

// Tokens also work for a rule without a key and a caller without a clock.
func TestTokensWithoutKeyAndTime(t *testing.T) {
	e := engine.New(memory.New(), parse(t, settleRules))
	q := query1("/places", 0)
	q.At = 0
	v := decide(t, e, q)
	token, err := e.LeaseToken(t.Context(), &v)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []engine.Ending{engine.Done, engine.Gone} {
		if ending, err := e.ReleaseToken(t.Context(), token, 0); err != nil || ending != want {
			t.Errorf("release %d: %s, %v", i, ending, err)
		}
	}
}

// A renewal that was only partly answered returns an error, and a token for the renewed
// leases.
func TestRenewalInPart(t *testing.T) {
	store := &outage{Store: memory.New(), calls: 1 << 20}
	e := engine.New(store, parse(t, settleRules))
	v := decide(t, e, query1("/two", 0))
	token, err := e.LeaseToken(t.Context(), &v)
	if err != nil {
		t.Fatal(err)
	}
	store.calls = 1
	renewed, ending, err := e.RenewToken(t.Context(), token, at(1))
	if renewed == "" || ending != engine.Gone || !errors.Is(err, headgate.ErrUnavailable) {
		t.Errorf("%q, %s, %v", renewed, ending, err)
	}
	store.calls = 1 << 20
	if ending, err := e.ReleaseToken(t.Context(), renewed, at(2)); ending != engine.Done || err != nil {
		t.Errorf("%s, %v", ending, err)
	}
}

// Tokens may be sealed with a secret that becomes known only after a new request; until
// that is answered, their validity is unknown. A secret has at least 16 bytes.
func TestSecretsOfOtherNodes(t *testing.T) {
	own, others := []byte("sixteen bytes..."), []byte("another sixteen.")
	store, rs := memory.New(), parse(t, settleRules)
	all, silent := [][]byte{own}, error(nil)
	node := engine.New(store, rs, engine.WithSecrets(secrets(func(context.Context) ([][]byte, error) { return all, silent })))
	other := engine.New(store, rs, engine.WithSecret(func(context.Context) ([]byte, error) { return others, nil }))
	token := func(e *engine.Engine) string {
		v := decide(t, e, query1("/places", 0))
		defer v.Release()
		token, err := e.LeaseToken(t.Context(), &v)
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	mine, theirs := token(node), token(other)
	if _, err := node.ReleaseToken(t.Context(), theirs, at(1)); !errors.Is(err, engine.ErrBadToken) {
		t.Errorf("a secret that nobody has told: %v", err)
	}
	silent = errors.New("no answer")
	if _, err := node.ReleaseToken(t.Context(), theirs, at(1)); !errors.Is(err, headgate.ErrUnavailable) {
		t.Errorf("a secret that nobody can tell: %v", err)
	}
	silent = nil
	all = append(all, others)
	for _, token := range []string{theirs, mine} {
		if ending, err := node.ReleaseToken(t.Context(), token, at(1)); ending != engine.Done || err != nil {
			t.Errorf("%s, %v", ending, err)
		}
	}
	short := engine.New(store, rs, engine.WithSecret(func(context.Context) ([]byte, error) { return own[:15], nil }))
	v := decide(t, short, query1("/places", 0))
	if _, err := short.LeaseToken(t.Context(), &v); err == nil {
		t.Error("a secret of 15 bytes is good")
	}
}

// If two rules refuse, the one that refuses for longest counts, even if it is the
// first. A secretly refused request has no turn to wait for.
func TestWhoRefusesLongest(t *testing.T) {
	e := engine.New(memory.New(), parse(t, `
domain: api
limits:
  - {name: hour, match: {path: /both}, key: [user], rate: 1/hour}
  - {name: minute, match: {path: /both}, key: [user], rate: 1/minute}
  - {name: hidden, match: {path: /line}, key: [user], rate: 1/hour, on_limit: shadow_ban}
  - {name: line, match: {path: /line}, key: [user], rate: 1/minute, burst: 5, algorithm: leaky_bucket, on_limit: {action: delay, max_wait: 1h}}
`))
	decide(t, e, query1("/both", 0))
	if v := decide(t, e, query1("/both", 0)); v.Allowed || v.Rule.Name != "hour" || v.Decision.RetryAfter != time.Hour {
		t.Errorf("%s, %+v", v.Rule.Name, v.Decision)
	}
	decide(t, e, query1("/line", 0))
	if v := decide(t, e, query1("/line", 0)); v.Outcome() != engine.ShadowBanned || v.Delay != 0 {
		t.Errorf("%s after %v", v.Outcome(), v.Delay)
	}
}

// queueing notes how many places in queues were taken. The first calls wait for each other.
type queueing struct {
	store.Store

	first  sync.WaitGroup
	calls  atomic.Int64
	waits  int64
	places atomic.Int64
	quotas atomic.Int64 // taken from fixed windows
}

func (q *queueing) Do(ctx context.Context, b *store.Batch) {
	for i := range b.Ops {
		if b.Ops[i].Kind == store.KindTake && b.Ops[i].Rule.Algorithm == store.LeakyBucket {
			q.places.Add(1)
		}
		if b.Ops[i].Kind == store.KindTake && b.Ops[i].Rule.Algorithm == store.FixedWindow {
			q.quotas.Add(1)
		}
	}
	q.Store.Do(ctx, b)
	if q.calls.Add(1) <= q.waits {
		q.first.Done()
		q.first.Wait()
	}
}

// queueAndQuota limits users by a queue of 100 places, and teams by a quota of 2.
func queueAndQuota(t *testing.T) (e *engine.Engine, queue *queueing, both []engine.Part) {
	queue = &queueing{Store: memory.New()}
	e = engine.New(queue, marked(t, strings.Replace(byEntry, "3/minute, algorithm: fixed_window", "60/minute, algorithm: leaky_bucket, burst: 100", 1),
		map[string]func(*rules.Rule){"team": func(r *rules.Rule) { r.QuotaMode = true }}))
	return e, queue, []engine.Part{take(user("ann")), take(team("red"))}
}

// While the quotas are used up, nobody takes a place in a queue: one in the middle could not
// be given back.
func TestNoQuotaNoPlaceInTheQueue(t *testing.T) {
	e, queue, both := queueAndQuota(t)
	refused := []bool{false, true}
	trace(t, e, engine.Query{}, []multiRow{
		{both, true, []int64{99, 1}, nil},
		{both, true, []int64{98, 0}, nil},
		{both, false, []int64{98, 0}, refused},
		{both, false, []int64{98, 0}, refused},
	})
	if n := queue.places.Load(); n != 2 {
		t.Errorf("%d places were taken, want 2", n)
	}
}

// Requests that race for the last of a quota take no more places than the quota has.
func TestRacesForAQuota(t *testing.T) {
	e, queue, both := queueAndQuota(t)
	queue.waits = 20
	queue.first.Add(20)
	var wait sync.WaitGroup
	for range 20 {
		wait.Go(func() {
			if v, err := e.Decide(t.Context(), engine.Query{Domain: "api", Parts: both, At: start}); err != nil {
				t.Error(err)
			} else {
				v.Release()
			}
		})
	}
	wait.Wait()
	if n := queue.places.Load(); n != 2 {
		t.Errorf("%d places were taken, want 2", n)
	}
}

// A request that the queue refuses leaves the quotas as they were, and does not hold them
// even for a moment.
func TestAFullQueueTakesNoQuota(t *testing.T) {
	e, queue, both := queueAndQuota(t)
	full := part(user("ann"), 100, store.KindTake)
	trace(t, e, engine.Query{}, []multiRow{
		{[]engine.Part{full}, true, []int64{0}, nil},
		{both, false, []int64{0, 2}, []bool{true, false}},
		{[]engine.Part{take(team("red"))}, true, []int64{1}, nil},
	})
	if n := queue.quotas.Load(); n != 1 {
		t.Errorf("%d units of the quota were taken, want 1", n)
	}
}

// When quotas refuse, each quota of a part gets back what was taken, and a limit that
// counts refusals keeps it.
func TestWhatQuotasGiveBack(t *testing.T) {
	quota := func(r *rules.Rule) { r.QuotaMode = true }
	both := take(request{"user": "ann", "team": "red"})
	e := engine.New(memory.New(), marked(t, byEntry, map[string]func(*rules.Rule){"user": quota, "team": quota}))
	trace(t, e, engine.Query{}, []multiRow{
		{[]engine.Part{part(team("red"), 2, store.KindTake)}, true, []int64{0}, nil},
		{[]engine.Part{both}, false, []int64{0}, []bool{true}},
		{[]engine.Part{both}, false, []int64{0}, []bool{true}},
		{[]engine.Part{take(user("ann"))}, true, []int64{2}, nil},
	})
	e = engine.New(memory.New(), marked(t, byEntry, map[string]func(*rules.Rule){
		"user": func(r *rules.Rule) { r.ChargeDenied = true }, "team": quota,
	}))
	trace(t, e, engine.Query{}, []multiRow{
		{[]engine.Part{part(team("red"), 2, store.KindTake)}, true, []int64{0}, nil},
		{[]engine.Part{take(user("ann")), take(team("red"))}, false, []int64{2, 0}, []bool{false, true}},
		{[]engine.Part{take(user("ann"))}, true, []int64{1}, nil},
	})
}
