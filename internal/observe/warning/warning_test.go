package warning_test

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/observe/warning"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/rulefile"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// request is a rules.Request with a user.
type request struct{ user string }

func (r *request) Attribute(a rules.Attribute) (string, bool) {
	return r.user, strings.HasPrefix(a.String(), "user")
}

func (*request) ClientIP() netip.Addr { return netip.Addr{} }

// traffic is requests in virtual time, decided by an engine that is watched.
type traffic struct {
	t     testing.TB
	e     *engine.Engine
	o     *warning.Observer
	begin time.Time
	now   time.Time
	seen  []string // what was warned of, with seconds since the beginning
}

const second = time.Second

// newTraffic watches rules.
func newTraffic(t testing.TB, text string, change func(*warning.Settings)) *traffic {
	t.Helper()
	rs, diagnostics := rulefile.Parse(rulefile.Source{Name: "rules.yaml", Data: []byte(text)})
	if rs == nil {
		t.Fatal(diagnostics)
	}
	settings := warning.Default()
	if change != nil {
		change(&settings)
	}
	tr := &traffic{t: t, o: warning.New(settings), begin: time.UnixMicro(1_800_000_000_000_000)}
	tr.now = tr.begin
	tr.o.SetRules(rs)
	tr.e = engine.New(memory.New(), rs, engine.WithObserver(tr.o))
	return tr
}

// ask sends a request of a user at a time after the start of this second.
func (tr *traffic) ask(user string, after time.Duration) bool {
	v, err := tr.e.Decide(context.Background(), engine.Query{
		Domain: "api", Part: engine.Part{Request: &request{user}, Cost: 1}, At: tr.now.Add(after).UnixMicro(),
	})
	if err != nil {
		tr.t.Fatal(err)
	}
	v.Release()
	return v.Allowed
}

// tick ends this second.
func (tr *traffic) tick() {
	tr.now = tr.now.Add(second)
	for _, w := range tr.o.Look(tr.now) {
		text := fmt.Sprintf("%ds %s %s %s", int(tr.now.Sub(tr.begin).Seconds()), w.State, w.Kind, w.Rule.Name)
		if w.Key != "" {
			if parts, ok := rules.SplitKey(w.Key); ok {
				text += " " + parts[0].Text()
			}
		}
		if w.Level > 0 {
			text += fmt.Sprintf(" %d%%", w.Level)
		}
		tr.seen = append(tr.seen, text)
	}
}

// steady sends a request a second of each of n users, for a while.
func (tr *traffic) steady(users []string, seconds int, also func(i int)) {
	for i := range seconds {
		for j, user := range users {
			tr.ask(user, time.Duration(j)*second/time.Duration(len(users)))
		}
		if also != nil {
			also(i)
		}
		tr.tick()
	}
}

