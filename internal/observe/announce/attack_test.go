package announce_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/observe/metrics"
	"github.com/headgate/headgate/internal/observe/warning"
	"github.com/headgate/headgate/internal/queue"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/rulefile"
	"github.com/headgate/headgate/store/memory"
)

// ask sends n requests of a user.
func (s *server) ask(user userRequest, n int) {
	for range n {
		v, _ := s.e.Decide(context.Background(), engine.Query{Domain: "api", Request: user, Cost: 1, At: s.clock().UnixMicro()})
		v.Release()
	}
}

// userRequest is a request of a user.
type userRequest string

func (u userRequest) Attribute(a rules.Attribute) (string, bool) {
	return string(u), a.String() == "user"
}
func (userRequest) ClientIP() netip.Addr { return netip.Addr{} }

// Of two servers that share a store, one sends each level, and one the end.
func TestTwoServersSendEachLevelOnce(t *testing.T) {
	r, store := newReceiver(t), memory.New()
	c := sending(config.WarnHashed, r)
	c.Off = [warning.Kinds]bool{warning.KeyRefused: true, warning.NewKeys: true}
	a, b := newServer(t, store, "", c), newServer(t, store, "", c)
	watch := func(s *server) {
		rs, diagnostics := rulefile.Parse(rulefile.Source{Name: "rules.yaml", Data: []byte(
			"domain: api\nlimits: [{name: all, rate: 100/hour, algorithm: fixed_window}]\n")})
		if rs == nil {
			t.Fatal(diagnostics)
		}
		s.Observer().SetRules(rs)
		s.e.SetRules(rs)
	}
	watch(a)
	watch(b)
	spend := func(n int, first, second *server) { // of which both take some
		a.ask("", n)
		b.ask("", 1)
		first.rest(1)
		second.rest(1)
	}
	spend(79, a, b)
	r.await(1)
	spend(14, b, a)
	r.await(2)
	spend(20, b, a)
	if got := r.await(3); got != "rule_near_limit.started rule_near_limit.raised rule_near_limit.raised" {
		t.Error(got)
	}
	a.rest(60)
	b.rest(60)
	r.await(4)
	a.stop()
	b.stop()
	if got := strings.Join(r.types, " "); got != "rule_near_limit.started rule_near_limit.raised rule_near_limit.raised rule_near_limit.ended" {
		t.Error(got)
	}
}

// What operators see at the admin door shows keys as admin.keys says, not as messages do.
func TestOperatorsSeeKeysAsTheirDoorShowsThem(t *testing.T) {
	for _, hashed := range []bool{true, false} {
		for _, keys := range []config.WarningKeys{config.WarnClear, config.WarnHashed, config.WarnNone} {
			r := newReceiver(t)
			s := newServer(t, memory.New(), "", sending(keys, r))
			s.keys.Hashes = hashed
			seen := s.readEvents(t)
			s.spam(10)
			r.await(1)
			status, err := json.Marshal(s.Status())
			if err != nil {
				t.Fatal(err)
			}
			for name, text := range map[string]string{"status": string(status), "events": seen()} {
				if plain := strings.Contains(text, "198.51.100.7"); plain == hashed || !strings.Contains(text, "key_refused.started") {
					t.Errorf("warnings.keys %s, hashed=%t: %s shows %s", keys, hashed, name, text)
				}
			}
			s.stop()
		}
	}
}

