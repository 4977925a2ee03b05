package grpcapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/headgate/headgate"
	headgatev1 "github.com/headgate/headgate/api/headgate/v1"
	"github.com/headgate/headgate/internal/answer"
	"github.com/headgate/headgate/internal/decide/admission"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/door"
	"github.com/headgate/headgate/internal/door/described"
	"github.com/headgate/headgate/internal/door/httpapi"
	"github.com/headgate/headgate/internal/request/client"
	"github.com/headgate/headgate/internal/request/token"
	"github.com/headgate/headgate/internal/rules/rulefile"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

const testRules = `
domain: api
limits:
  - {name: tokens, match: {path: /llm}, rate: 100/day, algorithm: fixed_window}
  - {name: exports, match: {path: /exports}, concurrency: 5}
  - {name: strict, match: {path: /strict}, rate: 100/day, on_store_error: deny}
  - {name: failed, match: {path: /failed}, rate: 5/day, algorithm: fixed_window, charge_on: {status: 401, grpc: UNAUTHENTICATED, headers: {X-Login: failed}}}
  - {name: secret, match: {path: /quiet}, rate: 1/minute, algorithm: fixed_window, on_limit: shadow_ban}
  - {name: shown, match: {path: /quiet}, rate: 9/minute, algorithm: fixed_window}
`

// now is the time of all requests.
func now() time.Time { return time.Date(2026, 11, 21, 11, 0, 0, 0, time.UTC) }

