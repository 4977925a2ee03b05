package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/base/lifetime"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/counts/dispatch"
	"github.com/headgate/headgate/internal/decide/admission"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/observe/metrics"
	"github.com/headgate/headgate/internal/queue"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/rulefile"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// sender is a door that sends queued requests to a simulated backend.
type sender struct {
	begin time.Time

	mu      sync.Mutex
	answer  func(uri string) (queue.Answer, error)
	sent    []string // "after uri", in whole seconds because pauses are partly random
	settled []int    // statuses
}

func (*sender) SetQueue(*queue.Queue) {}

func (s *sender) Deliver(_ context.Context, e *queue.Entry, _ int64) (queue.Answer, error) {
	s.mu.Lock()
	s.sent = append(s.sent, fmt.Sprint(time.Since(s.begin).Truncate(time.Second), " ", e.URI))
	answer := s.answer
	s.mu.Unlock()
	if answer != nil {
		return answer(e.URI)
	}
	return queue.Answer{Status: http.StatusOK}, nil
}

func (s *sender) Outcome(told queue.Answer, _ error) *admission.Result {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settled = append(s.settled, told.Status)
	return &admission.Result{From: admission.Upstream, Status: told.Status, Ended: true}
}

func (s *sender) list() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.sent)
}

// unreachable is a store that can be made unavailable.
type unreachable struct {
	store.Store

	away atomic.Bool
}

func (u *unreachable) Do(ctx context.Context, b *store.Batch) {
	b.Each(func(ops []store.Op, out []store.Decision, mode store.Mode) error {
		if u.away.Load() {
			return headgate.ErrUnavailable
		}
		return store.ExecuteAll(ctx, u.Store, ops, out, mode)
	})
}

// bench is a Dispatcher with an engine, a queue in a file and a backend.
type bench struct {
	*dispatch.Dispatcher
	*sender
	t      *testing.T
	engine *engine.Engine
	store  *unreachable
	rules  *rules.Ruleset
	life   lifetime.Lifetime
}

func parse(t testing.TB, limits string) *rules.Ruleset {
	t.Helper()
	rs, problems := rulefile.Parse(rulefile.Source{Name: "r.yaml", Data: []byte("domain: d\nlimits:\n" + limits)})
	if rs == nil {
		t.Fatal(problems)
	}
	return rs
}

// newBench opens and starts a queue with these rules. It must run in a bubble.
func newBench(t *testing.T, limits string) *bench {
	t.Helper()
	b := &bench{t: t, sender: &sender{begin: time.Now()}, rules: parse(t, limits)}
	b.store = &unreachable{Store: memory.New(memory.WithClock(time.Now))}
	b.engine = engine.New(b.store, b.rules)
	b.Dispatcher = dispatch.New(dispatch.Options{
		Config: &config.Config{}, File: filepath.Join(t.TempDir(), "queue"), Engine: b.engine,
		Sends: func() bool { return true }, Sender: func() dispatch.Sender { return b.sender },
		Clock: time.Now, Logger: slog.New(slog.DiscardHandler), Life: &b.life,
	})
	if err := b.Open(b.rules); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.end)
	b.Start()
	b.Start() // the second call does nothing
	return b
}

// end closes the queue like a process that ends.
func (b *bench) end() {
	b.t.Helper()
	b.Drain()
	if err := b.Close(context.Background()); err != nil {
		b.t.Error(err)
	}
	b.life.End()
}

// accept queues entries, named by user and number such as a1. The first rule queues; all rules
// must allow an entry.
func (b *bench) accept(names ...string) {
	b.t.Helper()
	for _, name := range names {
		e := &queue.Entry{ID: queue.NewID(), Domain: "d", Method: http.MethodPost, URI: name, Accepted: time.Now(), Expires: time.Now().Add(time.Hour)}
		for i, r := range b.rules.Rules() {
			parts := make([]rules.KeyPart, 0, 1)
			if len(r.Key) > 0 {
				parts = append(parts, rules.KeyPart{Value: name[:1]})
			}
			key, err := r.ComposeKey(parts)
			if err != nil {
				b.t.Fatal(err)
			}
			if i == 0 {
				e.Rule, e.Scope, e.Key = r.Name, r.Scope, key
			}
			c := queue.Claim{Rule: r.Name, Key: key, Cost: r.Cost}
			if r.Fair != nil {
				c.Owner, c.Weight = string(store.AppendKeyPart(nil, name[:1])), r.Fair.Default
			}
			e.Claims = append(e.Claims, c)
		}
		if _, err := b.Queue().Accept(b.t.Context(), e); err != nil {
			b.t.Fatal(err)
		}
	}
}

