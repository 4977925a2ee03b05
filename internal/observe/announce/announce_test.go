package announce_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/internal/base/lifetime"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/observe/announce"
	"github.com/headgate/headgate/internal/observe/metrics"
	"github.com/headgate/headgate/internal/observe/warning"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/rulefile"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// receiver is a webhook that keeps what it receives.
type receiver struct {
	*httptest.Server
	t *testing.T

	mu     sync.Mutex
	types  []string
	bodies []string
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{t: t}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

// ServeHTTP implements [http.Handler].
func (r *receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	body, _ := io.ReadAll(q.Body)
	r.mu.Lock()
	defer r.mu.Unlock()
	w.WriteHeader(http.StatusNoContent)
	var m announce.Message
	if err := json.Unmarshal(body, &m); err != nil {
		r.t.Error(err)
	}
	r.types, r.bodies = append(r.types, m.Type), append(r.bodies, string(body))
}

// await waits for n messages and returns their types.
func (r *receiver) await(n int) string {
	r.t.Helper()
	for range 1000 {
		r.mu.Lock()
		types := slices.Clone(r.types)
		r.mu.Unlock()
		if len(types) >= n {
			return strings.Join(types, " ")
		}
		<-time.After(5 * time.Millisecond)
	}
	r.t.Fatalf("%d messages, want %d", len(r.types), n)
	return ""
}

// start is the wall clock of all tests.
var start = time.Unix(1_800_000_000, 0)

// server is a process that announces warnings of one rule.
type server struct {
	*announce.Announcer
	t    *testing.T
	life *lifetime.Lifetime
	e    *engine.Engine
	log  bytes.Buffer
	// What the Announcer has.
	store  *struct{ store.Store }
	keys   *metrics.KeyView
	events *metrics.Stream
	mu     sync.Mutex
	now    time.Time
}

type request struct{}

func (request) Attribute(a rules.Attribute) (string, bool) {
	return "198.51.100.7", a.String() == "user"
}
func (request) ClientIP() netip.Addr { return netip.Addr{} }

// newServer starts one.
func newServer(t *testing.T, db store.Store, c warning.Policy) *server {
	t.Helper()
	rs, diagnostics := rulefile.Parse(rulefile.Source{Name: "rules.yaml", Data: []byte(
		"domain: api\nlimits: [{name: login, key: [user], rate: 5/minute, algorithm: fixed_window}]\n")})
	if rs == nil {
		t.Fatal(diagnostics)
	}
	s := &server{t: t, life: new(lifetime.Lifetime), now: start}
	a := announce.New(c)
	s.Announcer = a
	s.store, s.keys = &struct{ store.Store }{db}, &metrics.KeyView{}
	s.events = metrics.NewStream(s.keys)
	a.Start(announce.Options{
		Store: s.store, Clock: s.clock, KeySecret: "shared", Keys: s.keys,
		Events: s.events, Logger: slog.New(slog.NewTextHandler(&s.log, nil)), Life: s.life,
	})
	s.life.End() // only the test looks
	a.Observer().SetRules(rs)
	s.e = engine.New(db, rs, engine.WithObserver(a.Observer()))
	t.Cleanup(s.stop)
	return s
}

func (s *server) stop() {
	if err := s.Close(context.Background()); err != nil {
		s.t.Error(err)
	}
}

func (s *server) clock() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

// spam sends 20 requests a second for a while.
func (s *server) spam(seconds int) {
	for range seconds {
		for range 20 {
			v, _ := s.e.Decide(context.Background(), engine.Query{Domain: "api", Part: engine.Part{Request: request{}, Cost: 1}, At: s.clock().UnixMicro()})
			v.Release()
		}
		s.rest(1)
	}
}

// rest lets time pass.
func (s *server) rest(seconds int) {
	for range seconds {
		s.mu.Lock()
		s.now = s.now.Add(time.Second)
		s.mu.Unlock()
		s.Look()
	}
}

// sending is a configuration with one kind of warning and a receiver.
func sending(keys warning.Keys, r *receiver) warning.Policy {
	c := warning.Policy{Settings: warning.Default(), Keys: keys}
	c.Off[warning.RuleNearLimit] = true
	c.Webhook, _ = url.Parse(r.URL + "/hush")
	return c
}

func TestStartAndEndAreSent(t *testing.T) {
	r := newReceiver(t)
	s := newServer(t, memory.New(), sending(warning.KeysHashed, r))
	s.spam(10)
	if got := r.await(1); got != "key_refused.started" {
		t.Error(got)
	}
	status := s.Status()
	if len(status.Active) != 1 || status.Active[0].Text != "api/login refused 100 of 100 requests of one key in 5s" {
		t.Errorf("%s", status.Active[0].Text)
	}
	s.rest(60)
	if got := r.await(2); got != "key_refused.started key_refused.ended" {
		t.Error(got)
	}
	if status = s.Status(); len(status.Active) != 0 || len(status.Recent) != 2 || status.Recent[0].Type != "key_refused.ended" {
		t.Errorf("%+v", status)
	}
	var first, second announce.Message
	for i, m := range []*announce.Message{&first, &second} {
		if err := json.Unmarshal([]byte(r.bodies[i]), m); err != nil {
			t.Fatal(err)
		}
	}
	if first.Data.ID != second.Data.ID || !first.Data.Since.Equal(second.Data.Since) {
		t.Errorf("%s\n%s", r.bodies[0], r.bodies[1])
	}
	if log := s.log.String(); !strings.Contains(log, "level=WARN msg=\"warning started\" kind=key_refused domain=api rule=login") ||
		!strings.Contains(log, "level=INFO msg=\"warning ended\"") || strings.Contains(log, "hush") {
		t.Error(log)
	}
}

func TestKeysAreShownAsConfigured(t *testing.T) {
	for keys, want := range map[warning.Keys]string{
		warning.KeysHashed: `"key":null,"key_hash":"`, warning.KeysNone: `"key":null,"since"`, warning.KeysClear: `"key":["198.51.100.7"]`,
	} {
		r := newReceiver(t)
		s := newServer(t, memory.New(), sending(keys, r))
		s.spam(10)
		r.await(1)
		plain := strings.Contains(r.bodies[0]+s.log.String(), "198.51.100.7")
		if !strings.Contains(r.bodies[0], want) || plain != (keys == warning.KeysClear) {
			t.Errorf("%s: %s\n%s", keys, r.bodies[0], s.log.String())
		}
		s.stop()
	}
}

// Of two servers that share a store, one sends.
func TestTwoServersSendOnce(t *testing.T) {
	r, store := newReceiver(t), memory.New()
	a, b := newServer(t, store, sending(warning.KeysHashed, r)), newServer(t, store, sending(warning.KeysHashed, r))
	for range 10 {
		a.spam(1)
		b.spam(1)
	}
	a.rest(60)
	b.rest(60)
	if got := r.await(2); got != "key_refused.started key_refused.ended" {
		t.Error(got)
	}
	if x, y := a.Status().Recent, b.Status().Recent; len(x) != 2 || len(y) != 2 || x[0].Data.ID != y[0].Data.ID {
		t.Errorf("%+v %+v", x, y)
	}
	a.stop()
	b.stop()
	if n := len(r.types); n != 2 {
		t.Errorf("%d messages", n)
	}
}

// Warnings and messages are counted.
func TestWarningsAreCounted(t *testing.T) {
	r := newReceiver(t)
	s := newServer(t, memory.New(), sending(warning.KeysHashed, r))
	s.spam(6)
	s.rest(60)
	r.await(2)
	s.stop()
	text, host := gather(t, s), r.Listener.Addr().String()
	for _, want := range []string{
		fmt.Sprintf("headgate_warning_messages_total{result=%q,webhook=%q} 2", "delivered", host),
		fmt.Sprintf("headgate_warning_messages_total{result=%q,webhook=%q} 0", "failed", host),
		`headgate_warnings_total{domain="api",kind="key_refused",rule="login"} 1`,
		`headgate_warnings_active{domain="api",kind="key_refused",rule="login"} 0`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
}

func gather(t *testing.T, s *server) string {
	t.Helper()
	c := &metrics.Asked{}
	s.Describe(c)
	r := prometheus.NewRegistry()
	r.MustRegister(c)
	list, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for _, f := range list {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			fmt.Fprintf(&out, "%s{%s} %v\n", f.GetName(), strings.Join(labels, ","), m.GetCounter().GetValue()+m.GetGauge().GetValue())
		}
	}
	return out.String()
}
