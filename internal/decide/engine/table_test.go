package engine_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/rulefile"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// tabled reads rules next to a table named customers.csv.
func tabled(t testing.TB, text, table string) *rules.Ruleset {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{"rules.yaml": text, "customers.csv": table} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	rs, err := rulefile.Load(filepath.Join(dir, "rules.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return rs
}

const byCustomer = `
domain: api
limits:
  - {name: per-customer, key: [user], rate: {table: customers.csv, default: 2/minute}, algorithm: fixed_window}
`

// Each key has the limit of its row; a changed row keeps what has been used.
func TestTableRowsLimitKeys(t *testing.T) {
	t.Parallel()
	e := engine.New(memory.New(), tabled(t, byCustomer, "key,rate\nann,5/minute\nbob,unlimited\neve,deny\n"))
	for user, want := range map[string]int{"ann": 5, "bob": 9, "eve": 0, "zoe": 2} {
		passed := 0
		for range 9 {
			v := decide(t, e, ask(request{"user": user}, 0))
			if v.Allowed {
				passed++
			}
			v.Release()
		}
		if passed != want {
			t.Errorf("%s: %d requests passed, want %d", user, passed, want)
		}
	}
	e.SetRules(tabled(t, byCustomer, "key,rate\nann,7/minute\n"))
	v := decide(t, e, ask(request{"user": "ann"}, 1))
	if !v.Allowed || v.Decision.Limit != 7 || v.Decision.Remaining != 1 {
		t.Errorf("after the change: %+v, want 1 of 7 left", v.Decision)
	}
	if v.Rule.Base() != e.Rules().Rule("api", "per-customer") {
		t.Error("the variant has another base than the rule of the ruleset")
	}
	v.Release()
}

// An operator's override replaces the limit of a row, and keeps the row's rate if it has
// only a burst.
func TestOverridesWinOverTables(t *testing.T) {
	t.Parallel()
	const text = `
domain: api
limits:
  - {name: per-customer, key: [user], rate: {table: customers.csv, default: unlimited}, algorithm: leaky_bucket, burst: 3}
`
	rs := tabled(t, text, "key,rate,burst\nann,5/minute,4\n")
	base := rs.Rule("api", "per-customer")
	key, err := base.ComposeKey([]rules.KeyPart{{Value: "ann"}})
	if err != nil {
		t.Fatal(err)
	}
	ann := base.ForKey(key)
	if got := ann.Limit.String(); got != "5/minute leaky_bucket burst 4" {
		t.Errorf("the row gives %s", got)
	}
	for _, row := range []struct {
		of    *rules.Rule
		rate  string
		burst int64
		want  string
	}{
		{ann, "", 9, "5/minute leaky_bucket burst 9"},
		{ann, "7/minute", 0, "7/minute leaky_bucket burst 4"},
		{base, "7/minute", 0, "7/minute leaky_bucket burst 3"}, // although the default is unlimited
	} {
		other, err := row.of.WithLimit(row.rate, row.burst)
		if err != nil || other.Limit.String() != row.want {
			t.Errorf("%q %d: %v %v, want %s", row.rate, row.burst, other, err, row.want)
			continue
		}
		e := engine.New(memory.New(), rs)
		e.SetExceptions(engine.NewExceptions([]engine.Exception{{
			Scope: base.Scope, Key: key, LimitUntil: start + 1e12, Instead: []engine.Instead{{Of: base, Rule: other}},
		}}, start))
		v := decide(t, e, ask(request{"user": "ann"}, 0))
		if got := v.Rule.Limit.String(); got != row.want {
			t.Errorf("the key has %s, want %s", got, row.want)
		}
		v.Release()
	}
}

// A reservation under a row is settled under the row that the key has then.
func TestReservationWhileARowChanges(t *testing.T) {
	t.Parallel()
	db := memory.New()
	e := engine.New(db, tabled(t, byCustomer, "key,rate\nann,10/minute\n"))
	q := ask(request{"user": "ann"}, 0)
	q.Cost = 6
	v, token, err := e.Reserve(context.Background(), q, time.Minute)
	if err != nil || !v.Allowed {
		t.Fatal(v.Decision, err)
	}
	v.Release()
	e.SetRules(tabled(t, byCustomer, "key,rate\nann,20/minute\n"))
	out, err := e.Commit(context.Background(), token, 2, start+1e6)
	if err != nil || out.Ending != engine.Done || out.InDebt || len(out.Lost) > 0 {
		t.Fatalf("%+v %v", out, err)
	}
	v = decide(t, e, engine.Query{Domain: "api", Part: engine.Part{Request: request{"user": "ann"}, Kind: store.KindPeek, Cost: 1}, At: start + 2e6})
	if v.Decision.Limit != 20 || v.Decision.Remaining != 18 {
		t.Errorf("%d of %d left, want 18 of 20", v.Decision.Remaining, v.Decision.Limit)
	}
	v.Release()
	// Into debt: the real cost is more than the row now allows.
	v, token, err = e.Reserve(context.Background(), q, time.Minute)
	if err != nil || !v.Allowed {
		t.Fatal(v.Decision, err)
	}
	v.Release()
	e.SetRules(tabled(t, byCustomer, "key,rate\nann,8/minute\n"))
	if out, err = e.Commit(context.Background(), token, 9, start+3e6); err != nil || !out.InDebt {
		t.Errorf("%+v %v, want a debt", out, err)
	}
}

// Each key's share of its own limit is enforced while the store is down.
func TestLocalShareOfARow(t *testing.T) {
	t.Parallel()
	const text = `
domain: api
limits:
  - {name: a, key: [user], rate: {table: customers.csv, default: 2/minute}, on_store_error: {policy: local, share: 0.5}}
`
	e := engine.New(broken{}, tabled(t, text, "key,rate\nann,10/minute\n"), engine.WithFallback(memory.New()))
	passed := 0
	for range 10 {
		v, _ := e.Decide(context.Background(), ask(request{"user": "ann"}, 0))
		if v.Allowed {
			passed++
		}
		v.Release()
	}
	if passed != 5 {
		t.Errorf("%d passed, want half of 10", passed)
	}
}