// after lets time pass and compares what has been sent by then.
func (b *bench) after(d time.Duration, want ...string) {
	b.t.Helper()
	time.Sleep(d)
	synctest.Wait()
	if got := b.list(); !slices.Equal(got, want) {
		b.t.Errorf("after %s: sent %q, want %q", d, got, want)
	}
}

const jobs = "  - {name: jobs, key: [user], rate: 1/minute, on_limit: {action: queue, retries: 2, backoff: 5s}}\n"

// The entries of a key are sent in order, as fast as the limit allows. Different keys do not
// wait for each other.
func TestEntriesAreSentInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, jobs)
		b.accept("a1", "a2")
		b.after(time.Second, "0s a1")
		b.accept("b1", "a3")
		b.after(58*time.Second, "0s a1", "1s b1")
		b.after(2*time.Second, "0s a1", "1s b1", "1m0s a2")
		b.after(10*time.Minute, "0s a1", "1s b1", "1m0s a2", "2m0s a3")
		if want := []int{200, 200, 200, 200}; !slices.Equal(b.settled, want) {
			t.Errorf("settled %v, want %v", b.settled, want)
		}
	})
}

// For any number of entries and keys, those of a key are sent in order, at the times at which
// its bucket has a token, computed by hand.
func TestLanesAreBuckets(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 12 {
		rate := 1 + r.IntN(4)
		var names []string
		want, counts := map[string][]string{}, map[string]int{}
		for i := range 1 + r.IntN(12) {
			user := string(rune('a' + r.IntN(3)))
			names = append(names, fmt.Sprint(user, i))
			at := max(0, counts[user]-rate+1) * 60 / rate // the burst at once, then one by one
			counts[user]++
			want[user] = append(want[user], fmt.Sprint(time.Duration(at)*time.Second, " ", names[i]))
		}
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, fmt.Sprintf("  - {name: jobs, key: [user], rate: %d/minute, on_limit: queue}\n", rate))
			b.accept(names...)
			time.Sleep(20 * time.Minute)
			synctest.Wait()
			got := map[string][]string{}
			for _, one := range b.list() {
				_, uri, _ := strings.Cut(one, " ")
				got[uri[:1]] = append(got[uri[:1]], one)
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%d a minute: sent %v, want %v", rate, got, want)
			}
		})
	}
}

// Failed deliveries are retried as the rule says. Each attempt counts against the limit, and
// nothing of the key overtakes.
func TestRetriesPassTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, strings.Replace(jobs, "1/minute", "2/minute", 1))
		b.answer = func(uri string) (queue.Answer, error) {
			if uri == "a1" {
				return queue.Answer{}, errors.New("connection refused")
			}
			return queue.Answer{Status: http.StatusOK}, nil
		}
		b.accept("a1", "a2")
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		got := b.list()
		if len(got) == 4 && slices.Contains([]string{"2s a1", "3s a1", "4s a1", "5s a1"}, got[1]) {
			got[1] = "later" // the pause is half random
		}
		if want := []string{"0s a1", "later", "30s a1", "1m0s a2"}; !slices.Equal(got, want) {
			t.Errorf("sent %q, want %q", got, want)
		}
		stats, err := b.Queue().Stats(t.Context())
		if err != nil || len(stats) != 1 || stats[0].Dead != 1 || stats[0].Entries != 0 {
			t.Errorf("%+v, %v, want one dead letter", stats, err)
		}
	})
}

// All limits must allow an entry, including one that all entries share. When that refuses, the
// lanes take turns.
func TestOtherLimitsHoldBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, jobs+"  - {name: all, rate: 1/10s}\n")
		b.accept("a1", "a2", "b1", "c1")
		time.Sleep(time.Hour)
		synctest.Wait()
		var at []time.Duration
		sent := map[string]time.Duration{}
		for _, one := range b.list() {
			after, uri, _ := strings.Cut(one, " ")
			d, err := time.ParseDuration(after)
			if err != nil {
				t.Fatal(err)
			}
			sent[uri] = d.Truncate(5 * time.Second) // the lanes retry at separate times
			at = append(at, sent[uri])
		}
		// Any lane may be first.
		want := []time.Duration{0, 10 * time.Second, 20 * time.Second, sent["a1"] + time.Minute}
		if len(sent) != 4 || !slices.Equal(at, want) || sent["a2"] != want[3] {
			t.Errorf("sent %q, want one each ten seconds, and a2 a minute after a1", b.list())
		}
	})
}

