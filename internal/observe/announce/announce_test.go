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
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/base/lifetime"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/observe/announce"
	"github.com/headgate/headgate/internal/observe/metrics"
	"github.com/headgate/headgate/internal/observe/warning"
	"github.com/headgate/headgate/internal/observe/webhook"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/rulefile"
	"github.com/headgate/headgate/store/memory"
)

// receiver is a webhook that keeps what it receives.
type receiver struct {
	*httptest.Server
	t *testing.T

	mu     sync.Mutex
	status int
	types  []string
	bodies []string
	ids    []string
}

const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{t: t, status: http.StatusNoContent}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

// ServeHTTP implements [http.Handler].
func (r *receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	body, _ := io.ReadAll(q.Body)
	r.mu.Lock()
	defer r.mu.Unlock()
	secrets, _ := webhook.ParseSecrets(secret)
	id := q.Header.Get("Webhook-Id")
	if want := webhook.Sign(secrets, id, start, body); q.Header.Get("Webhook-Signature") != want {
		r.t.Errorf("signature %q, want %q", q.Header.Get("Webhook-Signature"), want)
	}
	if w.WriteHeader(r.status); r.status != http.StatusNoContent {
		return
	}
	var m announce.Message
	if err := json.Unmarshal(body, &m); err != nil {
		r.t.Error(err)
	}
	r.types, r.bodies, r.ids = append(r.types, m.Type), append(r.bodies, string(body)), append(r.ids, id)
}

