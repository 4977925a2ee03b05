package proxy_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/decide/admission"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/door/proxy"
	"github.com/headgate/headgate/internal/queue"
	"github.com/headgate/headgate/internal/queue/file"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

const laterRules = `
domain: api
limits:
  - name: later
    key: ["header:X-Tenant"]
    rate: 1/second
    burst: 1
    on_limit: {action: queue, max_body: 10, status: 503}
  - {name: all, rate: 100/second, match: {path: /all}, on_limit: {action: reject}}
`

// later is a proxy with a queue in a file. It notes the time, method, URI and body of
// each request that reaches the upstream.
type later struct {
	*proxy.Proxy
	t       *testing.T
	queue   *queue.Queue
	policy  queue.Policy
	mute    atomic.Bool // the queue does not say whether anybody waits
	mu      sync.Mutex
	arrived []string
	headers []http.Header
}

type muteStore struct {
	queue.Store
	mute *atomic.Bool
}

func (s muteStore) Waiting(ctx context.Context, l queue.Line) (bool, error) {
	if s.mute.Load() {
		return false, queue.ErrUnavailable
	}
	return s.Store.Waiting(ctx, l)
}

func newLater(t *testing.T, change ...func(*proxy.Options)) *later {
	t.Helper()
	return newLaterOf(t, laterRules, made, change...)
}

// made is the answer of an upstream.
func made(r *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: http.StatusCreated, Header: http.Header{"Content-Type": {"text/plain"}},
		Body: io.NopCloser(strings.NewReader("made")), Request: r, ProtoMajor: 1, ProtoMinor: 1,
	}, nil
}

