package candidate_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/observe/candidate"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/rulefile"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// start is when all tests start.
var start = time.Date(2026, 11, 21, 11, 0, 12, 0, time.UTC)

// request is a rules.Request of plain attributes.
type request struct{ path, user string }

func (r *request) Attribute(a rules.Attribute) (string, bool) {
	switch {
	case a.Kind == rules.Path:
		return r.path, true
	case a.Kind == rules.Method:
		return http.MethodGet, true
	case a.Name == "user" && r.user != "":
		return r.user, true
	}
	return "", false
}

func (r *request) ClientIP() netip.Addr { return netip.Addr{} }

func parse(t testing.TB, text string) *rules.Ruleset {
	t.Helper()
	rs, problems := rulefile.Parse(rulefile.Source{Name: "rules.yaml", Data: []byte(text)})
	if rs == nil {
		t.Fatal(problems)
	}
	return rs
}

// limits returns rules of one window for each of the pairs name=rate, all of which
// apply to /a.
func limits(pairs ...string) string {
	var b strings.Builder
	b.WriteString("domain: api\nlimits:\n")
	for _, p := range pairs {
		name, rate, _ := strings.Cut(p, "=")
		fmt.Fprintf(&b, "  - {name: %s, match: {path: /a}, key: [user], rate: %s, algorithm: fixed_window}\n", name, rate)
	}
	return b.String()
}

// fixture is a set of live rules and a candidate.
type fixture struct {
	live      *engine.Engine
	liveStore *memory.Store
	*candidate.Candidate
	now time.Time
}

func newFixture(t testing.TB, live, tried string) *fixture {
	t.Helper()
	f := &fixture{Candidate: candidate.New(memory.New()), liveStore: memory.New(), now: start}
	f.SetRules(parse(t, tried), f.now)
	f.live = engine.New(f.liveStore, parse(t, live), engine.WithObserver(f.Candidate))
	return f
}

// ask decides a request and reports whether it passed.
func (f *fixture) ask(t testing.TB, path, user string, change ...func(*engine.Query)) bool {
	t.Helper()
	q := engine.Query{Domain: "api", Part: engine.Part{Request: &request{path, user}, Cost: 1}, At: f.now.UnixMicro(), Door: engine.DoorProxy}
	for _, c := range change {
		c(&q)
	}
	v, err := f.live.Decide(context.Background(), q)
	if err != nil && !errors.Is(err, headgate.ErrUnavailable) {
		t.Fatal(err)
	}
	defer v.Release()
	return v.Allowed
}

// counted returns the counts of the report in one line.
func (f *fixture) counted(t testing.TB) string {
	t.Helper()
	r, ok := f.Report(10)
	if !ok {
		return "nothing is compared"
	}
	return line(r.Counts)
}

func line(counts [candidate.Changes]uint64) string {
	var words []string
	for c, n := range counts {
		if n > 0 {
			words = append(words, fmt.Sprintf("%s %d", candidate.Change(c), n))
		}
	}
	return strings.Join(words, ", ")
}

// because returns the reasons in a report, one per line.
func because(r *candidate.Report) (lines []string) {
	for _, by := range r.By {
		text := fmt.Sprintf("%s %s.%s %d:", by.Change, by.Domain, by.Rule, by.Keys.Total)
		for _, k := range by.Keys.Keys {
			parts, _ := rules.SplitKey(k.Key)
			for _, p := range parts {
				text += fmt.Sprintf(" %s=%d", p.Value, k.Count)
			}
		}
		lines = append(lines, text)
	}
	return lines
}

