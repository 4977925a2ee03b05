package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	_ "google.golang.org/grpc/encoding/proto" // the codec that raw replaces
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	headgatev1 "github.com/headgate/headgate/api/headgate/v1"
	"github.com/headgate/headgate/internal/config"
)

// twoDoorsRules have a rule of each kind.
const twoDoorsRules = `domain: api
limits:
  - {name: login, match: {method: POST, path: /login}, key: [client_ip], rate: 2/minute}
  - {name: tokens, match: {path: /llm}, key: "header:X-Api-Key", rate: 1000/day, algorithm: fixed_window}
  - {name: paced, match: {path: /paced}, rate: 1/second, burst: 2, algorithm: leaky_bucket}
  - {name: trial, match: {path: /trial}, rate: 1/minute, mode: shadow}
  - {name: quiet, match: {path: /quiet}, rate: 0/minute, on_limit: {action: shadow_ban}}
  - {name: orders, match: {path: /orders}, rate: 1/minute, on_limit: {action: queue}}
  - {name: exports, match: {path: /exports}, concurrency: 1, lease: 30s}
  - {name: closed, match: {path: /closed}, rate: 0/minute}
`

// callers send the same requests over HTTP and gRPC.
type callers struct {
	http, grpc *fixture
	limiter    headgatev1.LimiterClient
	// The names of the last lease and reservation, at each of the two.
	named [2]map[string]string
}

func newCallers(t *testing.T) *callers {
	t.Helper()
	open := func(c *config.Config) { c.Door("grpc").Address = "127.0.0.1:0" }
	c := &callers{http: run(t, twoDoorsRules, http.NotFoundHandler(), inFile(t), open), grpc: run(t, twoDoorsRules, http.NotFoundHandler(), inFile(t), open)}
	c.limiter = headgatev1.NewLimiterClient(dialGRPC(t, c.grpc.Addr(doorGRPC)))
	for i := range c.named {
		c.named[i] = map[string]string{}
	}
	return c
}

// said is an answer, in terms of the HTTP API.
type said struct {
	Code    codes.Code
	Body    map[string]any
	Headers map[string]string
}

// name replaces the names that differ between the two, and remembers them.
func (c *callers) name(which int, body map[string]any) map[string]any {
	for _, what := range []string{"lease", "reservation"} {
		if text, ok := body[what].(string); ok {
			c.named[which][what], body[what] = text, "(some)"
		}
	}
	list, _ := body["results"].([]any)
	for _, one := range list {
		c.name(which, one.(map[string]any)) //nolint:errcheck // a test
	}
	return body
}

// asked returns body with the names at that door for LEASE and RESERVATION.
func (c *callers) asked(which int, body string) string {
	return strings.NewReplacer("LEASE", c.named[which]["lease"], "RESERVATION", c.named[which]["reservation"]).Replace(body)
}

// byHTTP sends a request over HTTP.
func (c *callers) byHTTP(t *testing.T, path, body string) said {
	t.Helper()
	res, err := c.http.client.Post(c.http.apiURL(path), "application/json", strings.NewReader(c.asked(0, body)))
	if err != nil {
		t.Fatal(err)
	}
	out := said{Headers: map[string]string{}}
	if err := json.Unmarshal([]byte(read(t, res)), &out.Body); err != nil {
		t.Fatal(err)
	}
	switch detail, _ := out.Body["detail"].(string); {
	case res.StatusCode == http.StatusBadRequest && strings.Contains(detail, "is unknown: it was not issued"):
		return said{Code: codes.NotFound}
	case res.StatusCode == http.StatusBadRequest:
		return said{Code: codes.InvalidArgument}
	}
	for name := range res.Header {
		if !slices.Contains([]string{"Content-Type", "Content-Length", "Cache-Control", "Date"}, name) {
			out.Headers[name] = res.Header.Get(name)
		}
	}
	out.Body = c.name(0, out.Body)
	return out
}

