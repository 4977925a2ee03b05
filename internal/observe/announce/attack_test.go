package announce_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/observe/metrics"
	"github.com/headgate/headgate/internal/observe/warning"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/rulefile"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// ask sends n requests of a user.
func (s *server) ask(user userRequest, n int) {
	for range n {
		v, _ := s.e.Decide(context.Background(), engine.Query{Domain: "api", Part: engine.Part{Request: user, Cost: 1}, At: s.clock().UnixMicro()})
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
	c := sending(warning.KeysHashed, r)
	c.Off = [warning.Kinds]bool{warning.KeyRefused: true, warning.NewKeys: true}
	a, b := newServer(t, store, c), newServer(t, store, c)
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
		for _, keys := range []warning.Keys{warning.KeysClear, warning.KeysHashed, warning.KeysNone} {
			r := newReceiver(t)
			s := newServer(t, memory.New(), sending(keys, r))
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

// stalled is a store that does not answer.
type stalled struct {
	store.Store
	asked *int
}

func (s stalled) Do(ctx context.Context, b *store.Batch) {
	*s.asked++
	<-ctx.Done()
	b.Fail(headgate.ErrUnavailable)
}

// A store that does not answer delays the warnings of a look once, not each of them.
func TestAStalledStoreDelaysWarningsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		c := warning.Policy{Settings: warning.Default(), Webhook: &url.URL{Scheme: "http", Host: "hooks.example"}}
		c.Off[warning.RuleNearLimit] = true
		s := newServer(t, memory.New(), c)
		s.Through(answers(http.StatusNoContent))
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