// newLaterOf returns a later with the given rules and upstream.
func newLaterOf(t *testing.T, rulesText string, answer upstream, change ...func(*proxy.Options)) *later {
	t.Helper()
	l := &later{t: t, policy: queue.DefaultPolicy()}
	l.policy.MaxBody = 10
	begin := time.Now()
	var e *engine.Engine
	l.Proxy = newProxy(t, rulesText, memory.New(memory.WithClock(time.Now)), func(r *http.Request) (*http.Response, error) {
		var body []byte
		if r.Body != nil {
			body, _ = io.ReadAll(r.Body)
		}
		l.mu.Lock()
		l.arrived = append(l.arrived, strings.Join([]string{time.Since(begin).String(), r.Method, r.URL.String(), string(body)}, " "))
		l.headers = append(l.headers, r.Header)
		l.mu.Unlock()
		return answer(r)
	}, append(change, func(o *proxy.Options) { e, o.StatusPath = o.Engine, "/later/" })...)
	store, _, err := file.Open(file.Options{Path: filepath.Join(t.TempDir(), "queue"), Clock: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	l.queue = queue.New(queue.Options{
		Store: muteStore{store, &l.mute}, Clock: time.Now, Logger: slog.New(slog.DiscardHandler), Random: func(int64) int64 { return 0 },
		Policy: func(string, string) queue.Policy { return l.policy }, Send: l.Deliver,
		Take: func(ctx context.Context, r *queue.Ref, at time.Time) (queue.Permit, error) {
			var claims []engine.Claim
			for _, c := range r.Claims {
				claims = append(claims, engine.Claim(c))
			}
			pass, asker := new(admission.Pass), admission.Asker{Engine: e, Clock: time.Now, Logger: slog.New(slog.DiscardHandler)}
			err := pass.BeginAgain(ctx, &asker, r.Domain, claims, at.UnixMicro())
			settle := func(told queue.Answer, err error) { pass.Settle(ctx, l.Outcome(told, err)) }
			return queue.Permit{Allowed: pass.Allowed, RetryAfter: pass.Decision.RetryAfter, Own: true, Settle: settle}, err
		},
	})
	l.SetQueue(l.queue)
	l.queue.Start()
	return l
}

// ask sends a request and returns the answer.
func (l *later) ask(method, target, body string, header ...string) *httptest.ResponseRecorder {
	l.t.Helper()
	r := httptest.NewRequestWithContext(l.t.Context(), method, target, strings.NewReader(body))
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	l.ServeHTTP(w, r)
	return w
}

func (l *later) want(arrived ...string) {
	l.t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if diff := cmp.Diff(arrived, l.arrived); diff != "" {
		l.t.Error(diff)
	}
}

// idOf returns the id of a 202.
func idOf(t *testing.T, w *httptest.ResponseRecorder) string {
	t.Helper()
	var body struct {
		ID        string
		StatusURL string `json:"status_url"`
	}
	if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil || w.Code != http.StatusAccepted {
		t.Fatalf("%d %s: %v", w.Code, w.Body, err)
	}
	if body.StatusURL != w.Header().Get("Location") || body.StatusURL != "/later/"+body.ID || w.Header().Get("Retry-After") != "" {
		t.Errorf("%s, %v", w.Body, w.Header())
	}
	return body.ID
}

func TestQueuedRequestsArriveLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLater(t)
		if w := l.ask("POST", "/a?x=1", "one"); w.Code != http.StatusCreated {
			t.Fatalf("%d", w.Code)
		}
		second := idOf(t, l.ask("POST", "/a?x=2&y=%zz&a;b", "two", "Connection", "X-Hop", "X-Hop", "1", "Authorization", "Bearer x", "X-Forwarded-For", "1.2.3.4"))
		third := idOf(t, l.ask("PUT", "http://shop.example/a%2Fb", "three", "Idempotency-Key", "mine"))
		time.Sleep(time.Minute)
		l.want(
			"0s POST http://upstream.example/a?x=1 one", "1s POST http://upstream.example/a?x=2 two",
			"2s PUT http://upstream.example/a%2Fb three",
		)
		h := l.headers[1]
		if h.Get("Idempotency-Key") != second || h.Get("X-Hop") != "" || h.Get("Authorization") != "Bearer x" ||
			h.Get("X-Forwarded-For") != "192.0.2.1" || l.headers[2].Get("Idempotency-Key") != "mine" {
			t.Errorf("%v", l.headers)
		}
		status := l.ask("GET", "/later/"+third, "")
		if status.Code != http.StatusOK || !strings.Contains(status.Body.String(), `"state":"delivered"`) || !strings.Contains(status.Body.String(), `"response":{"status":201`) {
			t.Errorf("%d %s", status.Code, status.Body)
		}
		if w := l.ask("GET", "/later/nobody", ""); w.Code != http.StatusNotFound {
			t.Errorf("%d", w.Code)
		}
		if w := l.ask("DELETE", "/later/"+third, ""); w.Code != http.StatusMethodNotAllowed {
			t.Errorf("%d", w.Code)
		}
		if err := l.queue.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// New requests of a key queue behind those that wait, even if the limit allows them;
// those of other keys do not.
func TestNobodyOvertakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLater(t)
		l.queue.Drain() // nothing is sent from it
		l.ask("POST", "/1", "")
		idOf(t, l.ask("POST", "/2", ""))
		time.Sleep(10 * time.Second)
		idOf(t, l.ask("POST", "/3", ""))
		if w := l.ask("POST", "/other", "", "X-Tenant", "b"); w.Code != http.StatusCreated {
			t.Errorf("%d", w.Code)
		}
		l.want("0s POST http://upstream.example/1 ", "10s POST http://upstream.example/other ")
		if err := l.queue.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// takes is a store that counts takes.
type takes struct {
	store.Store
	n      atomic.Int64
	looked func() // called after a peek at several limits; may be nil
}

func (s *takes) Do(ctx context.Context, b *store.Batch) {
	b.Each(func(ops []store.Op, out []store.Decision, mode store.Mode) error {
		for i := range ops {
			if ops[i].Kind == store.KindTake {
				s.n.Add(1)
			}
		}
		err := store.ExecuteAll(ctx, s.Store, ops, out, mode)
		if s.looked != nil && ops[0].Kind == store.KindPeek {
			s.looked()
		}
		return err
	})
}

// told is an observer of decisions.
type told func(engine.Verdict)

func (f told) Observe(_ context.Context, d *engine.Decided) {
	if d.Query.Kind == store.KindTake {
		f(*d.Verdict)
	}
}

// While requests wait, new ones take nothing that those wait for, not even to refund
// it: otherwise a flood of them could take everything that refills.
func TestNewRequestsRobNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &takes{Store: memory.New(memory.WithClock(time.Now))}
		var seen []string
		l := newLater(t, func(o *proxy.Options) {
			o.Engine = engine.New(store, o.Engine.Rules(), engine.WithObserver(told(func(v engine.Verdict) {
				seen = append(seen, v.Outcome().String())
			})))
		})
		l.queue.Drain()
		l.ask("POST", "/1", "")
		idOf(t, l.ask("POST", "/2", ""))
		before := store.n.Load()
		idOf(t, l.ask("POST", "/3", "")) // the limit is used up
		time.Sleep(10 * time.Second)
		idOf(t, l.ask("POST", "/4", "")) // it has refilled
		idOf(t, l.ask("POST", "/all/5", ""))
		if got := store.n.Load() - before; got != 0 {
			t.Errorf("what waits was robbed %d times", got)
		}
		if w := l.ask("POST", "/other", "", "X-Tenant", "b"); w.Code != http.StatusCreated || store.n.Load() != before+1 {
			t.Errorf("another key: %d", w.Code)
		}
		if diff := cmp.Diff([]string{"allowed", "queued", "queued", "queued", "queued", "allowed"}, seen); diff != "" {
			t.Errorf("the observer is told of %s", diff)
		}
		if err := l.queue.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A request that another limit refuses in the peek still queues if that limit would
// allow it a moment later: waiting requests come first.
func TestNobodyOvertakesBetweenTwoQuestions(t *testing.T) {
	const text = `
domain: api
limits:
  - {name: places, concurrency: 1}
  - {name: orders, key: ["header:X-Tenant"], rate: 1/second, burst: 1, on_limit: queue}
`
	synctest.Test(t, func(t *testing.T) {
		store, ends := &takes{Store: memory.New(memory.WithClock(time.Now))}, make(chan struct{})
		l := newLaterOf(t, text, func(r *http.Request) (*http.Response, error) {
			if r.URL.Path == "/slow" {
				<-ends
			}
			return ok(r)
		}, func(o *proxy.Options) { o.Engine = engine.New(store, o.Engine.Rules()) })
		l.queue.Drain()
		l.ask("POST", "/1", "", "X-Tenant", "a")
		idOf(t, l.ask("POST", "/2", "", "X-Tenant", "a"))
		time.Sleep(10 * time.Second) // the limit has refilled
		slow := make(chan int, 1)
		go func() { slow <- l.ask("POST", "/slow", "", "X-Tenant", "b").Code }()
		synctest.Wait()
		store.looked = func() {
			store.looked = nil
			close(ends)
			time.Sleep(time.Millisecond)
		}
		idOf(t, l.ask("POST", "/3", "", "X-Tenant", "a"))
		if got := <-slow; got != http.StatusOK {
			t.Errorf("the slow one: %d", got)
		}
		if err := l.queue.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// While requests of a key wait, a new one of that key queues behind them even if a limit
// without a key refuses it: in that limit's queue it would overtake them.
func TestNobodyOvertakesByTheQueueOfAll(t *testing.T) {
	const text = `
domain: api
limits:
  - {name: all, rate: 4/second, burst: 4, on_limit: queue}
  - {name: orders, key: ["header:X-Tenant"], rate: 1/second, burst: 1, on_limit: queue}
`
	synctest.Test(t, func(t *testing.T) {
		l := newLaterOf(t, text, ok)
		var want []string
		for i := range 12 {
			uri := "/" + strconv.Itoa(i)
			l.ask("POST", uri, "", "X-Tenant", "a")
			want = append(want, uri)
			for other := range 4 { // these use up the limit without a key
				l.ask("POST", "/other", "", "X-Tenant", strconv.Itoa(other))
			}
			time.Sleep(250 * time.Millisecond)
		}
		time.Sleep(5 * time.Minute)
		if err := l.queue.Close(t.Context()); err != nil {
			t.Error(err)
		}
		var got []string
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, line := range l.arrived {
			if uri, ok := strings.CutPrefix(strings.Fields(line)[2], "http://upstream.example"); ok && uri != "/other" {
				got = append(got, uri)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
}

func TestWhatCannotBeQueuedIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLater(t)
		l.queue.Drain()
		l.policy.MaxEntries, l.policy.KeyShare = 2, 100
		l.ask("POST", "/1", "")
		first := idOf(t, l.ask("POST", "/2", "b", "Idempotency-Key", "k"))
		for _, c := range []struct {
			name, body, key string
			header          string
			status          int
		}{
			{"a body that is too large", "01234567890", "", "", http.StatusServiceUnavailable},
			{"an upgrade", "", "", "websocket", http.StatusServiceUnavailable},
			{"another request with the same key", "c", "k", "", http.StatusUnprocessableEntity},
			{"a key without end", "", strings.Repeat("k", 513), "", http.StatusBadRequest},
		} {
			header := []string{"X-Request-Id", c.name}
			if c.key != "" {
				header = append(header, "Idempotency-Key", c.key)
			}
			if c.header != "" {
				header = append(header, "Upgrade", c.header)
			}
			w := l.ask("POST", "/2", c.body, header...)
			if w.Code != c.status || c.status == http.StatusServiceUnavailable && w.Header().Get("Retry-After") == "" {
				t.Errorf("%s: %d %v", c.name, w.Code, w.Header())
			}
		}
		if again := idOf(t, l.ask("POST", "/2", "b", "Idempotency-Key", "k")); again != first {
			t.Errorf("the same request is %s and %s", first, again)
		}
		idOf(t, l.ask("POST", "/3", ""))
		if w := l.ask("POST", "/4", ""); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
			t.Errorf("a full queue: %d %v", w.Code, w.Header())
		}
		time.Sleep(10 * time.Second)
		if w := l.ask("POST", "/4", ""); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
			t.Errorf("a full queue and a limit with room: %d %v", w.Code, w.Header())
		}
		if err := l.queue.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// brokenStore cannot write: the client receives an error, and nothing is sent.
type brokenStore struct{ queue.Store }

func (brokenStore) Put(context.Context, *queue.Entry, *queue.Policy) (queue.Receipt, error) {
	return queue.Receipt{}, queue.ErrUnavailable
}

func (brokenStore) Secret(context.Context) ([]byte, error) {
	return make([]byte, queue.SecretSize), nil
}

func (brokenStore) Waiting(context.Context, queue.Line) (bool, error) {
	return false, queue.ErrUnavailable
}

// fullDisk is a brokenStore that knows that nothing waits.
type fullDisk struct{ brokenStore }

func (fullDisk) Waiting(context.Context, queue.Line) (bool, error) { return false, nil }

// A queue that does not say whether anybody waits is joined: a request that passed could
// overtake one that was confirmed.
func TestNobodyOvertakesUnseen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLater(t)
		l.ask("POST", "/1", "")
		idOf(t, l.ask("POST", "/2", ""))
		l.queue.Drain() // /2 stays where it is
		time.Sleep(time.Minute)
		l.mute.Store(true)
		idOf(t, l.ask("POST", "/3", "")) // although the limit has tokens
		l.want("0s POST http://upstream.example/1 ")
		if err := l.queue.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// If not even the limits' store answers, on_store_error says what happens.
func TestNothingAnswers(t *testing.T) {
	for policy, want := range map[string]int{"allow": http.StatusOK, "deny": http.StatusServiceUnavailable} {
		rulesText := strings.Replace(laterRules, "rate:", "on_store_error: "+policy+"\n    rate:", 1)
		p := newProxy(t, rulesText, silentStore{}, ok)
		p.SetQueue(queue.New(queue.Options{
			Store: brokenStore{}, Clock: time.Now, Policy: func(string, string) queue.Policy { return queue.DefaultPolicy() },
		}))
		w := httptest.NewRecorder()
		if p.ServeHTTP(w, request(t.Context(), "POST", "/")); w.Code != want {
			t.Errorf("%s: %d %s", policy, w.Code, w.Body)
		}
	}
}

// silentStore is a store of counts that does not answer.
type silentStore struct{ store.Store }

func (silentStore) Do(_ context.Context, b *store.Batch) {
	b.Each(func([]store.Op, []store.Decision, store.Mode) error {
		return headgate.ErrUnavailable
	})
}

func TestAQueueThatCannotBeWritten(t *testing.T) {
	var log bytes.Buffer
	p := newProxy(t, laterRules, memory.New(), ok, func(o *proxy.Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	p.SetQueue(queue.New(queue.Options{
		Store: brokenStore{}, Clock: time.Now, Policy: func(string, string) queue.Policy { return queue.DefaultPolicy() },
	}))
	for i := range 3 { // the first is within the limit, but others may wait
		w := httptest.NewRecorder()
		p.ServeHTTP(w, request(t.Context(), "POST", "/"))
		if w.Code != http.StatusServiceUnavailable {
			t.Errorf("request %d: %d %s", i, w.Code, w.Body)
		}
	}
	if n := strings.Count(log.String(), "request not queued"); n != 1 {
		t.Errorf("%d lines in a minute, want 1: %s", n, &log)
	}
}

// Without a queue, requests that would be queued are refused as the rule says.
func TestNoQueue(t *testing.T) {
	p := newProxy(t, laterRules, memory.New(), ok)
	for i, want := range []int{http.StatusOK, http.StatusServiceUnavailable} {
		w := httptest.NewRecorder()
		p.ServeHTTP(w, request(t.Context(), "POST", "/"))
		if w.Code != want {
			t.Errorf("request %d: %d", i, w.Code)
		}
	}
}