func TestWhatChanges(t *testing.T) {
	rows := []struct {
		name, live, tried string
		asks              string // users, one letter each
		want              string
		because           []string
	}{
		{"the same", limits("a=2/minute"), limits("a=2/minute"), "xxxy", "same_allowed 3, same_refused 1", nil},
		{
			"stricter", limits("a=4/minute"), limits("a=2/minute"), "xxxxxyy", "same_allowed 4, same_refused 1, newly_refused 2",
			[]string{"newly_refused api.a 2: x=2"},
		},
		{
			"looser", limits("a=1/minute"), limits("a=3/minute"), "xxxxyy", "same_allowed 2, same_refused 1, newly_allowed 3",
			[]string{"newly_allowed api.a 3: x=2 y=1"},
		},
		{
			"another rule, another name", limits("old=1/minute"), limits("new=2/minute", "tight=1/hour"), "xx",
			"same_allowed 1, same_refused 1", nil,
		},
		{
			"a rule that is new", limits("a=9/minute"), limits("a=9/minute", "b=1/minute"), "xxxyy", "same_allowed 2, newly_refused 3",
			[]string{"newly_refused api.b 3: x=2 y=1"},
		},
		{
			"only observed", limits("a=9/minute"), "domain: api\nlimits: [{name: a, match: {path: /a}, rate: 1/minute, mode: shadow}]", "xxx",
			"same_allowed 3", nil,
		},
		{"another domain", limits("a=1/minute"), "domain: web\nlimits: [{name: a, rate: 1/minute}]", "xx", "not_compared 2", nil},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			f := newFixture(t, row.live, row.tried)
			for _, user := range row.asks {
				f.ask(t, "/a", string(user))
			}
			if got := f.counted(t); got != row.want {
				t.Errorf("%s, want %s", got, row.want)
			}
			r, _ := f.Report(10)
			if got := because(&r); !slices.Equal(got, row.because) {
				t.Errorf("because of %q, want %q", got, row.because)
			}
		})
	}
}

// The live counts are the same as without a candidate, and the candidate's the same as
// without live rules.
func TestCountsAreApart(t *testing.T) {
	const live, tried = 7, 3
	f := newFixture(t, limits(fmt.Sprintf("a=%d/minute", live)), limits(fmt.Sprintf("a=%d/minute", tried)))
	alone := [2]*engine.Engine{
		engine.New(memory.New(), parse(t, limits(fmt.Sprintf("a=%d/minute", live)))),
		engine.New(memory.New(), parse(t, limits(fmt.Sprintf("a=%d/minute", tried)))),
	}
	var want [candidate.Changes]uint64
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 5000 {
		f.now = f.now.Add(time.Duration(random.IntN(2000)) * time.Millisecond)
		q := engine.Query{
			Domain: "api", Part: engine.Part{Request: &request{"/a", fmt.Sprint(random.IntN(5))}, Cost: 1 + random.Int64N(2)}, At: f.now.UnixMicro(),
		}
		var passed [2]bool
		for j, e := range alone {
			v, err := e.Decide(context.Background(), q)
			if err != nil {
				t.Fatal(err)
			}
			passed[j] = v.Allowed
			v.Release()
		}
		v, err := f.live.Decide(context.Background(), q)
		if err != nil || v.Allowed != passed[0] {
			t.Fatalf("request %d: %v, %v; alone it is %v", i, v.Allowed, err, passed[0])
		}
		v.Release()
		switch {
		case passed == [2]bool{true, true}:
			want[candidate.SameAllowed]++
		case passed == [2]bool{}:
			want[candidate.SameRefused]++
		case passed[0]:
			want[candidate.NewlyRefused]++
		default:
			want[candidate.NewlyAllowed]++
		}
	}
	if got := f.counted(t); got != line(want) || want[candidate.NewlyRefused] == 0 {
		t.Errorf("%s, want %s", got, line(want))
	}
}

// A request that only peeks is not compared: a candidate would not change it.
func TestWhoOnlyAsksIsNotCompared(t *testing.T) {
	f := newFixture(t, limits("a=4/minute"), limits("a=1/minute"))
	f.ask(t, "/a", "x", func(q *engine.Query) { q.Kind = store.KindPeek })
	f.ask(t, "/a", "x", func(q *engine.Query) { q.Cost = 0 })
	if got := f.counted(t); got != "" {
		t.Errorf("%s", got)
	}
	f.ask(t, "/a", "x")
	if got := f.counted(t); got != "same_allowed 1" {
		t.Errorf("%s: the candidate has counted what took nothing", got)
	}
}