// A slot of a concurrency limit becomes free when an answer arrives. The next entry is sent
// soon after, although its time was not known.
func TestPlacesAreFreedByAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, strings.Replace(jobs, "1/minute", "9/minute", 1)+"  - {name: at-once, concurrency: 1, lease: 1h}\n")
		b.answer = func(string) (queue.Answer, error) {
			time.Sleep(1100 * time.Millisecond)
			return queue.Answer{Status: http.StatusOK}, nil
		}
		b.accept("a1", "b1")
		time.Sleep(time.Minute)
		synctest.Wait()
		got := strings.NewReplacer("a1", "one", "b1", "one", "2s", "1s").Replace(strings.Join(b.list(), ", "))
		if got != "0s one, 1s one" { // either may come first
			t.Errorf("sent %s, want the second a moment after the answer to the first", got)
		}
	})
}

// While the store is unavailable, nothing is sent and nothing is lost.
func TestNothingIsSentWithoutTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, jobs)
		b.store.away.Store(true)
		b.accept("a1")
		b.after(5 * time.Minute)
		b.store.away.Store(false)
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if got := b.list(); len(got) != 1 || !strings.HasSuffix(got[0], " a1") {
			t.Errorf("sent %q, want a1 once", got)
		}
	})
}

// A deleted rule limits nothing, and what it queued is sent.
func TestRulesThatHaveGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, jobs)
		b.accept("a1", "a2", "a3")
		b.after(time.Second, "0s a1")
		b.engine.SetRules(parse(t, "  - {name: other, rate: 1/minute}\n"))
		b.after(time.Hour, "0s a1", "30s a2", "30s a3") // within a minute, and after half of the wait
		if got := b.Queue().Policy("d", "jobs"); got != queue.DefaultPolicy() {
			t.Errorf("%+v, want the default", got)
		}
	})
}

// The policy of a queue comes from its rule. Where all requests have one key, that key may use
// all of the space.
func TestPolicyIsTheRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, "  - {name: keyed, key: [user], rate: 1/s, on_limit: {action: queue, max_entries: 5, max_bytes: 6, max_body: 7, key_share: 20%, "+
			"ttl: 8s, retries: 9, backoff: 1s..3s, concurrency: 4, timeout: 10s, keep: 11s, keep_response: 12}}\n"+
			"  - {name: common, rate: 1/s, on_limit: queue}\n")
		want := queue.Policy{
			MaxEntries: 5, MaxBytes: 6, MaxBody: 7, KeyShare: 20, TTL: 8 * time.Second, Retries: 9, BackoffLeast: time.Second, BackoffMost: 3 * time.Second,
			Concurrency: 4, Timeout: 10 * time.Second, Keep: 11 * time.Second, KeepResponse: 12,
		}
		if got := b.Queue().Policy("d", "keyed"); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
		if got := b.Queue().Policy("d", "common").KeyShare; got != 100 {
			t.Errorf("without a key it may have %d%%, want all", got)
		}
	})
}

// A queue is opened if a rule needs it or the last run left one, and if there is somewhere to
// keep it.
func TestWhereAQueueIsOpened(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	left, none := filepath.Join(dir, "left"), filepath.Join(dir, "none")
	const plain = "  - {name: plain, rate: 1/s}\n"
	for _, row := range []struct {
		name, limits, file, path string
		mute                     bool // no door can send
		open                     bool
		want                     string // of the error
	}{
		{name: "a rule queues", limits: jobs, file: left, open: true},
		{name: "something is left", limits: plain, file: left, open: true},
		{name: "nothing to queue", limits: plain, file: none},
		{name: "nothing to queue, and no file", limits: plain},
		{name: "a file that the operator names", limits: plain, path: filepath.Join(dir, "named"), open: true},
		{name: "no door sends", limits: jobs, file: left, mute: true},
		{name: "nowhere", limits: jobs, want: `r.yaml:3:5: rule "jobs" queues requests, but no queue file is set`},
		{name: "a path below a file", limits: jobs, path: filepath.Join(left, "queue"), want: "queue.path"},
	} {
		var life lifetime.Lifetime
		d := dispatch.New(dispatch.Options{
			Config: &config.Config{Queue: config.Queue{Path: row.path}}, File: row.file, Engine: engine.New(memory.New(), parse(t, row.limits)),
			Sends: func() bool { return !row.mute }, Sender: func() dispatch.Sender { return nil },
			Clock: time.Now, Logger: slog.New(slog.DiscardHandler), Life: &life,
		})
		err := d.Open(parse(t, row.limits))
		var source *config.SourceError
		if (err == nil) != (row.want == "") || err != nil && (!errors.As(err, &source) || !strings.Contains(err.Error(), row.want)) || (d.Queue() != nil) != row.open {
			t.Errorf("%s: %v, open: %v", row.name, err, d.Queue() != nil)
		}
		d.Start() // nothing without a sender
		life.End()
		if d.Queue() != nil {
			t.Errorf("%s: still open at the end", row.name)
		}
	}
	if _, err := os.Stat(none); err == nil {
		t.Error("an unneeded file was created")
	}
}