func (r *receiver) answer(status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status = status
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
	store  *struct{ headgate.Store }
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
func newServer(t *testing.T, store headgate.Store, file string, c *config.EarlyWarning) *server {
	t.Helper()
	rs, diagnostics := rulefile.Parse(rulefile.Source{Name: "rules.yaml", Data: []byte(
		"domain: api\nlimits: [{name: login, key: [user], rate: 5/minute, algorithm: fixed_window}]\n")})
	if rs == nil {
		t.Fatal(diagnostics)
	}
	s := &server{t: t, life: new(lifetime.Lifetime), now: start}
	a, err := announce.New(c)
	if err != nil {
		t.Fatal(err)
	}
	s.Announcer = a
	s.store, s.keys = &struct{ headgate.Store }{store}, &metrics.KeyView{}
	s.events = metrics.NewStream(s.keys)
	if err := a.Start(announce.Options{
		File: file, Store: s.store, Clock: s.clock, Wall: func() time.Time { return start }, KeySecret: "shared", Keys: s.keys,
		Events: s.events, Logger: slog.New(slog.NewTextHandler(&s.log, nil)), Life: s.life,
	}); err != nil {
		t.Fatal(err)
	}
	s.life.End() // only the test looks
	a.Observer().SetRules(rs)
	s.e = engine.New(store, rs, engine.WithObserver(a.Observer()))
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
			v, _ := s.e.Decide(context.Background(), engine.Query{Domain: "api", Request: request{}, Cost: 1, At: s.clock().UnixMicro()})
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

// sending is a configuration with one kind of warning and receivers.
func sending(keys config.WarningKeys, receivers ...*receiver) *config.EarlyWarning {
	c := &config.EarlyWarning{On: true, Settings: warning.Default(), Keys: keys}
	c.Off[warning.RuleNearLimit] = true
	secrets, _ := webhook.ParseSecrets(secret)
	for _, r := range receivers {
		u, _ := url.Parse(r.URL + "/hush")
		c.Webhooks = append(c.Webhooks, config.Webhook{URL: u, Secrets: secrets})
	}
	return c
}

func TestStartAndEndAreSent(t *testing.T) {
	r := newReceiver(t)
	s := newServer(t, memory.New(), "", sending(config.WarnHashed, r))
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
	if first.Data.ID != second.Data.ID || r.ids[0] == r.ids[1] || !first.Data.Since.Equal(second.Data.Since) {
		t.Errorf("%s\n%s", r.bodies[0], r.bodies[1])
	}
	if log := s.log.String(); !strings.Contains(log, "level=WARN msg=\"warning started\" kind=key_refused domain=api rule=login") ||
		!strings.Contains(log, "level=INFO msg=\"warning ended\"") || strings.Contains(log, "hush") {
		t.Error(log)
	}
}

func TestKeysAreShownAsConfigured(t *testing.T) {
	for keys, want := range map[config.WarningKeys]string{
		config.WarnHashed: `"key":null,"key_hash":"`, config.WarnNone: `"key":null,"since"`, config.WarnClear: `"key":["198.51.100.7"]`,
	} {
		r := newReceiver(t)
		s := newServer(t, memory.New(), "", sending(keys, r))
		s.spam(10)
		r.await(1)
		plain := strings.Contains(r.bodies[0]+s.log.String(), "198.51.100.7")
		if !strings.Contains(r.bodies[0], want) || plain != (keys == config.WarnClear) {
			t.Errorf("%s: %s\n%s", keys, r.bodies[0], s.log.String())
		}
		s.stop()
	}
}

// What was not delivered before a restart is delivered after it, in order.
func TestMessagesSurviveARestart(t *testing.T) {
	r, store, file := newReceiver(t), memory.New(), filepath.Join(t.TempDir(), "warnings")
	r.answer(http.StatusServiceUnavailable)
	s := newServer(t, store, file, sending(config.WarnHashed, r))
	s.spam(10)
	s.rest(60)
	s.stop()
	r.answer(http.StatusNoContent)
	next := newServer(t, store, file, sending(config.WarnHashed, r))
	next.mu.Lock()
	next.now = next.now.Add(10 * time.Minute) // after the backoff
	next.mu.Unlock()
	if got := r.await(2); got != "key_refused.started key_refused.ended" {
		t.Error(got)
	}
}

// Of two servers that share a store, one sends.
func TestTwoServersSendOnce(t *testing.T) {
	r, store := newReceiver(t), memory.New()
	a, b := newServer(t, store, "", sending(config.WarnHashed, r)), newServer(t, store, "", sending(config.WarnHashed, r))
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

// A webhook that is not reached does not delay another one, and its oldest messages make
// space for new ones.
func TestTheOldestMessageMakesSpace(t *testing.T) {
	good, bad := newReceiver(t), newReceiver(t)
	bad.answer(http.StatusInternalServerError)
	c := sending(config.WarnHashed, good, bad)
	c.Webhooks[1].On = []warning.Kind{warning.KeyRefused}
	c.Again = time.Second
	s := newServer(t, memory.New(), "", c)
	for range 501 {
		s.spam(6)
		s.rest(60)
	}
	good.await(1002)
	names := []string{good.Listener.Addr().String(), bad.Listener.Addr().String()}
	text := ""
	for range 1000 { // the last is counted once its answer was read
		if text = gather(t, s); strings.Contains(text, "} 1002\n") {
			break
		}
		<-time.After(5 * time.Millisecond)
	}
	for _, want := range []string{
		fmt.Sprintf("headgate_warning_messages_total{result=%q,webhook=%q} 1002", "delivered", names[0]),
		fmt.Sprintf("headgate_warning_messages_total{result=%q,webhook=%q} 2", "dropped", names[1]),
		fmt.Sprintf("headgate_warning_messages_waiting{webhook=%q} 1000", names[1]),
		`headgate_warnings_total{domain="api",kind="key_refused",rule="login"} 501`,
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

// A message to a webhook that is no longer configured is not sent.
func TestAWebhookThatIsGone(t *testing.T) {
	r, file := newReceiver(t), filepath.Join(t.TempDir(), "warnings")
	r.answer(http.StatusServiceUnavailable)
	s := newServer(t, memory.New(), file, sending(config.WarnHashed, r))
	s.spam(10)
	s.stop()
	other := newReceiver(t)
	next := newServer(t, memory.New(), file, sending(config.WarnHashed, other))
	next.spam(10)
	if got := other.await(1); got != "key_refused.started" {
		t.Error(got)
	}
}

func TestTheSample(t *testing.T) {
	r, broken := newReceiver(t), newReceiver(t)
	broken.answer(http.StatusNotFound)
	got, err := announce.Test(t.Context(), sending(config.WarnHashed, r, broken), func() time.Time { return start })
	if err != nil || len(got) != 2 || got[0].Error != "" || got[0].Status != 204 || !got[0].Signed || got[1].Error != "status 404" {
		t.Errorf("%+v, %v", got, err)
	}
	if types := r.await(1); types != "test" {
		t.Error(types)
	}
}
