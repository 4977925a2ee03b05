package door_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/headgate/headgate"
	headgatev1 "github.com/headgate/headgate/api/headgate/v1"
	"github.com/headgate/headgate/internal/answer"
	"github.com/headgate/headgate/internal/decide/admission"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/door"
	"github.com/headgate/headgate/internal/door/forwardauth"
	"github.com/headgate/headgate/internal/door/grpcapi"
	"github.com/headgate/headgate/internal/door/httpapi"
	"github.com/headgate/headgate/internal/request/client"
	"github.com/headgate/headgate/internal/request/token"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/rulefile"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// failing is a store that fails with err if it is set.
type failing struct {
	store.Store
	err error
}

func (f *failing) Do(ctx context.Context, b *store.Batch) {
	b.Each(func(ops []store.Op, out []store.Decision, mode store.Mode) error {
		if f.err != nil {
			return f.err
		}
		return store.ExecuteAll(ctx, f.Store, ops, out, mode)
	})
}

// bench has services of several protocols with one engine.
type bench struct {
	store *failing
	log   bytes.Buffer
	http  *httpapi.Handler
	auth  *forwardauth.Handler
	grpc  *grpcapi.Service
}

func newBench(t *testing.T, text string) *bench {
	t.Helper()
	rs, problems := rulefile.Parse(rulefile.Source{Name: "rules.yaml", Data: []byte(text)})
	if rs == nil {
		t.Fatal(problems)
	}
	clients, err := client.New(client.Config{})
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{store: &failing{Store: memory.New()}}
	e := engine.New(b.store, rs)
	log := slog.New(slog.NewTextHandler(&b.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	clock := time.Now
	b.http = httpapi.New(httpapi.Options{
		Asker: admission.Asker{Engine: e, Clock: clock, Logger: log, Clients: clients},
		Ready: func(context.Context) door.Readiness { return door.Readiness{} },
	})
	b.auth = forwardauth.New(forwardauth.Options{Asker: admission.Asker{Engine: e, Clock: clock, Logger: log, Clients: clients}})
	b.grpc = grpcapi.New(grpcapi.Options{Asker: admission.Asker{Engine: e, Clock: clock, Logger: log, Clients: clients}, Tokens: token.New()})
	return b
}

func (b *bench) post(path, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	b.http.ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, strings.NewReader(body)))
	return w
}

// TestUnsettled: if a token was not settled, every door gives the same answer in the
// terms of its protocol. Only a store that may answer later gets a 503 with the advice
// to try again.
func TestUnsettled(t *testing.T) {
	for _, row := range []struct {
		name, http, log string
		err             error
		damaged         bool
		status          int
		code            codes.Code
	}{
		{
			name: "a damaged token", damaged: true,
			status: 400, http: `"lease" is unknown: it was not issued by this server, or is damaged`, code: codes.NotFound,
		},
		{
			name: "no answer", err: fmt.Errorf("down: %w", headgate.ErrUnavailable),
			status: 503, http: "the store does not answer; try again", code: codes.Unavailable, log: "level=DEBUG",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := newBench(t, "domain: api\nlimits:\n  - {name: open, key: [user], concurrency: 2, lease: 10s}\n")
			var told struct{ Lease string }
			if err := json.Unmarshal(b.post("/v1/check", `{"domain":"api","attributes":{"user":"ann"}}`).Body.Bytes(), &told); err != nil || told.Lease == "" {
				t.Fatalf("%v, %+v", err, told)
			}
			if row.damaged {
				told.Lease = told.Lease[:20]
			}
			b.store.err = row.err
			b.log.Reset()
			if w := b.post("/v1/release", `{"lease":"`+told.Lease+`"}`); w.Code != row.status || !strings.Contains(strings.ReplaceAll(w.Body.String(), `\"`, `"`), row.http) {
				t.Errorf("over HTTP: %d %s", w.Code, w.Body)
			}
			if !strings.Contains(b.log.String(), row.log) || row.log == "" && b.log.Len() > 0 {
				t.Errorf("the log has %s", &b.log)
			}
			if _, err := b.grpc.Release(t.Context(), &headgatev1.ReleaseRequest{Lease: told.Lease}); grpcstatus.Code(err) != row.code {
				t.Errorf("over gRPC: %v", err)
			}
		})
	}
}

// TestUnsettledForNoReason: an error caused by neither the caller nor the store is
// reported as internal, and logged as an error. The engine has none at present.
func TestUnsettledForNoReason(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	why := (&admission.Asker{Logger: slog.New(slog.NewTextHandler(&log, nil))}).WhyUnsettled(t.Context(), errors.New("that cannot be"))
	if why != admission.Broken || !strings.Contains(log.String(), "level=ERROR") {
		t.Errorf("%d, %s", why, &log)
	}
}

// TestHiddenAtEveryDoor: no door shows the limit of a secret ban in header fields.
func TestHiddenAtEveryDoor(t *testing.T) {
	b := newBench(t, `
domain: api
limits:
  - {name: seen, key: [client_ip], rate: 10/hour}
  - {name: secret, key: [client_ip], rate: 7/hour, on_limit: {action: shadow_ban}}
`)
	answers := map[string]http.Header{}
	answers["api"] = b.post("/v1/check", `{"domain":"api","attributes":{"client_ip":"192.0.2.1"}}`).Header()
	w := httptest.NewRecorder()
	b.auth.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/auth?domain=api", http.NoBody))
	answers["forward-auth"] = w.Header()
	out, err := b.grpc.Check(t.Context(), &headgatev1.CheckRequest{Domain: "api", Attributes: map[string]string{"client_ip": "192.0.2.1"}})
	if err != nil {
		t.Fatal(err)
	}
	answers["grpc"] = http.Header{}
	for _, h := range out.GetHeaders() {
		answers["grpc"].Add(h.GetName(), h.GetValue())
	}
	for name, header := range answers {
		var text strings.Builder
		_ = header.Write(&text)
		if strings.Contains(text.String(), "secret") || !strings.Contains(text.String(), "seen") {
			t.Errorf("%s:\n%s", name, &text)
		}
	}
}

// TestPoliciesTellTheTightest: clients see a limit once, even if it decided about
// several keys.
func TestPoliciesTellTheTightest(t *testing.T) {
	rule := &rules.Rule{Name: "user", Limit: headgate.PerHour(10)}
	results := []engine.Result{
		{Rule: rule, Enforced: true, Decision: store.Decision{Allowed: true, Remaining: 5}},
		{Rule: rule, Enforced: true, Decision: store.Decision{Allowed: true, Remaining: 2}},
		{Rule: rule, Decision: store.Decision{Allowed: true, Remaining: 1}}, // not enforced
	}
	told := admission.Policies([]answer.Policy(nil), results, 1)
	if len(told) != 1 || told[0].Decision.Remaining != 2 || told[0].At != 1 {
		t.Errorf("%+v", told)
	}
}
