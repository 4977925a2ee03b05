package grpcapi

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	headgatev1 "github.com/headgate/headgate/api/headgate/v1"
	"github.com/headgate/headgate/internal/decide/admission"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/request/client"
	"github.com/headgate/headgate/internal/request/token"
	"github.com/headgate/headgate/internal/rules/rulefile"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

func TestLimits(t *testing.T) {
	const text = "domain: api\nlimits: [{name: per-key, match: {path: /v1}, key: 'header:X-Key', rate: 2/minute, algorithm: fixed_window}]\n"
	rs, diagnostics := rulefile.Parse(rulefile.Source{Name: "test.yaml", Data: []byte(text)})
	if rs == nil {
		t.Fatal(diagnostics)
	}
	clients, err := client.New(client.Config{})
	if err != nil {
		t.Fatal(err)
	}
	e := engine.New(memory.New(memory.WithClock(now)), rs)
	s := New(Options{Asker: admission.Asker{Engine: e, Clock: now, Clients: clients}, Tokens: token.New()})
	for range 3 {
		if _, err := s.Check(t.Context(), &headgatev1.CheckRequest{Domain: "api", Attributes: map[string]string{"path": "/v1", "header:X-Key": "k"}}); err != nil {
			t.Fatal(err)
		}
	}
	until := now().Add(3_600_000_000_000)
	banned := string(store.AppendKeyPart(nil, "bad"))
	e.SetExceptions(engine.NewExceptions([]engine.Exception{{Scope: "api/per-key", Key: banned, BannedUntil: until.UnixMicro()}}, now().UnixMicro()))
	for key, want := range map[string]*headgatev1.CallerLimit{
		"k": {
			Name: "per-key", Algorithm: "fixed_window", Limit: 2, Rate: "2/minute fixed_window", PeriodMs: 60_000, Used: 2,
			ResetAfterMs: 60_000, RetryAfterMs: new(int64(60_000)),
		},
		"bad": {
			Name: "per-key", Algorithm: "fixed_window", Limit: 2, Rate: "2/minute fixed_window", PeriodMs: 60_000, Remaining: 2,
			RetryAfterMs: new(int64(3_600_000)), BannedUntilMs: new(until.UnixMilli()),
		},
	} {
		got, err := s.Limits(t.Context(), &headgatev1.LimitsRequest{Domain: "api", Attributes: map[string]string{"header:X-Key": key}})
		if err != nil || len(got.GetLimits()) != 1 || !proto.Equal(got.GetLimits()[0], want) || len(got.GetHeaders()) == 0 {
			t.Errorf("%s: %v, %v", key, got, err)
		}
		if (got.BannedUntilMs != nil) != (key == "bad") {
			t.Errorf("%s: %v", key, got)
		}
	}
}

func TestLimitsOfListed(t *testing.T) {
	rs, diagnostics := rulefile.Parse(rulefile.Source{Name: "test.yaml", Data: []byte(
		"domain: api\nallow: {'header:X-Key': partner}\ndeny: {'header:X-Key': spammer}\nlimits: []\n")})
	if rs == nil {
		t.Fatal(diagnostics)
	}
	clients, err := client.New(client.Config{})
	if err != nil {
		t.Fatal(err)
	}
	s := New(Options{Asker: admission.Asker{Engine: engine.New(memory.New(), rs), Clock: now, Clients: clients}, Tokens: token.New()})
	for _, key := range []string{"partner", "spammer", "other"} {
		got, err := s.Limits(t.Context(), &headgatev1.LimitsRequest{Domain: "api", Attributes: map[string]string{"header:X-Key": key}})
		if err != nil || got.GetUnlimited() != (key == "partner") || got.GetDenied() != (key == "spammer") {
			t.Errorf("%s: %v, %v", key, got, err)
		}
	}
}

func TestLimitsErrors(t *testing.T) {
	s := newService(t, memory.New())
	for _, row := range []struct {
		in   *headgatev1.LimitsRequest
		code codes.Code
		want string
	}{
		{&headgatev1.LimitsRequest{}, codes.InvalidArgument, "domain is missing"},
		{&headgatev1.LimitsRequest{Domain: "nowhere"}, codes.NotFound, "no rules are loaded for this domain"},
		{&headgatev1.LimitsRequest{Domain: "api", Attributes: map[string]string{"headers:X": "1"}}, codes.InvalidArgument, `did you mean "header:"?`},
		{&headgatev1.LimitsRequest{Domain: "api", Attributes: map[string]string{"client_ip": "7"}}, codes.InvalidArgument, "must be an IP address"},
	} {
		if _, err := s.Limits(t.Context(), row.in); grpcstatus.Code(err) != row.code || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%v: %v", row.in, err)
		}
	}
}
