package proxy_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/headgate/headgate/internal/door/proxy"
	"github.com/headgate/headgate/internal/queue"
	"github.com/headgate/headgate/middleware/grpclimit"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// healthClient connects a gRPC client over h2c to a proxy, whose upstream is a health service.
func healthClient(t *testing.T, p *proxy.Proxy) healthpb.HealthClient {
	t.Helper()
	front := httptest.NewUnstartedServer(p)
	front.Config.Protocols = new(http.Protocols)
	front.Config.Protocols.SetUnencryptedHTTP2(true)
	front.Start()
	t.Cleanup(front.Close)
	connection, err := grpc.NewClient(front.Listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	return healthpb.NewHealthClient(connection)
}

// healthService starts a gRPC server and returns the options of a proxy before it.
func healthService(t *testing.T) func(*proxy.Options) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	healthpb.RegisterHealthServer(server, health.NewServer())
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
	transport := proxy.NewTransport()
	proxy.Reach{Cleartext: true}.Set(transport)
	t.Cleanup(transport.CloseIdleConnections)
	return func(o *proxy.Options) {
		o.Upstream, o.Transport = &url.URL{Scheme: "http", Host: l.Addr().String()}, transport
	}
}

// callsEnd calls once, as a unary call and as a stream, and returns how each ends.
func callsEnd(t *testing.T, c healthpb.HealthClient) (header metadata.MD, unary, stream error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var trailer metadata.MD // has all fields if there is no message
	_, unary = c.Check(ctx, &healthpb.HealthCheckRequest{}, grpc.Header(&header), grpc.Trailer(&trailer))
	header = metadata.Join(header, trailer)
	s, stream := c.Watch(ctx, &healthpb.HealthCheckRequest{})
	if stream == nil {
		_, stream = s.Recv()
	}
	return header, unary, stream
}

// Whatever the proxy itself says to a gRPC caller is a gRPC status, as grpclimit would
// say it.
func TestCallersOfGRPCGetAStatus(t *testing.T) {
	const first = "domain: api\nlimits:\n  - {name: all, key: client_ip, rate: 2/hour, algorithm: fixed_window"
	db := func() store.Store { return memory.New() }
	closed := func() store.Store {
		s := memory.New()
		_ = s.Close()
		return s
	}
	for _, row := range []struct {
		name, rules string
		store       func() store.Store
		change      func(*proxy.Options)
		code        codes.Code
		retry       bool // it says when to try again
		limit       string
		message     string
	}{
		{"limit", first + "}\n", db, nil, codes.ResourceExhausted, true, "limit:all", "rate limit exceeded"},
		{"limit with a status", first + ", on_limit: {status: 503, body: x}}\n", db, nil, codes.ResourceExhausted, true, "limit:all", "rate limit exceeded"},
		{"queue", first + ", on_limit: queue}\n", db, nil, codes.ResourceExhausted, true, "limit:all", "rate limit exceeded"},
		{"ban", first + ", on_repeat: {refusals: 1/1m, ban: 1h}}\n", db, nil, codes.ResourceExhausted, true, "limit:all", "rate limit exceeded"},
		{"too expensive", "domain: api\nlimits:\n  - {name: all, rate: 2/hour, algorithm: fixed_window, cost: {from: \"header:Content-Type\", default: 1, max: 5}}\n", db, nil, codes.ResourceExhausted, false, "limit:all", "the call costs more than the entire limit"},
		{"deny list", "domain: api\ndeny: {client_ip: [127.0.0.0/8]}\nlimits: [{name: all, rate: 2/hour}]\n", db, nil, codes.PermissionDenied, false, "", "requests from you are not accepted"},
		{"fail closed", first + ", on_store_error: deny}\n", closed, nil, codes.Unavailable, true, "", "the limit cannot be checked at the moment"},
		{"upstream down", "domain: api\nlimits: [{name: all, rate: 9/hour}]\n", db, func(o *proxy.Options) {
			o.Transport = upstream(func(*http.Request) (*http.Response, error) { return nil, errors.New("refused") })
		}, codes.Unavailable, false, "", "the upstream cannot be reached"},
		{"upstream down, cost pending", "domain: api\nlimits: [{name: all, rate: 9/hour, cost: {estimate: 1, from_response: X-Cost}}]\n", db, func(o *proxy.Options) {
			o.Transport = upstream(func(*http.Request) (*http.Response, error) { return nil, errors.New("refused") })
		}, codes.Unavailable, false, "", "the upstream cannot be reached"},
		{"upstream full", "domain: api\nlimits: [{name: all, rate: 9/hour}]\n", db, func(o *proxy.Options) {
			o.Transport = upstream(func(*http.Request) (*http.Response, error) { return nil, proxy.ErrUpstreamFull })
		}, codes.Unavailable, true, "", "overloaded: too many connections to the upstream"},
		{"bad token", "domain: api\nlimits: [{name: all, key: 'jwt:sub', rate: 9/hour}]\n", db, func(o *proxy.Options) { o.Tokens = refusing{} }, codes.Unauthenticated, false, "", "the token has expired"},
	} {
		t.Run(row.name, func(t *testing.T) {
			change := row.change
			if change == nil {
				change = healthService(t)
			}
			p := newProxy(t, row.rules, row.store(), ok, change)
			p.SetQueue(queue.New(queue.Options{Store: fullDisk{}, Clock: time.Now, Policy: func(string, string) queue.Policy { return queue.DefaultPolicy() }}))
			c := healthClient(t, p)
			for i := range 3 { // the first two may be within the limit
				header, unary, stream := callsEnd(t, c)
				if i < 2 {
					continue
				}
				for kind, err := range map[string]error{"unary": unary, "stream": stream} {
					s, _ := grpcstatus.FromError(err)
					if s.Code() != row.code || s.Message() != row.message {
						t.Errorf("%s: %v %q, want %v %q", kind, s.Code(), s.Message(), row.code, row.message)
					}
					if after, is := grpclimit.RetryAfter(err); is != row.retry || is && after <= 0 {
						t.Errorf("%s: retry %v %v", kind, after, is)
					}
					if got := violated(s); got != row.limit {
						t.Errorf("%s: violated %q, want %q", kind, got, row.limit)
					}
				}
				if row.limit != "" && row.name != "too expensive" && header.Get("x-ratelimit-limit") == nil {
					t.Errorf("header %v says nothing of the limit", header)
				}
			}
		})
	}
}