// byGRPC sends the same request over gRPC.
func (c *callers) byGRPC(t *testing.T, path, body string) said {
	t.Helper()
	body = c.asked(1, body)
	out := said{Headers: map[string]string{}}
	var err error
	switch path {
	case "/v1/check":
		if strings.Contains(body, `"checks"`) {
			var answer *headgatev1.CheckBatchResponse
			answer, err = c.limiter.CheckBatch(t.Context(), message[headgatev1.CheckBatchRequest](t, body))
			list := []any{}
			for _, r := range answer.GetResults() {
				list = append(list, toldOf(r.GetVerdict(), "lease", r.GetLease()))
			}
			out.Body = map[string]any{"results": list}
			break
		}
		var answer *headgatev1.CheckResponse
		answer, err = c.limiter.Check(t.Context(), message[headgatev1.CheckRequest](t, body))
		out.Body = toldOf(answer.GetVerdict(), "lease", answer.GetLease())
		out.add(answer.GetHeaders())
	case "/v1/reserve":
		var answer *headgatev1.ReserveResponse
		answer, err = c.limiter.Reserve(t.Context(), message[headgatev1.ReserveRequest](t, body))
		out.Body = toldOf(answer.GetVerdict(), "reservation", answer.GetReservation())
		out.add(answer.GetHeaders())
	case "/v1/commit":
		var answer *headgatev1.CommitResponse
		answer, err = c.limiter.Commit(t.Context(), message[headgatev1.CommitRequest](t, body))
		out.Body = settledOf("committed", answer.GetSettlement())
	case "/v1/cancel":
		var answer *headgatev1.CancelResponse
		answer, err = c.limiter.Cancel(t.Context(), message[headgatev1.CancelRequest](t, body))
		out.Body = settledOf("cancelled", answer.GetSettlement())
	case "/v1/release":
		var answer *headgatev1.ReleaseResponse
		answer, err = c.limiter.Release(t.Context(), message[headgatev1.ReleaseRequest](t, body))
		out.Body = endedOf("released", answer.GetEnding())
	case "/v1/renew":
		var answer *headgatev1.RenewResponse
		answer, err = c.limiter.Renew(t.Context(), message[headgatev1.RenewRequest](t, body))
		out.Body = endedOf("renewed", answer.GetEnding())
		if answer.GetLease() != "" {
			out.Body["lease"] = answer.GetLease()
		}
	}
	if err != nil {
		return said{Code: grpcstatus.Code(err)}
	}
	out.Body = c.name(1, out.Body)
	return out
}

func (s *said) add(list []*headgatev1.Header) {
	for _, h := range list {
		s.Headers[http.CanonicalHeaderKey(h.GetName())] = h.GetValue()
	}
}

// message converts a body of the HTTP API to a protobuf message.
func message[M any, P interface {
	*M
	proto.Message
}](t *testing.T, body string) P {
	t.Helper()
	m := P(new(M))
	if err := protojson.Unmarshal([]byte(body), m); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return m
}

// toldOf returns a verdict as the HTTP API shows it.
func toldOf(v *headgatev1.Verdict, name, token string) map[string]any {
	if v == nil {
		return nil
	}
	out := map[string]any{"allowed": v.GetAllowed(), "reason": word(v.GetReason())}
	if v.GetRule() != "" {
		out["rule"] = v.GetRule()
	}
	for name, n := range map[string]*int64{"limit": v.Limit, "remaining": v.Remaining, "retry_after_ms": v.RetryAfterMs, "reset_after_ms": v.ResetAfterMs} {
		if n != nil {
			out[name] = float64(*n)
		}
	}
	if v.GetNever() && v.Limit != nil {
		out["retry_after_ms"] = nil
	}
	if action := word(v.GetAction()); action != "allow" && action != "reject" {
		out["action"] = action
	}
	if v.GetDelayMs() > 0 {
		out["delay_ms"] = float64(v.GetDelayMs())
	}
	for _, rule := range v.GetShadow() {
		list, _ := out["shadow"].([]any)
		out["shadow"] = append(list, rule)
	}
	if token != "" {
		out[name] = token
	}
	return out
}

// word returns the HTTP API's name of a constant: too_large for REASON_TOO_LARGE.
func word(constant fmt.Stringer) string {
	_, rest, _ := strings.Cut(constant.String(), "_")
	return strings.ToLower(rest)
}

func endedOf(verb string, e headgatev1.Ending) map[string]any {
	out := map[string]any{verb: e == headgatev1.Ending_ENDING_DONE}
	if e != headgatev1.Ending_ENDING_DONE {
		out["reason"] = word(e)
	}
	return out
}