// broken is a store that is unreachable.
type broken struct{ store.Store }

func (broken) Do(_ context.Context, b *store.Batch) { b.Fail(headgate.ErrUnavailable) }

// An answer without the store says nothing about the rules, but the candidate still
// counts the request.
func TestAnswersWithoutTheStoreAreNotCompared(t *testing.T) {
	f := newFixture(t, limits("a=4/minute"), limits("a=1/minute"))
	working := f.live
	f.live = engine.New(broken{}, parse(t, limits("a=4/minute")), engine.WithObserver(f.Candidate))
	f.ask(t, "/a", "x")
	f.live = working
	f.ask(t, "/a", "x")
	if got := f.counted(t); got != "newly_refused 1, not_compared 1" {
		t.Errorf("%s", got)
	}
}

func TestRequestsOfSeveralParts(t *testing.T) {
	f := newFixture(t, limits("a=9/minute"), limits("a=2/minute"))
	send := func(kind store.Kind, users ...string) {
		q := engine.Query{Domain: "api", At: f.now.UnixMicro(), Door: engine.DoorGRPC}
		for _, u := range users {
			q.Parts = append(q.Parts, engine.Part{Request: &request{"/a", u}, Cost: 1, Kind: kind})
		}
		v, err := f.live.Decide(context.Background(), q)
		if err != nil {
			t.Fatal(err)
		}
		v.Release()
	}
	send(store.KindTake, "x", "y")
	send(store.KindTake, "x", "y")
	send(store.KindTake, "x", "z") // x has none left under the candidate
	send(store.KindPeek, "x")
	if got := f.counted(t); got != "same_allowed 2, newly_refused 1" {
		t.Errorf("%s", got)
	}
	r, _ := f.Report(10)
	if got := because(&r); !slices.Equal(got, []string{"newly_refused api.a 1: x=1"}) {
		t.Errorf("%q", got)
	}
	send(store.KindRefund, "x")
	send(store.KindTake, "x")
	if got := f.counted(t); got != "same_allowed 3, newly_refused 1" {
		t.Errorf("%s: what was given back is not there", got)
	}
}

// A banned client stays banned after a promotion, by rules that keep their name, and an
// override stays active.
func TestBansAndOverridesHold(t *testing.T) {
	f := newFixture(t, limits("a=4/minute"), limits("a=2/minute"))
	f.Follow(f.live)
	live := f.live.Rules().Rule("api", "a")
	more := *live
	more.Limit = headgate.Per(3, time.Minute).WithAlgorithm(headgate.FixedWindow)
	until := f.now.Add(time.Hour).UnixMicro()
	f.live.SetExceptions(engine.NewExceptions([]engine.Exception{
		{Scope: live.Scope, Key: "\x01b", BannedUntil: until},
		{Scope: live.Scope, Key: "\x01o", LimitUntil: until, Instead: []engine.Instead{{Of: live, Rule: &more}}},
	}, f.now.UnixMicro()))
	for _, user := range "bbooooxxx" {
		f.ask(t, "/a", string(user))
	}
	if got := f.counted(t); got != "same_allowed 5, same_refused 3, newly_refused 1" {
		t.Error(got)
	}
	f.live.SetExceptions(nil)
	f.ask(t, "/a", "b")
	if got := f.counted(t); got != "same_allowed 6, same_refused 3, newly_refused 1" {
		t.Errorf("after the ban: %s", got)
	}
}