func violated(s *grpcstatus.Status) string {
	var names []string
	for _, detail := range s.Details() {
		if quota, is := detail.(*errdetails.QuotaFailure); is {
			for _, v := range quota.GetViolations() {
				names = append(names, v.GetSubject())
			}
		}
	}
	return strings.Join(names, " ")
}

// A shadow-banned call looks like one that succeeded with an empty message, or fails as
// the rule says.
func TestShadowBansOfGRPC(t *testing.T) {
	for onLimit, want := range map[string]codes.Code{
		"{action: shadow_ban, latency: 1ms, body: '{}', content_type: application/json}": codes.OK,
		"{action: shadow_ban, latency: 1ms, status: 404}":                                codes.NotFound,
	} {
		p := newProxy(t, "domain: api\nlimits:\n  - {name: all, rate: 2/hour, algorithm: fixed_window, on_limit: "+onLimit+"}\n", memory.New(), ok, healthService(t))
		c := healthClient(t, p)
		passed, _, _ := callsEnd(t, c)
		header, unary, stream := callsEnd(t, c)
		if grpcstatus.Code(unary) != want || grpcstatus.Code(stream) != want {
			t.Errorf("%s: %v, %v", onLimit, unary, stream)
		}
		for name := range header {
			if len(passed.Get(name)) == 0 && want == codes.OK {
				t.Errorf("%s: only a banned call has %q: %v", onLimit, name, header)
			}
		}
	}
}

// A call that gives up waiting for its turn gets a status too.
func TestWaitingCallsGetAStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProxy(t, queueRules, memory.New(memory.WithClock(time.Now)), ok, func(o *proxy.Options) { o.MaxWaiting = -1 })
		for range 2 {
			go p.ServeHTTP(httptest.NewRecorder(), call(t, "application/grpc"))
		}
		p.Drain(time.Now())
		synctest.Wait()
		w := httptest.NewRecorder()
		p.ServeHTTP(w, call(t, "application/grpc"))
		if w.Code != http.StatusOK || w.Header().Get("Grpc-Status") != "14" {
			t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
		}
	})
}

func call(t *testing.T, contentType string) *http.Request {
	t.Helper()
	return request(t.Context(), http.MethodPost, "/service/Method", "Content-Type", contentType)
}