// The metrics show, for each queue, how much is waiting and the results.
func TestDescribe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, jobs)
		b.accept("a1", "a2", "a3")
		b.after(time.Second, "0s a1")
		asked := &metrics.Asked{}
		b.Describe(asked)
		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(asked)
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]float64{}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				name := strings.TrimPrefix(f.GetName(), "headgate_queue_")
				for _, l := range m.GetLabel() {
					name += " " + l.GetValue()
				}
				got[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
		for name, want := range map[string]float64{
			"depth d jobs": 2, "oldest_seconds d jobs": 1, "dead d jobs": 0, "in_flight d jobs": 0, "accepted_total d new jobs": 3,
			"accepted_total d full jobs": 0, "accepted_total d repeated jobs": 0, "delivered_total d jobs": 1, "failed_total d jobs": 0, "dead_total d jobs": 0,
		} {
			if n, ok := got[name]; !ok || n != want {
				t.Errorf("%s is %v, want %v: %v", name, n, want, got)
			}
		}
	})
}

// Rules that change wake what waits.
func TestReloadWakesWhatWaits(t *testing.T) {
	for name, limits := range map[string]string{
		"raised":  "  - {name: jobs, key: [user], rate: 100/minute, on_limit: queue}\n",
		"shadow":  "  - {name: jobs, key: [user], rate: 1/hour, percent: 0, on_limit: queue}\n",
		"deleted": "  - {name: others, key: [user], rate: 1/hour}\n",
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, "  - {name: jobs, key: [user], rate: 1/hour, on_limit: queue}\n")
			b.accept("a1", "a2")
			b.after(10*time.Second, "0s a1")
			b.engine.SetRules(parse(t, limits))
			b.Start()
			if b.after(time.Second, "0s a1", "10s a2"); t.Failed() {
				t.Fatal(name)
			}
		})
	}
}

// A key that may do nothing for some time keeps what waits, as a banned one does: from the start, and
// if that becomes due meanwhile. What expires before is given up.
func TestOverrideThatEndsBefore(t *testing.T) {
	for _, limits := range []string{
		"  - {name: jobs, key: [user], rate: 1/minute, on_limit: queue}\n",
		"  - {name: jobs, rate: 1/minute, on_limit: queue}\n  - {name: users, key: [user], algorithm: sliding_log, rate: 1/minute, count_denied: true}\n",
	} {
		for lasts, sent := range map[time.Duration]int{10 * time.Minute: 3, 2 * time.Hour: 0} {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, limits)
				all := b.rules.Rules()
				of := all[len(all)-1]
				key, err := of.ComposeKey([]rules.KeyPart{{Value: "a"}})
				if err != nil {
					t.Fatal(err)
				}
				nothing, err := of.WithLimit("0/minute", 0)
				if err != nil {
					t.Fatal(err)
				}
				now := time.Now()
				b.engine.SetExceptions(engine.NewExceptions([]engine.Exception{{
					Scope: of.Scope, Key: key, LimitUntil: now.Add(lasts).UnixMicro(),
					Instead: []engine.Instead{{Of: of.Base(), Rule: nothing}},
				}}, now.UnixMicro()))
				b.accept("a1", "a2", "a3")
				b.after(9 * time.Minute)
				time.Sleep(4 * time.Minute)
				stats, err := b.Queue().Stats(t.Context())
				if s := stats[0]; err != nil || int(s.Delivered) != sent || int(s.Dead) != 3-sent {
					t.Errorf("an override of %s: %+v %v, want %d sent and the others dead letters", lasts, s, err, sent)
				}
			})
		}
	}
}