// A candidate does not learn when a request ends, so it does not count requests in
// progress.
func TestWhatIsUnderWayIsLeftOut(t *testing.T) {
	busy := "  - {name: busy, match: {path: /a}, key: [user], concurrency: 1}\n"
	for _, row := range []struct{ name, live, tried, asks, want string }{
		{"alone", limits("a=9/minute"), "domain: api\nlimits:\n" + busy, "xxx", "same_allowed 3"},
		{"with one", limits("a=9/minute"), limits("a=2/minute") + busy, "xxx", "same_allowed 2, newly_refused 1"},
		{"with two", limits("a=9/minute"), limits("a=9/minute", "b=2/minute") + busy, "xxxx", "same_allowed 2, newly_refused 2"},
		{"live", limits("a=9/minute") + busy, limits("a=1/minute"), "xxxy", "same_allowed 2, not_compared 2"},
	} {
		t.Run(row.name, func(t *testing.T) {
			f := newFixture(t, row.live, row.tried)
			for _, user := range row.asks {
				f.ask(t, "/a", string(user))
			}
			if got := f.counted(t); got != row.want {
				t.Errorf("%s, want %s", got, row.want)
			}
		})
	}
}

func TestReloadAndReset(t *testing.T) {
	f := newFixture(t, limits("a=9/minute"), limits("a=2/minute"))
	for range 3 {
		f.ask(t, "/a", "x")
	}
	f.now = f.now.Add(time.Second)
	f.Reset(f.now)
	if r, _ := f.Report(1); !r.Since.Equal(f.now) || len(r.Samples) != 0 || len(r.By) != 0 {
		t.Errorf("after a reset: %+v", r)
	}
	f.ask(t, "/a", "x")
	if got := f.counted(t); got != "newly_refused 1" {
		t.Errorf("after a reset: %s: the candidate's counts are gone", got)
	}
	f.SetRules(parse(t, limits("a=5/minute")), f.now)
	f.ask(t, "/a", "x")
	f.ask(t, "/a", "x")
	f.ask(t, "/a", "x")
	f.ask(t, "/a", "x")
	if got := f.counted(t); got != "same_allowed 3, newly_refused 1" {
		t.Errorf("after a reload: %s, of which the 2 before count", got)
	}
	f.SetRules(nil, f.now)
	f.ask(t, "/a", "x")
	f.Reset(f.now)
	if got := f.counted(t); got != "nothing is compared" {
		t.Errorf("without rules: %s", got)
	}
	if got := line(f.Totals()); got != "same_allowed 5, newly_refused 3" {
		t.Errorf("in all: %s", got)
	}
}

func TestSamples(t *testing.T) {
	f := newFixture(t, limits("a=9999/minute"), limits("a=0/minute"))
	f.ask(t, "/a", "x")
	r, _ := f.Report(1)
	s := r.Samples[0]
	if len(r.Samples) != 1 || s.Change != candidate.NewlyRefused || s.Rule != "a" || s.Domain != "api" || s.Key != "\x01x" || s.Method != http.MethodGet ||
		s.Path != "/a" || s.Door != engine.DoorProxy || !s.At.Equal(start) || s.Decision.Allowed || s.Decision.RetryAfter != headgate.Never {
		t.Errorf("%+v", r.Samples)
	}
	for range 100 {
		f.ask(t, "/a", "x")
	}
	f.now = f.now.Add(time.Second)
	f.ask(t, "/a", "late")
	f.ask(t, "/a", "too late")
	r, _ = f.Report(1)
	if last := r.Samples[len(r.Samples)-1]; len(r.Samples) != 20 || last.Key != "\x04late" {
		t.Errorf("%d samples, the last of %q; want 20, of which one a second is new", len(r.Samples), last.Key)
	}
}

// A path that a rule hashes is a secret, whatever requests the rule is about, in either rules.
func TestSamplesWithoutAHashedPath(t *testing.T) {
	for rule, want := range map[string]string{
		"key: [\"hash:path\"]": "", "key: [\"hash:path:1\"], mode: shadow": "", "key: [\"hash:path\"], match: {path: /b}": "",
		"key: [\"hash:host\"]": "/a", "key: path": "/a",
	} {
		other := "\n  - {name: bots, " + rule + ", rate: 9/minute}\n"
		for _, others := range [][2]string{{other, other}, {other, ""}, {"", other}} {
			f := newFixture(t, limits("a=9999/minute")+others[0], limits("a=0/minute")+others[1])
			f.ask(t, "/a", "x")
			if r, _ := f.Report(1); len(r.Samples) != 1 || r.Samples[0].Path != want {
				t.Errorf("%q: %+v, want the path %q", others, r.Samples, want)
			}
		}
	}
}