// gRPC-Web has the status in its body, in its own framing; other types and methods are
// not gRPC.
func TestFramingOfGRPC(t *testing.T) {
	const rulesText = "domain: api\nlimits:\n  - {name: all, rate: 1/hour, algorithm: fixed_window%s}\n"
	const inBody, inHeader, plain = "body", "header", "none"
	for _, row := range []struct{ method, contentType, where string }{
		{http.MethodPost, "application/grpc", inHeader},
		{http.MethodPost, "application/grpc+proto", inHeader},
		{http.MethodPost, "Application/GRPC+json; charset=utf-8", inHeader},
		{http.MethodPost, "application/grpc-web", inBody},
		{http.MethodPost, "application/grpc-web+proto", inBody},
		{http.MethodPost, "application/grpc-web-text", inBody},
		{http.MethodPost, "application/grpc-web-text+proto", inBody},
		{http.MethodPost, "application/grpcfoo", plain},
		{http.MethodPost, "application/json", plain},
		{http.MethodPost, "", plain},
		{http.MethodGet, "application/grpc", plain},
	} {
		for onLimit, code := range map[string]string{"": "8", ", on_limit: {action: shadow_ban, latency: 1ms}": "0"} {
			p := newProxy(t, fmt.Sprintf(rulesText, onLimit), memory.New(), ok)
			p.ServeHTTP(httptest.NewRecorder(), request(t.Context(), http.MethodGet, "/"))
			w := httptest.NewRecorder()
			p.ServeHTTP(w, request(t.Context(), row.method, "/s/M", "Content-Type", row.contentType))
			res := w.Result()
			body, _ := io.ReadAll(res.Body)
			kind, _, _ := strings.Cut(row.contentType, ";")
			if row.where != plain && (res.StatusCode != http.StatusOK || res.Header.Get("Content-Type") != kind) {
				t.Errorf("%v%s: %d %v", row, onLimit, res.StatusCode, res.Header)
			}
			if strings.Contains(row.contentType, "text") {
				decoded, err := base64.StdEncoding.DecodeString(string(body))
				if err != nil {
					t.Errorf("%v: %v", row, err)
				}
				body = decoded
			}
			ended := res.Header.Get("Grpc-Status") + res.Trailer.Get("Grpc-Status")
			frames := framesOf(t, body)
			switch row.where {
			case plain:
				if ended != "" {
					t.Errorf("%v: grpc-status %s", row, ended)
				}
				continue
			case inBody:
				last := frames[len(frames)-1]
				if ended != "" || !strings.HasPrefix(last, "80:grpc-status: "+code+"\r\n") || !strings.HasSuffix(last, "\r\n") {
					t.Errorf("%v%s: %q, header %v", row, onLimit, frames, res.Header)
				}
				frames = frames[:len(frames)-1]
			case inHeader:
				if ended != code {
					t.Errorf("%v%s: grpc-status %q, want %s", row, onLimit, ended, code)
				}
			}
			if want := map[string][]string{"8": nil, "0": {"00:"}}[code]; !slices.Equal(frames, want) {
				t.Errorf("%v%s: messages %q", row, onLimit, frames)
			}
		}
	}
}

// framesOf returns the frames of a body, each with its flags.
func framesOf(t *testing.T, body []byte) (frames []string) {
	t.Helper()
	for len(body) > 0 && body[0]&0x7f == 0 {
		size := 0
		for _, b := range body[1:5] {
			size = size<<8 | int(b)
		}
		frames = append(frames, fmt.Sprintf("%02x:%s", body[0], body[5:5+size]))
		body = body[5+size:]
	}
	return frames
}

// A gRPC answer without a message is a single header, which has the status and ends the
// stream. It passes as such, whatever the rules have to know of it.
func TestStatusWithoutAMessagePasses(t *testing.T) {
	for name, rule := range map[string]string{
		"no rule":     "match: {path: /none}, rate: 9/hour",
		"rate":        "rate: 9/hour",
		"charge_on":   "rate: 9/hour, charge_on: {grpc: [NOT_FOUND]}",
		"concurrency": "concurrency: 9, lease: 1m",
		"cost":        "rate: 9/hour, cost: {estimate: 1, from_response: X-Cost}",
	} {
		t.Run(name, func(t *testing.T) {
			c := healthClient(t, newProxy(t, "domain: api\nlimits: [{name: all, key: client_ip, "+rule+"}]\n", memory.New(), nil, healthService(t)))
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			for range 3 {
				_, unary := c.Check(ctx, &healthpb.HealthCheckRequest{Service: "unknown"})
				list, stream := c.List(ctx, &healthpb.HealthListRequest{})
				if grpcstatus.Code(unary) != codes.NotFound || stream != nil || len(list.GetStatuses()) == 0 {
					t.Errorf("%v, %v, %v", unary, list, stream)
				}
			}
		})
	}
}

// An answer of the upstream passes as it is, also one that is not gRPC.
func TestAnswersOfTheUpstreamStay(t *testing.T) {
	p := newProxy(t, "domain: api\nlimits: [{name: all, rate: 9/hour}]\n", memory.New(), func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusBadGateway, Header: http.Header{"Content-Type": {"text/html"}}, Body: io.NopCloser(strings.NewReader("down")), Request: r}, nil
	}, func(o *proxy.Options) { o.TrustedProxies = []netip.Prefix{} })
	w := httptest.NewRecorder()
	p.ServeHTTP(w, call(t, "application/grpc"))
	if w.Code != http.StatusBadGateway || w.Body.String() != "down" || w.Header().Get("Grpc-Status") != "" {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
}