func (tr *traffic) want(want ...string) {
	tr.t.Helper()
	if got := strings.Join(tr.seen, "\n"); got != strings.Join(want, "\n") {
		tr.t.Errorf("got\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
}

func users(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("user-%05d", i)
	}
	return list
}

const perUser = `
domain: api
limits:
  - {name: user, key: [user], rate: 60/minute}
`

func TestNearLimitRisesAndEnds(t *testing.T) {
	tr := newTraffic(t, "domain: api\nlimits: [{name: user, key: [user], rate: 100/hour, algorithm: fixed_window}]\n", func(s *warning.Settings) {
		s.Off[warning.KeyRefused] = true
	})
	list := users(20)
	spend := func(n int, of []string) {
		for _, user := range of {
			for range n {
				tr.ask(user, 0)
			}
		}
		tr.tick()
	}
	spend(70, list)
	spend(10, list[:8]) // 8 of 20 keys: not most
	spend(10, list[8:]) // all
	spend(12, list)
	spend(20, list)
	tr.want("3s started rule_near_limit user 75%", "4s raised rule_near_limit user 90%", "5s raised rule_near_limit user 100%")
	if got := tr.o.Active(); len(got) != 1 || got[0].Keys < 18 || got[0].Keys > 21 || got[0].Near != got[0].Keys || got[0].Level != 100 {
		t.Errorf("%+v", got)
	}
	tr.seen = nil
	for range 60 {
		tr.tick()
	}
	if len(tr.seen) != 1 || !strings.HasSuffix(tr.seen[0], "ended rule_near_limit user 100%") || len(tr.o.Active()) != 0 {
		t.Errorf("%q", tr.seen)
	}
}

// A limit of one is used up by each request that it is made for; only refusals count.
func TestSmallLimitsAreNotNear(t *testing.T) {
	tr := newTraffic(t, "domain: api\nlimits: [{name: reset, key: [user], rate: 3/hour, algorithm: fixed_window}]\n", nil)
	for i := range 40 {
		for range 3 {
			tr.ask(fmt.Sprint(i), 0)
		}
	}
	tr.tick()
	tr.want()
	for i := range 40 {
		tr.ask(fmt.Sprint(i), 0)
	}
	tr.tick()
	tr.want("2s started rule_near_limit reset 100%")
}

func TestARuleWithoutAKeyIsNearItsLimit(t *testing.T) {
	tr := newTraffic(t, "domain: api\nlimits: [{name: all, rate: 100/hour, algorithm: fixed_window}]\n", nil)
	for _, n := range []int{74, 1, 15, 10, 1} {
		for range n {
			tr.ask("", 0)
		}
		tr.tick()
	}
	tr.want("2s started rule_near_limit all 75%", "3s raised rule_near_limit all 90%", "5s raised rule_near_limit all 100%")
}

func TestTheSameWarningIsNotRepeated(t *testing.T) {
	tr := newTraffic(t, "domain: api\nlimits: [{name: all, rate: 100/hour, algorithm: fixed_window}]\n", nil)
	send := func(n, wait int) {
		for range n {
			tr.ask("", 0)
		}
		for range wait {
			tr.tick()
		}
	}
	send(80, 60)  // starts, and ends at 40 s
	send(1, 60)   // again, but within 15 minutes
	send(11, 60)  // a higher level
	send(1, 1000) // again
	send(1, 60)   // later than 15 minutes
	var got []string
	for _, line := range tr.seen {
		_, what, _ := strings.Cut(line, " ")
		got = append(got, what)
	}
	if want := "started rule_near_limit all 75%, ended rule_near_limit all 75%, started rule_near_limit all 90%, ended rule_near_limit all 90%, " +
		"started rule_near_limit all 90%, ended rule_near_limit all 90%"; strings.Join(got, ", ") != want {
		t.Errorf("got %s", strings.Join(tr.seen, ", "))
	}
}

func TestLongKeysAreCut(t *testing.T) {
	tr := newTraffic(t, "domain: api\nlimits: [{name: user, key: [user, user_2, user_3], rate: 1/hour}]\n", nil)
	tr.steady(nil, 10, func(int) {
		for range 50 {
			tr.ask(strings.Repeat("x", 250), 0)
		}
	})
	if got := tr.o.Active(); len(got) != 1 || len(got[0].Key) != warning.MaxKey || !got[0].Cut {
		t.Errorf("%+v", got)
	}
}

func TestARemovedRuleEndsItsWarnings(t *testing.T) {
	tr := newTraffic(t, "domain: api\nlimits: [{name: all, rate: 10/hour}]\n", nil)
	for range 20 {
		tr.ask("", 0)
	}
	tr.tick()
	empty, _ := rulefile.Parse(rulefile.Source{Name: "rules.yaml", Data: []byte("domain: api\nlimits: []\n")})
	tr.o.SetRules(empty)
	for range 31 {
		tr.tick()
	}
	tr.want("1s started rule_near_limit all 100%", "31s ended rule_near_limit all 100%")
}

// Peeks and refunds are not requests.
func TestPeeksDoNotCount(t *testing.T) {
	tr := newTraffic(t, "domain: api\nlimits: [{name: all, rate: 10/hour}]\n", nil)
	for range 10 {
		tr.ask("", 0)
	}
	tr.seen = nil
	for range 60 {
		tr.tick()
	}
	tr.seen = nil
	for range 50 {
		v, err := tr.e.Decide(t.Context(), engine.Query{Domain: "api", Part: engine.Part{Request: &request{}, Cost: 1, Kind: store.KindPeek}, At: tr.now.UnixMicro()})
		if err != nil || v.Allowed {
			t.Fatal(v.Allowed, err)
		}
		v.Release()
		tr.tick()
	}
	tr.want()
}

// Requests are counted while it looks and while rules are replaced; run with -race.
func TestConcurrently(t *testing.T) {
	tr := newTraffic(t, perUser, nil)
	rs := tr.e.Rules()
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for j := range 5000 {
				v, _ := tr.e.Decide(context.Background(), engine.Query{
					Domain: "api", Part: engine.Part{Request: &request{fmt.Sprint(i*j%700 + 1)}, Cost: 1}, At: tr.begin.UnixMicro() + int64(j)*100,
				})
				v.Release()
			}
		})
	}
	for i := range 200 {
		tr.o.Look(tr.begin.Add(time.Duration(i) * second))
		tr.o.SetRules(rs)
	}
	all.Wait()
}

// BenchmarkDecide shows what watching costs.
func BenchmarkDecide(b *testing.B) {
	requests := make([]*request, 10_000)
	for i, user := range users(len(requests)) {
		requests[i] = &request{user}
	}
	spammer := []*request{{"spammer"}}
	for _, watched := range []bool{false, true} {
		for name, list := range map[string][]*request{"allowed": requests, "refused": spammer} {
			b.Run(fmt.Sprintf("%s,watched=%t", name, watched), func(b *testing.B) {
				tr := newTraffic(b, perUser, nil)
				if !watched {
					tr.e = engine.New(memory.New(), tr.e.Rules())
				}
				b.ReportAllocs()
				at := tr.begin.UnixMicro()
				for i := 0; b.Loop(); i++ {
					if name == "allowed" {
						at += 100
					}
					v, _ := tr.e.Decide(context.Background(), engine.Query{Domain: "api", Part: engine.Part{Request: list[i%len(list)], Cost: 1}, At: at})
					v.Release()
				}
			})
		}
	}
}