func settledOf(verb string, s *headgatev1.Settlement) map[string]any {
	out := endedOf(verb, s.GetEnding())
	if s.GetInDebt() {
		out["in_debt"] = true
	}
	for _, rule := range s.GetRulesGone() {
		list, _ := out["rules_gone"].([]any)
		out["rules_gone"] = append(list, rule)
	}
	return out
}

// TestTwoDoorsAgree sends the same requests to the HTTP API and headgate.v1.Limiter, in
// this order, and compares whole answers. want is part of them, so both cannot be wrong
// in the same way.
func TestTwoDoorsAgree(t *testing.T) {
	t.Parallel()
	const login = `{"domain":"api","attributes":{"method":"POST","path":"/login","client_ip":"198.51.100.7"}}`
	at := func(path, more string) string {
		return fmt.Sprintf(`{"domain":"api","attributes":{"path":%q,"header:X-Api-Key":"k"}%s}`, path, more)
	}
	wrong := fmt.Sprint(codes.InvalidArgument)
	long := strings.Repeat("x", 100_000)
	many := func(n int) string {
		list := make([]string, n)
		for i := range list {
			list[i] = fmt.Sprintf(`"a%d":"x"`, i)
		}
		return `{"domain":"api","attributes":{` + strings.Join(list, ",") + `}}`
	}
	c := newCallers(t)
	for i, row := range []struct {
		after      time.Duration
		path, body string
		want       string
	}{
		{0, "/v1/check", login, `allowed:true limit:2 reason:ok remaining:1`},
		{0, "/v1/check", strings.Replace(login, `}}`, `},"peek":true}`, 1), `remaining:1`},
		{0, "/v1/check", strings.Replace(login, `}}`, `},"cost":0}`, 1), `remaining:1`},
		{0, "/v1/check", login, `remaining:0`},
		{time.Second, "/v1/check", login, `allowed:false limit:2 reason:limited remaining:0 reset_after_ms:59000 retry_after_ms:29000`},
		{0, "/v1/check", strings.Replace(login, `}}`, `},"cost":3}`, 1), `reason:too_large remaining:0 reset_after_ms:59000 retry_after_ms:<nil>`},
		{0, "/v1/check", strings.Replace(login, `}}`, `},"cost":9007199254740991}`, 1), `reason:too_large`},
		{0, "/v1/check", at("/paced", ""), `allowed:true limit:2 reason:ok`},
		{0, "/v1/check", at("/paced", ""), `action:delay allowed:true delay_ms:1000`},
		{0, "/v1/check", at("/trial", `,"cost":2`), `shadow:[trial]`},
		{0, "/v1/check", at("/quiet", ""), `action:shadow_ban allowed:false`},
		{0, "/v1/check", at("/orders", ""), `allowed:true`},
		{0, "/v1/check", at("/orders", ""), `action:queue allowed:false`},
		{0, "/v1/check", at("/closed", ""), `allowed:false`},
		{0, "/v1/check", at("/else", ""), `allowed:true reason:unlimited`},
		{0, "/v1/check", `{"domain":"other"}`, `allowed:true reason:unknown_domain`},
		{0, "/v1/check", `{"checks":[` + login + `,` + at("/llm", `,"cost":10`) + `,` + at("/llm", "") + `]}`, `remaining:990`},
		{0, "/v1/check", `{"checks":[]}`, `results:[]`},

		// Slots.
		{0, "/v1/check", at("/exports", ""), `allowed:true lease:(some)`},
		{0, "/v1/check", at("/exports", ""), `allowed:false`},
		{20 * time.Second, "/v1/renew", `{"lease":"LEASE"}`, `lease:(some) renewed:true`},
		{20 * time.Second, "/v1/release", `{"lease":"LEASE"}`, `released:true`},
		{0, "/v1/release", `{"lease":"LEASE"}`, `reason:gone released:false`},
		{0, "/v1/renew", `{"lease":"LEASE"}`, `reason:gone renewed:false`},

		// Reservations.
		{0, "/v1/reserve", at("/llm", `,"cost":400,"ttl_ms":60000`), `allowed:true`},
		{0, "/v1/commit", `{"reservation":"RESERVATION","cost":100}`, `committed:true`},
		{0, "/v1/commit", `{"reservation":"RESERVATION","cost":100}`, `committed:false reason:settled`},
		{0, "/v1/cancel", `{"reservation":"RESERVATION"}`, `cancelled:false reason:settled`},
		{0, "/v1/check", at("/llm", `,"peek":true`), `remaining:889`},
		{0, "/v1/reserve", at("/llm", `,"cost":400`), `remaining:489 reservation:(some)`},
		{0, "/v1/cancel", `{"reservation":"RESERVATION"}`, `cancelled:true`},
		{0, "/v1/reserve", at("/llm", `,"cost":400,"ttl_ms":1000`), `remaining:489`},
		{time.Second, "/v1/commit", `{"reservation":"RESERVATION","cost":1}`, `committed:false reason:expired`},
		{0, "/v1/reserve", at("/llm", `,"cost":400`), `remaining:89`},
		{0, "/v1/commit", `{"reservation":"RESERVATION","cost":2000}`, `committed:true in_debt:true`},
		{0, "/v1/reserve", at("/llm", ""), `allowed:false`},
		{0, "/v1/reserve", at("/exports", ""), `reservation:(some)`},
		{0, "/v1/cancel", `{"reservation":"RESERVATION"}`, `cancelled:true`},
		{0, "/v1/check", at("/exports", ""), `allowed:true`},

		// Errors.
		{0, "/v1/check", `{}`, wrong},
		{0, "/v1/check", `{"domain":""}`, wrong},
		{0, "/v1/check", `{"domain":"api","cost":-1}`, wrong},
		{0, "/v1/check", `{"domain":"api","cost":9007199254740992}`, wrong},
		{0, "/v1/check", `{"domain":"api","attributes":{"":"x"}}`, wrong},
		{0, "/v1/check", `{"domain":"api","attributes":{"heder:X-A":"x"}}`, wrong},
		{0, "/v1/check", `{"domain":"api","attributes":{"header:X-A":"x","header:x-a":"y"}}`, wrong},
		{0, "/v1/check", `{"domain":"api","attributes":{"client_ip":"198.51.100.7:80"}}`, wrong},
		{0, "/v1/check", `{"domain":"api","attributes":{"client_ip":"` + long + `"}}`, wrong},
		{0, "/v1/check", `{"domain":"api","attributes":{"` + long + `:x":""}}`, wrong},
		{0, "/v1/check", many(129), wrong},
		{0, "/v1/check", many(128), `allowed:true`},
		{0, "/v1/check", `{"checks":[` + login + `,{"domain":""}]}`, wrong},
		{0, "/v1/check", `{"checks":[` + strings.Repeat(`{"domain":"a"},`, 1000) + `{"domain":"a"}]}`, wrong},
		{0, "/v1/reserve", `{"domain":"api","ttl_ms":0}`, wrong},
		{0, "/v1/reserve", `{"domain":"api","ttl_ms":86400001}`, wrong},
		{0, "/v1/reserve", `{}`, wrong},
		{0, "/v1/commit", `{"reservation":"a"}`, wrong},
		{0, "/v1/commit", `{"reservation":"a","cost":-1}`, wrong},
		{0, "/v1/commit", `{"cost":1}`, wrong},
		{0, "/v1/cancel", `{}`, wrong},
		{0, "/v1/release", `{}`, wrong},
		{0, "/v1/renew", `{}`, wrong},
		{0, "/v1/commit", `{"reservation":"AAAA","cost":1}`, fmt.Sprint(codes.NotFound)},
		{0, "/v1/cancel", `{"reservation":"LEASE"}`, fmt.Sprint(codes.NotFound)},
		{0, "/v1/release", `{"lease":"RESERVATION"}`, fmt.Sprint(codes.NotFound)},
		{0, "/v1/renew", `{"lease":"` + long + `"}`, fmt.Sprint(codes.NotFound)},
	} {
		c.http.clock.advance(row.after)
		c.grpc.clock.advance(row.after)
		byHTTP, byGRPC := c.byHTTP(t, row.path, row.body), c.byGRPC(t, row.path, row.body)
		if diff := cmp.Diff(byHTTP, byGRPC); diff != "" {
			t.Errorf("%d: %s %.200s (-HTTP +gRPC)\n%s", i, row.path, row.body, diff)
		}
		text := fmt.Sprint(byHTTP.Code, byHTTP.Body)
		for want := range strings.FieldsSeq(row.want) {
			if !strings.Contains(text, want) {
				t.Errorf("%d: %s %.200s: %s, want %s", i, row.path, row.body, text, want)
			}
		}
	}
}