func newService(t testing.TB, store store.Store) *Service {
	t.Helper()
	rs, diagnostics := rulefile.Parse(rulefile.Source{Name: "test.yaml", Data: []byte(testRules)})
	if rs == nil {
		t.Fatalf("rules: %v", diagnostics)
	}
	clients, err := client.New(client.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return New(Options{
		Asker:  admission.Asker{Engine: engine.New(store, rs), Clock: now, Logger: slog.New(slog.DiscardHandler), Clients: clients},
		Tokens: token.New(),
	})
}

// Every value in the core has a constant with the same name.
func TestWords(t *testing.T) {
	for r := headgate.ReasonOK; r <= store.ReasonHeadroom; r++ {
		if want := "REASON_" + strings.ToUpper(r.String()); r != store.ReasonShadow && r != headgate.ReasonExpired && reasonOf(r).String() != want {
			t.Errorf("%s is %s", r, reasonOf(r))
		}
	}
	for o := range engine.Outcomes {
		if want := "ACTION_" + strings.ToUpper(o.Action()); actionOf(o).String() != want {
			t.Errorf("%s is %s, want %s", o, actionOf(o), want)
		}
	}
	for e := engine.Done; e <= engine.Settled; e++ {
		if want := "ENDING_" + strings.ToUpper(e.String()); endingOf(e).String() != want {
			t.Errorf("%s is %s", e, endingOf(e))
		}
	}
}

// A batch is weighed before it is decoded, and one with too many checks never is: a
// check of two bytes takes hundreds in memory.
func TestBatchesAreWeighed(t *testing.T) {
	batch := func(n int) []byte { return bytes.Repeat([]byte{0x0a, 3, 0x0a, 1, 'd'}, n) }
	full := batch(described.MaxChecks)
	for _, row := range []struct {
		name        string
		message     proto.Message
		data        []byte
		size        int
		least, most int64
	}{
		{"a check", &headgatev1.CheckRequest{}, batch(10), 50, 50, answer.SmallBody},
		{"a small batch", &headgatev1.CheckBatchRequest{}, batch(2), 10, 500, answer.SmallBody},
		{"a full batch", &headgatev1.CheckBatchRequest{}, full, len(full), 1 << 20, 4 << 20},
		{"one in pieces", &headgatev1.CheckBatchRequest{}, nil, len(full), 1 << 20, 4 << 20},
		{"one that breaks off", &headgatev1.CheckBatchRequest{}, append(batch(500), 0x0a, 99), 2502, 1 << 19, 2 << 20},
	} {
		r := reader{message: row.message}
		if n := r.Weigh(row.data, row.size); n < row.least || n > row.most {
			t.Errorf("%s weighs %d", row.name, n)
		}
	}
	for n, want := range map[int]error{described.MaxChecks: nil, described.MaxChecks + 1: errManyChecks} {
		m := &headgatev1.CheckBatchRequest{}
		r := reader{message: m}
		if r.ReadWire(batch(n)); !errors.Is(r.err, want) || (len(m.GetChecks()) > 0) != (want == nil) {
			t.Errorf("of %d checks %d were read: %v", n, len(m.GetChecks()), r.err)
		}
	}
}

// The header fields are for the client, which must not learn of a secret ban; the
// verdict is for the caller, which must know.
func TestHiddenRuleIsInNoHeaderField(t *testing.T) {
	s := newService(t, memory.New())
	for i, want := range []headgatev1.Action{headgatev1.Action_ACTION_ALLOW, headgatev1.Action_ACTION_SHADOW_BAN} {
		r, err := s.Check(t.Context(), &headgatev1.CheckRequest{Domain: "api", Attributes: map[string]string{"path": "/quiet"}})
		if err != nil || r.GetVerdict().GetRule() != "secret" || r.GetVerdict().GetAction() != want {
			t.Errorf("request %d: %v, %v", i, r, err)
		}
		all := map[string]string{}
		for _, h := range r.GetHeaders() {
			all[strings.ToLower(h.GetName())] = h.GetValue()
		}
		if all["x-ratelimit-remaining"] != strconv.Itoa(8-i) || all["ratelimit-policy"] != `"shown";q=9;w=60` || all["retry-after"] != "" {
			t.Errorf("request %d: %v", i, all)
		}
	}
}

// Without a store the rules decide, and nothing can be settled.
func TestStoreFailureIsTold(t *testing.T) {
	store := memory.New()
	s := newService(t, store)
	ctx := t.Context()
	path := func(p string) map[string]string { return map[string]string{"path": p} }
	reserved, err := s.Reserve(ctx, &headgatev1.ReserveRequest{Domain: "api", Attributes: path("/llm")})
	if err != nil {
		t.Fatal(err)
	}
	held, err := s.Check(ctx, &headgatev1.CheckRequest{Domain: "api", Attributes: path("/exports")})
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	for p, want := range map[string]*headgatev1.Verdict{
		"/llm": {
			Allowed: true, Rule: "tokens", Limit: new(int64(100)), RetryAfterMs: new(int64(0)),
			Action: headgatev1.Action_ACTION_ALLOW, Reason: headgatev1.Reason_REASON_FAIL_OPEN,
		},
		"/strict": {
			Rule: "strict", Limit: new(int64(100)), RetryAfterMs: new(int64(1000)),
			Action: headgatev1.Action_ACTION_REJECT, Reason: headgatev1.Reason_REASON_FAIL_CLOSED,
		},
	} {
		got, err := s.Check(ctx, &headgatev1.CheckRequest{Domain: "api", Attributes: path(p)})
		if err != nil || !proto.Equal(got.GetVerdict(), want) {
			t.Errorf("%s: %v, %v, want %v", p, got, err, want)
		}
	}
	_, commit := s.Commit(ctx, &headgatev1.CommitRequest{Reservation: reserved.GetReservation(), Cost: new(int64(1))})
	_, cancel := s.Cancel(ctx, &headgatev1.CancelRequest{Reservation: reserved.GetReservation()})
	_, release := s.Release(ctx, &headgatev1.ReleaseRequest{Lease: held.GetLease()})
	_, renew := s.Renew(ctx, &headgatev1.RenewRequest{Lease: held.GetLease()})
	for name, err := range map[string]error{"commit": commit, "cancel": cancel, "release": release, "renew": renew} {
		if grpcstatus.Code(err) != codes.Unavailable {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// hasty is a store that does not answer callers without time.
type hasty struct{ store.Store }

func (h hasty) Do(ctx context.Context, b *store.Batch) {
	if ctx.Err() != nil {
		b.Fail(store.ErrUnavailable)
		return
	}
	h.Store.Do(ctx, b)
}

// The deadline of a call is its caller's choice, or that of a client of the caller: it does
// not make the store look dead.
func TestDeadlinesOfCallers(t *testing.T) {
	s := newService(t, hasty{memory.New()})
	ctx, cancel := context.WithDeadline(t.Context(), time.Unix(1, 0))
	defer cancel()
	call := func(method string, in proto.Message) (any, error) {
		d := s.Description()
		i := slices.IndexFunc(d.Methods, func(m grpc.MethodDesc) bool { return m.MethodName == method })
		return d.Methods[i].Handler(s, ctx, func(message any) error {
			text, err := proto.Marshal(in)
			message.(*reader).ReadWire(text) //nolint:forcetypeassert,errcheck // as the server does
			return err
		}, nil)
	}
	out, err := call("Check", &headgatev1.CheckRequest{Domain: "api", Attributes: map[string]string{"path": "/exports"}})
	r, _ := out.(*headgatev1.CheckResponse)
	if err != nil || r.GetLease() == "" {
		t.Fatalf("%v, %v", out, err)
	}
	out, err = call("Release", &headgatev1.ReleaseRequest{Lease: r.GetLease()})
	if released, _ := out.(*headgatev1.ReleaseResponse); err != nil || released.GetEnding() != headgatev1.Ending_ENDING_DONE {
		t.Errorf("%v, %v", out, err)
	}
}

// A panic fails only its own call.
func TestPanicEndsTheCall(t *testing.T) {
	s := newService(t, memory.New())
	_, err := s.guarded(func(any, context.Context, func(any) error, grpc.UnaryServerInterceptor) (any, error) {
		return []int{}[len(testRules)], nil
	})(nil, t.Context(), nil, nil)
	if grpcstatus.Code(err) != codes.Internal {
		t.Errorf("%v", err)
	}
}

// Error messages fit into a header field.
func TestWordsAreBounded(t *testing.T) {
	s := newService(t, memory.New())
	for _, text := range []string{strings.Repeat("x", 1<<20), strings.Repeat("ü", 1<<19), strings.Repeat("\x00", 1<<20)} {
		for name, value := range map[string]string{text + ":x": "", "client_ip": text} {
			_, err := s.Check(t.Context(), &headgatev1.CheckRequest{Domain: "api", Attributes: map[string]string{name: value}})
			told := grpcstatus.Convert(err)
			if told.Code() != codes.InvalidArgument || len(told.Message()) > maxWords+len("…") || !utf8.ValidString(told.Message()) {
				t.Errorf("%.20q: %.20q: %s, %d bytes", name, value, told.Code(), len(told.Message()))
			}
		}
	}
}

// FuzzRead compares this door with the HTTP API: both accept the same checks.
func FuzzRead(f *testing.F) {
	for _, seed := range []*headgatev1.CheckRequest{
		{Domain: "api", Attributes: map[string]string{"path": "/llm", "client_ip": "198.51.100.7"}},
		{Domain: "api", Attributes: map[string]string{"header:X-A": "1", "header:x-a": "2"}},
		{Domain: "", Cost: new(int64(-1))},
		{Domain: "api", Cost: new(int64(1 << 53)), Peek: true},
		{Domain: "\x00", Attributes: map[string]string{"client_ip": "fe80::1%eth0", "": "", "hash:x": ""}},
	} {
		wire, err := proto.Marshal(seed)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(wire)
	}
	s := newService(f, memory.New())
	api := httpapi.New(httpapi.Options{
		Asker: admission.Asker{Engine: s.options.Engine, Clock: now, Logger: s.options.Logger, Clients: s.options.Clients},
		Ready: func(context.Context) door.Readiness { return door.Readiness{} },
	})
	f.Fuzz(func(t *testing.T, wire []byte) {
		in := new(headgatev1.CheckRequest)
		if proto.Unmarshal(wire, in) != nil {
			return
		}
		in.Peek = true // so that both give the same answer
		told, err := s.Check(t.Context(), in)
		if err != nil && grpcstatus.Code(err) != codes.InvalidArgument {
			t.Fatalf("%v", err)
		}
		cost := int64(1)
		if in.Cost != nil {
			cost = in.GetCost()
		}
		attributes := in.GetAttributes()
		if attributes == nil {
			attributes = map[string]string{}
		}
		body, encodingErr := json.Marshal(map[string]any{"domain": in.GetDomain(), "attributes": attributes, "cost": cost, "peek": true})
		if encodingErr != nil {
			t.Fatal(encodingErr)
		}
		w := httptest.NewRecorder()
		api.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/check", strings.NewReader(string(body))))
		want := map[bool]int{true: http.StatusOK, false: http.StatusTooManyRequests}[told.GetVerdict().GetAllowed()]
		if err != nil {
			want = http.StatusBadRequest
		}
		if w.Code != want && w.Code != http.StatusRequestEntityTooLarge {
			t.Errorf("%v, %v; HTTP: %d %s", told, err, w.Code, w.Body)
		}
	})
}

// A check under a rule with charge_on has a report, which settles it once.
func TestReports(t *testing.T) {
	s, ctx := newService(t, memory.New()), t.Context()
	check := func() *headgatev1.CheckResponse {
		out, err := s.Check(ctx, &headgatev1.CheckRequest{Domain: "api", Attributes: map[string]string{"path": "/failed"}})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	for i, row := range []struct {
		in      *headgatev1.ReportRequest
		counted bool
		left    int64
	}{
		{&headgatev1.ReportRequest{Status: new(int32(200))}, false, 4},
		{&headgatev1.ReportRequest{Status: new(int32(401))}, true, 4},
		{&headgatev1.ReportRequest{Code: new(int32(16))}, true, 3},
		{&headgatev1.ReportRequest{Code: new(int32(0))}, false, 2},
		{&headgatev1.ReportRequest{Headers: map[string]string{"x-login": "failed"}}, true, 2},
	} {
		one := check()
		if row.in.Report = one.GetReport(); one.GetVerdict().GetRemaining() != row.left {
			t.Errorf("%d: %d left, want %d", i, one.GetVerdict().GetRemaining(), row.left)
		}
		out, err := s.Report(ctx, row.in)
		if err != nil || out.GetCounted() != row.counted || out.GetSettlement().GetEnding() != headgatev1.Ending_ENDING_DONE {
			t.Errorf("%d: %v, %v", i, out, err)
		}
		if out, err := s.Report(ctx, row.in); err != nil || out.GetCounted() || out.GetSettlement().GetEnding() != headgatev1.Ending_ENDING_SETTLED {
			t.Errorf("%d again: %v, %v", i, out, err)
		}
	}
	batch, err := s.CheckBatch(ctx, &headgatev1.CheckBatchRequest{Checks: []*headgatev1.CheckRequest{{Domain: "api", Attributes: map[string]string{"path": "/failed"}}}})
	if err != nil || batch.GetResults()[0].GetReport() == "" {
		t.Errorf("in a batch: %v, %v", batch, err)
	}
	for _, in := range []*headgatev1.ReportRequest{
		{}, {Report: "x"}, {Report: "x", Status: new(int32(99))}, {Report: "x", Headers: map[string]string{"X Y": ""}},
	} {
		if _, err := s.Report(ctx, in); grpcstatus.Code(err) != codes.InvalidArgument {
			t.Errorf("%v: %v", in, err)
		}
	}
	if _, err := s.Report(ctx, &headgatev1.ReportRequest{Report: "x", Status: new(int32(200))}); grpcstatus.Code(err) != codes.NotFound {
		t.Errorf("a token that nobody issued: %v", err)
	}
}