// readEvents reads the events of operators until the result is called, which returns them.
func (s *server) readEvents(t *testing.T) (seen func() string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w, done := httptest.NewRecorder(), make(chan struct{})
	go func() {
		defer close(done)
		s.events.Serve(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/v1/events", http.NoBody), metrics.Filter{})
	}()
	for !s.events.Watching() {
		runtime.Gosched()
	}
	return func() string {
		s.events.Close()
		<-done
		cancel()
		return w.Body.String()
	}
}

// A message that a receiver rejects each time does not hold back the others for a day.
// What says nothing of the message, such as a receiver that is missing, does not count.
func TestARejectedMessageIsGivenUp(t *testing.T) {
	r := newReceiver(t)
	for status, want := range map[int]int{
		http.StatusBadRequest: 10, http.StatusRequestEntityTooLarge: 10, http.StatusUnsupportedMediaType: 10, http.StatusUnprocessableEntity: 10,
		http.StatusUnauthorized: 0, http.StatusNotFound: 0, http.StatusTooManyRequests: 0, http.StatusInternalServerError: 0, http.StatusFound: 0,
	} {
		r.answer(status)
		s := newServer(t, memory.New(), "", sending(config.WarnHashed, r))
		e := &queue.Entry{ID: "msg_1", Rule: r.Listener.Addr().String(), Body: []byte("{}")}
		gaveUp := 0
		for i := range 50 {
			answer, err := s.Send(t.Context(), e)
			if err == nil || answer.Status != status {
				t.Fatalf("%+v, %v", answer, err)
			}
			if answer.GiveUp {
				gaveUp = i + 1
				break
			}
		}
		if gaveUp != want {
			t.Errorf("%d: given up after %d attempts, want %d", status, gaveUp, want)
		}
		e.ID = "msg_2" // begins again
		if answer, _ := s.Send(t.Context(), e); answer.GiveUp {
			t.Errorf("%d: the next message was given up at once", status)
		}
		s.stop()
	}
}

// The log says once that a webhook takes no messages, and once that it does again.
func TestAWebhookThatFailsIsLogged(t *testing.T) {
	r := newReceiver(t)
	s := newServer(t, memory.New(), "", sending(config.WarnHashed, r))
	e := &queue.Entry{ID: "msg_1", Rule: r.Listener.Addr().String(), Body: []byte("{}")}
	for _, status := range []int{http.StatusInternalServerError, http.StatusNotFound, http.StatusNoContent, http.StatusNoContent} {
		r.answer(status)
		_, _ = s.Send(t.Context(), e)
	}
	s.stop()
	text := s.log.String()
	failed := strings.Count(text, `level=WARN msg="a warning could not be delivered: it is tried again for 24 hours" webhook=`+e.Rule)
	again := strings.Count(text, `level=INFO msg="the webhook takes warnings again" webhook=`+e.Rule)
	if failed != 1 || again != 1 {
		t.Errorf("logged %d and %d times: %s", failed, again, text)
	}
}

// Without a file, as with Redis and no warnings.path, the log says at the start that a
// restart loses messages; with one it does not.
func TestLosingMessagesIsSaid(t *testing.T) {
	for file, want := range map[string]bool{"": true, filepath.Join(t.TempDir(), "warnings"): false} {
		s := newServer(t, memory.New(), file, sending(config.WarnHashed, newReceiver(t)))
		if got := strings.Contains(s.log.String(), `msg="a restart loses warnings that have not been delivered" hint="set warnings.path`); got != want {
			t.Errorf("file %q: %s", file, s.log.String())
		}
		s.stop()
	}
}

// stalled is a store that does not answer.
type stalled struct {
	headgate.Store
	asked *int
}

func (s stalled) Take(ctx context.Context, _ headgate.Op) (headgate.Decision, error) {
	*s.asked++
	<-ctx.Done()
	return headgate.Decision{}, headgate.ErrUnavailable
}

// A store that does not answer delays the warnings of a look once, not each of them.
func TestAStalledStoreDelaysWarningsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		c := sending(config.WarnHashed)
		c.Webhooks = []config.Webhook{{URL: &url.URL{Scheme: "http", Host: "hooks.example"}, On: []warning.Kind{warning.NewKeys}}}
		s := newServer(t, memory.New(), "", c)
		s.store.Store = stalled{s.store.Store, &asked}
		began := time.Now()
		for range 10 {
			for i := range 10 {
				s.ask(userRequest(fmt.Sprint(i)), 20)
			}
			s.rest(1)
		}
		if took := time.Since(began); len(s.Status().Active) != 10 || asked != 1 || took > time.Second {
			t.Errorf("%d warnings, the store was asked %d times, %s", len(s.Status().Active), asked, took)
		}
		s.stop()
	})
}
