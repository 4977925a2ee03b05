package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

const repeated = `
domain: api
limits:
  - {name: user, key: [user], key_missing: skip, rate: 1/hour, on_repeat: {refusals: 3/1h, ban: 1h}}
  - {name: team, key: [team], key_missing: skip, rate: 1/hour, mode: shadow, on_repeat: {refusals: 3/1h, ban: 1h}}
  - {name: seen, key: [seen], key_missing: skip, rate: 1/hour}
  - {name: closed, key: [closed], key_missing: skip, rate: 1/hour, on_store_error: deny, on_repeat: {refusals: 3/1h, ban: 1h}}
`

// noted records refusals.
type noted struct{ list []string }

func (n *noted) Refused(rule *rules.Rule, key string, _ uint32, enforced bool) {
	parts, _ := rules.SplitKey(key)
	n.list = append(n.list, fmt.Sprint(rule.Name, " ", parts[0].Text(), " ", enforced))
}

// since returns the refusals since the last call.
func (n *noted) since() []string {
	list := n.list
	n.list = nil
	return list
}

// Refusals by rules with on_repeat are reported, however the request is decided; other
// answers are not.
func TestRefusalsAreReported(t *testing.T) {
	var got noted
	rs := parse(t, repeated)
	e := engine.New(memory.New(), rs, engine.WithRefusals(&got))
	both := request{"user": "ann", "team": "blue", "seen": "x"}
	query := engine.Query{Domain: "api", Part: engine.Part{Request: both, Cost: 1}, At: at(0)}
	want := func(what string, list ...string) {
		t.Helper()
		if diff := cmp.Diff(list, got.since()); diff != "" {
			t.Errorf("%s: -want +got:\n%s", what, diff)
		}
	}
	ask := func(q engine.Query) {
		t.Helper()
		v := decide(t, e, q)
		v.Release()
	}
	ask(query)
	want("an allowed request")
	ask(query)
	want("a refused request", "user ann true", "team blue false")
	peek := query
	peek.Kind = store.KindPeek
	v := decide(t, e, peek)
	want("a peek")
	e.ReportTake(t.Context(), peek, v)
	want("a peek that counts as a take", "user ann true", "team blue false")
	v.Release()
	dry := query
	dry.Cost = 0
	ask(dry)
	want("a dry run")
	large := query
	large.Request, large.Cost = request{"user": "bob"}, 2
	ask(large)
	want("a cost above the limit", "user bob true")
	team := query
	team.Request = request{"team": "blue"}
	ask(team)
	want("a rule that observes", "team blue false")

	e.DecideBatch(t.Context(), 2, func(int) engine.Query { return query }, func(int, *engine.Verdict, error) {})
	want("a batch", "user ann true", "team blue false", "user ann true", "team blue false")
	parts := engine.Query{Domain: "api", At: at(0), Parts: []engine.Part{
		{Request: both, Cost: 1}, {Request: request{"user": "cay"}, Cost: 1}, {Request: request{"user": "dan"}, Cost: 1, Kind: store.KindRefund},
	}}
	m, err := e.Decide(t.Context(), parts)
	if err != nil {
		t.Fatal(err)
	}
	m.Release()
	want("a request with parts", "user ann true", "team blue false")

	e.SetExceptions(engine.NewExceptions([]engine.Exception{banned(rs, "user", "ann", 60)}, at(0)))
	ask(query)
	want("a banned key")
	e.SetExceptions(nil)

	e.SetRules(parse(t, strings.Replace(repeated, "limits:", "allow: {user: [ann]}\ndeny: {user: [bob]}\nlimits:", 1)))
	for _, name := range []string{"ann", "bob", "bob"} {
		query.Request = request{"user": name}
		ask(query)
	}
	want("keys on the lists of the domain")
}

// down is a store that does not answer.
type down struct{ store.Store }

func (down) Do(_ context.Context, b *store.Batch) {
	b.Each(func([]store.Op, []store.Decision, store.Mode) error {
		return headgate.ErrUnavailable
	})
}

// Refusals for want of the store are not reported, those of the fallback neither.
func TestRefusalsDuringAnOutage(t *testing.T) {
	var got noted
	e := engine.New(down{}, parse(t, repeated+"  - {name: local, key: [local], key_missing: skip, rate: 1/hour, on_store_error: local, on_repeat: {refusals: 3/1h, ban: 1h}}\n"),
		engine.WithRefusals(&got), engine.WithFallback(memory.New()))
	for _, name := range []string{"closed", "local", "local", "local"} {
		v, err := e.Decide(t.Context(), engine.Query{Domain: "api", Part: engine.Part{Request: request{name: "ann"}, Cost: 1}, At: at(0)})
		if !errors.Is(err, headgate.ErrUnavailable) {
			t.Fatal(err)
		}
		v.Release()
	}
	if list := got.since(); !slices.Equal(list, nil) {
		t.Errorf("reported: %v", list)
	}
}