// What is known of the rules that apply, as where requests may be queued, is known of the live ones.
func TestCandidateMatchesItself(t *testing.T) {
	f := newFixture(t, limits("a=9/minute"), limits("a=0/minute"))
	var m rules.Matches
	known := f.live.Rules().Match("api", &request{"/a", "x"}, &m)
	f.ask(t, "/a", "x", func(q *engine.Query) { q.Matched = &engine.Matched{Known: known, Checks: m.Checks} })
	if got := f.counted(t); got != "newly_refused 1" {
		t.Errorf("%s, want a request that is refused by the candidate", got)
	}
}

// However many rules and keys there are, memory is bounded.
func TestMemoryIsBounded(t *testing.T) {
	f := newFixture(t, limits("r=9/minute"), limits("r=0/minute"))
	for i := range 2000 {
		f.ask(t, "/a", fmt.Sprint("user-", i%200))
	}
	r, _ := f.Report(1000)
	if len(r.By) != 1 || len(r.By[0].Keys.Keys) != 64 || r.By[0].Keys.Total != 1800 || r.By[0].Keys.Bound == 0 {
		t.Errorf("%d rules, %d keys of %d", len(r.By), len(r.By[0].Keys.Keys), r.By[0].Keys.Total)
	}
	var b strings.Builder
	b.WriteString("domain: api\nlimits:\n")
	for i := range 1200 {
		fmt.Fprintf(&b, "  - {name: r%d, match: {path: /%d}, rate: 0/minute}\n", i, i)
	}
	f.SetRules(parse(t, b.String()), f.now)
	for i := range 1200 {
		f.ask(t, fmt.Sprint("/", i), "x")
	}
	r, _ = f.Report(1)
	if len(r.By) != 1001 || r.By[0].Rule != candidate.Other || r.By[0].Keys.Total != 200 {
		t.Errorf("%d rules, first %+v", len(r.By), r.By[0])
	}
}

// Concurrent requests, with resets and reloads in between: no total is lost.
func TestManyAtOnce(t *testing.T) {
	f := newFixture(t, limits("a=50/minute"), limits("a=20/minute"))
	const callers, each = 4, 500
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			for range each {
				f.ask(t, "/a", fmt.Sprint(i%2))
			}
		})
	}
	for range 20 {
		f.Reset(f.now)
		f.SetRules(f.Rules(), f.now)
		f.Report(10)
	}
	wg.Wait()
	var all uint64
	totals := f.Totals()
	for _, n := range totals {
		all += n
	}
	if all != callers*each || totals[candidate.SameAllowed] != 40 || totals[candidate.NewlyRefused] != 60 {
		t.Errorf("%s", line(totals))
	}
}

// A limit that came with the request is not compared: candidate rules do not change it.
func TestLimitsInRequestsAreNotCompared(t *testing.T) {
	f := newFixture(t, limits("a=1/minute"), limits("a=5/minute"))
	rule := &rules.Rule{Domain: "(inline)", Name: "inline", Scope: "%inline", Limit: headgate.PerMinute(1), Index: rules.IndexInline, Cost: 1, Percent: 100}
	for i := range 2 {
		v, err := f.live.Decide(t.Context(), engine.Query{Part: engine.Part{Request: &request{}, Cost: 1, Rule: rule, Key: "\x03ann"}, At: start.UnixMicro()})
		if err != nil || v.Allowed != (i == 0) || !v.Known || v.Rule != rule {
			t.Errorf("%d: %+v, %v", i, v, err)
		}
		v.Release()
	}
	if got := f.Totals(); got != [candidate.Changes]uint64{} {
		t.Errorf("%v", got)
	}
}
