package e2e

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	metricspb "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	tracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	spanpb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/testkit/certtest"
)

const (
	caller  = "00f067aa0ba902b7"
	secret  = "sk-topsecret"
	tracing = `
domain: api
limits:
  - {name: per-key, key: ["header:X-Api-Key"], rate: 1/minute}
  - {name: per-path, key: [client_ip, path, "query:token", host], rate: 100/minute}
`
)

// parent is the traceparent of a caller, for the nth trace.
func parent(n int, flags string) (header, trace string) {
	trace = fmt.Sprintf("4bf92f3577b34da6a3ce929d0e0e%04x", n)
	return "00-" + trace + "-" + caller + "-" + flags, trace
}

// A proxied request is a child span of the caller's, with the calls of the store and
// the backend as its children. The backend continues the trace.
func TestTraceOfTheProxy(t *testing.T) {
	for _, p := range []string{overGRPC, overHTTP} {
		t.Run(p, func(t *testing.T) {
			var r receiver
			told := make(chan http.Header, 10)
			backend := http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) { told <- q.Header })
			f := run(t, tracing, backend, trust("127.0.0.0/8"), sending(t, r.listen(t, p, "127.0.0.1:0"), p, onlyTraces))
			ask := func(traceparent string) int {
				res, _ := f.get(t, f.proxyURL("/users/"+secret+"?token="+secret), "X-Api-Key", secret,
					"X-Forwarded-For", "198.51.100.7", "Traceparent", traceparent, "Tracestate", "vendor=x")
				return res.StatusCode
			}
			// Traces that callers do not record are not recorded, but continued.
			header, unrecorded := parent(1, "00")
			if status := ask(header); status != http.StatusOK {
				t.Fatal(status)
			}
			if got := (<-told).Get("Traceparent"); !strings.HasPrefix(got, "00-"+unrecorded+"-") || !strings.HasSuffix(got, "-00") || strings.Contains(got, caller) {
				t.Errorf("the backend is told %q", got)
			}
			f.clock.advance(time.Minute)
			header, trace := parent(2, "01")
			if status := ask(header); status != http.StatusOK {
				t.Fatal(status)
			}
			at := <-told
			header, over := parent(3, "01")
			if status := ask(header); status != http.StatusTooManyRequests {
				t.Fatal(status)
			}
			spans := f.awaitSpans(t, &r, trace, 3)
			server, store, client := named(t, spans, "GET"), named(t, spans, "store batch"), spans[slices.IndexFunc(spans, func(s *spanpb.Span) bool { return s.GetKind() == spanpb.Span_SPAN_KIND_CLIENT })]
			if server == client {
				server = spans[slices.IndexFunc(spans, func(s *spanpb.Span) bool { return s.GetKind() == spanpb.Span_SPAN_KIND_SERVER })]
			}
			if got := fmt.Sprintf("%x", server.GetParentSpanId()); got != caller || server.GetTraceState() != "vendor=x" {
				t.Errorf("the parent is %s with %q", got, server.GetTraceState())
			}
			if !bytes.Equal(store.GetParentSpanId(), server.GetSpanId()) || !bytes.Equal(client.GetParentSpanId(), server.GetSpanId()) {
				t.Errorf("not below the request: %v", spans)
			}
			if got, want := at.Get("Traceparent"), fmt.Sprintf("00-%s-%x-01", trace, client.GetSpanId()); got != want || at.Get("Tracestate") != "vendor=x" {
				t.Errorf("the backend is told %q, want %q", got, want)
			}
			hasAttributes(t, server, "headgate.domain", "api", "headgate.rule", "per-key", "headgate.outcome", "allowed", "headgate.door", "proxy",
				"http.request.method", "GET", "http.response.status_code", "200", "url.scheme", "http", "network.protocol.version", "1.1")
			hasAttributes(t, store, "headgate.store", "memory", "headgate.store.operations", "2")
			hasAttributes(t, client, "http.request.method", "GET", "http.response.status_code", "200", "server.address", "127.0.0.1")

			refused := named(t, f.awaitSpans(t, &r, over, 2), "GET")
			hasAttributes(t, refused, "headgate.rule", "per-key", "headgate.outcome", "refused", "headgate.reason", "limited", "http.response.status_code", "429")
			if refused.GetStatus().GetCode() == spanpb.Status_STATUS_CODE_ERROR {
				t.Error("a refusal is no error")
			}
			if found := r.of(unrecorded); len(found) > 0 {
				t.Errorf("recorded: %v", found)
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			for _, private := range []string{secret, "198.51.100.7", "/users/"} {
				if bytes.Contains(r.raw.Bytes(), []byte(private)) {
					t.Errorf("%q was sent", private)
				}
			}
		})
	}
}

// Every door that can receive a trace continues it.
func TestTraceOfEachDoor(t *testing.T) {
	var r receiver
	f := run(t, tracing, nil, sending(t, r.listen(t, overGRPC, "127.0.0.1:0"), overGRPC, onlyTraces), func(c *config.Config) {
		c.Door("grpc").Address, c.Door("admin").Address, c.Door("resp").Address = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	})
	post := func(path, body, traceparent string) {
		q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.apiURL(path), strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("Traceparent", traceparent)
		q.Header.Set("Content-Type", "application/json")
		res, err := f.client.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		_ = read(t, res)
	}
	check := `{"domain":"api","attributes":{"header:X-Api-Key":"` + secret + `"}}`
	// All are sent before the first is waited for: spans leave once a second.
	header, one := parent(1, "01")
	post("/v1/check", check, header)
	header, batch := parent(2, "01")
	post("/v1/check", `{"checks":[`+check+`,`+check+`]}`, header)
	header, forward := parent(3, "01")
	f.get(t, f.apiURL("/v1/auth"), "X-Forwarded-Uri", "/", "Traceparent", header, "X-Api-Key", "other")
	header, envoy := parent(4, "01")
	ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", header)
	askEnvoyAs(ctx, t, dialGRPC(t, f.Addr(doorGRPC)))
	header, json := parent(5, "01")
	post("/json", `{"domain":"mesh","descriptors":[{"entries":[{"key":"user","value":"ann"}]}]}`, header)
	header, quiet := parent(6, "01")
	f.get(t, f.apiURL("/healthz"), "Traceparent", header)
	header, unknown := parent(7, "01")
	f.get(t, f.apiURL("/v1/"+secret), "Traceparent", header)

	spans := f.awaitSpans(t, &r, one, 2)
	hasAttributes(t, named(t, spans, "POST /v1/check"), "http.route", "/v1/check", "headgate.door", "api", "headgate.outcome", "allowed")
	if named(t, spans, "store batch").GetKind() != spanpb.Span_SPAN_KIND_INTERNAL {
		t.Error("memory is called by nobody else")
	}

	of := named(t, f.awaitSpans(t, &r, batch, 2), "POST /v1/check")
	hasAttributes(t, of, "headgate.outcome", "refused")
	if events := of.GetEvents(); len(events) != 1 || attributes(events[0].GetAttributes())["headgate.outcome"] != "refused" {
		t.Errorf("the second check of a batch is %v", events)
	}

	hasAttributes(t, named(t, f.awaitSpans(t, &r, forward, 2), "GET /v1/auth"), "headgate.door", "forward_auth", "headgate.outcome", "allowed")

	got := named(t, f.awaitSpans(t, &r, envoy, 1), "envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit")
	hasAttributes(t, got, "rpc.system.name", "grpc", "rpc.method", "envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
		"rpc.response.status_code", "OK", "headgate.door", "grpc", "headgate.domain", "mesh", "headgate.outcome", "allowed")
	if fmt.Sprintf("%x", got.GetParentSpanId()) != caller {
		t.Errorf("the parent is %x", got.GetParentSpanId())
	}

	hasAttributes(t, named(t, f.awaitSpans(t, &r, json, 1), "POST /json"), "headgate.door", "grpc", "headgate.domain", "mesh")

	// Probes have no span, and that of an unknown path does not contain the path.
	hasAttributes(t, named(t, f.awaitSpans(t, &r, unknown, 1), "GET"), "http.response.status_code", "404")
	if found := r.of(quiet); len(found) > 0 {
		t.Errorf("a probe is recorded: %v", found)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if bytes.Contains(r.raw.Bytes(), []byte(secret)) {
		t.Error("the key was sent")
	}
}

// A share of new traces is recorded, and of callers' traces if so configured.
func TestSampling(t *testing.T) {
	var r receiver
	endpoint := r.listen(t, overGRPC, "127.0.0.1:0")
	begun := run(t, tracing, nil, sending(t, endpoint, overGRPC, onlyTraces, everyTrace))
	begun.login(t, "198.51.100.7")
	begun.await(t, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.spans) == 2
	})
	r.mu.Lock()
	if root := named(t, r.spans, "POST /v1/check"); len(root.GetParentSpanId()) != 0 {
		t.Errorf("below %x", root.GetParentSpanId())
	}
	r.mu.Unlock()
	ours := run(t, tracing, nil, sending(t, endpoint, overGRPC, onlyTraces, "OTEL_TRACES_SAMPLER=traceidratio", "OTEL_TRACES_SAMPLER_ARG=0"))
	header, trace := parent(1, "01")
	ours.get(t, ours.apiURL("/v1/auth"), "X-Forwarded-Uri", "/", "Traceparent", header)
	if err := ours.Stop(context.Background()); err != nil {
		t.Error(err)
	}
	if found := r.of(trace); len(found) > 0 {
		t.Errorf("recorded: %v", found)
	}
}

// The exported metrics are those of /metrics, with the same names.
func TestMetricsAreThoseOfPrometheus(t *testing.T) {
	for _, p := range []string{overGRPC, overHTTP} {
		t.Run(p, func(t *testing.T) {
			var r receiver
			f := run(t, loginRules, nil, withAdmin, sending(t, r.listen(t, p, "127.0.0.1:0"), p, onlyMetrics,
				"OTEL_SERVICE_NAME=gate", "OTEL_RESOURCE_ATTRIBUTES=deployment.environment.name=test"))
			for range 7 {
				f.login(t, "198.51.100.7")
			}
			var sent, scraped []string
			defer func() {
				if t.Failed() {
					t.Logf("sent\n%s\nscraped\n%s", strings.Join(sent, "\n"), strings.Join(scraped, "\n"))
				}
			}()
			var resource map[string]string
			f.await(t, func() bool {
				_, text := f.get(t, f.adminURL("/metrics"))
				scraped = ours(strings.Split(text, "\n"))
				sent, resource = r.lines()
				sent = ours(sent)
				return len(sent) > 10 && slices.Equal(sent, scraped)
			})
			if !slices.Contains(sent, `headgate_decisions_total{domain="api",outcome="refused",rule="login"} 2`) {
				t.Error("the refusals are not among them")
			}
			for name, want := range map[string]string{"service.name": "gate", "service.version": "unknown", "deployment.environment.name": "test"} {
				if resource[name] != want {
					t.Errorf("%s is %q, want %q", name, resource[name], want)
				}
			}
			if len(resource["service.instance.id"]) != 36 {
				t.Errorf("the instance is %q", resource["service.instance.id"])
			}
		})
	}
}

// The variables of docs/watch/tracing.md send what the page says.
func TestTracingAsDocumented(t *testing.T) {
	page := readFile(t, "../../docs/watch/tracing.md")
	a := certtest.New(t)
	a.Issue("server", 2, "127.0.0.1")
	pair, err := tls.LoadX509KeyPair(a.Path("server.pem"), a.Path("server.key"))
	if err != nil {
		t.Fatal(err)
	}
	var r receiver
	s := grpc.NewServer(grpc.Creds(credentials.NewServerTLSFromCert(&pair)))
	tracepb.RegisterTraceServiceServer(s, &r)
	metricspb.RegisterMetricsServiceServer(s, metricsReceiver{receiver: &r})
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	variables := regexp.MustCompile(`(?m)^export (OTEL_\w+)=(.*)$`).FindAllStringSubmatch(page, -1)
	if len(variables) < 8 {
		t.Fatalf("the page sets %d variables", len(variables))
	}
	known := strings.NewReplacer("otel.internal:4317", l.Addr().String(), "certs/ca.pem", a.Path("ca.pem"))
	for _, v := range variables {
		t.Setenv(v[1], known.Replace(v[2]))
	}
	f := run(t, loginRules, nil, fromEnvironment(t))
	header, trace := parent(1, "01")
	f.get(t, f.apiURL("/v1/auth"), "X-Forwarded-Uri", "/", "Traceparent", header)
	if err := f.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	if n := len(r.of(trace)); n != 1 {
		t.Errorf("%d spans", n)
	}
	if r.header.Get("Authorization") != "Bearer abc" || r.header.Get("X-Tenant") != "shop" {
		t.Errorf("sent with %v", r.header)
	}
	_, resource := r.lines()
	if resource["service.name"] != "headgate" || resource["deployment.environment.name"] != "production" {
		t.Errorf("sent by %v", resource)
	}
}

// A failed call of the store is an error of its own span. Its text may contain a key
// and is not sent. The rule decides about the request.
func TestTraceOfAStoreThatFails(t *testing.T) {
	var r receiver
	f := run(t, tracing, nil, sending(t, r.listen(t, overGRPC, "127.0.0.1:0"), overGRPC,
		"OTEL_METRIC_EXPORT_INTERVAL=1", // many times while Start waits for the store
	), func(c *config.Config) {
		c.Store.Kind, c.Store.Redis = config.InRedis, config.Redis{URL: "redis://127.0.0.1:1"}
	})
	header, trace := parent(1, "01")
	f.get(t, f.apiURL("/v1/auth"), "X-Forwarded-Uri", "/", "Traceparent", header, "X-Api-Key", secret)
	spans := f.awaitSpans(t, &r, trace, 2)
	store := named(t, spans, "store batch")
	hasAttributes(t, store, "headgate.store", "redis", "db.system.name", "redis")
	kind := attributes(store.GetAttributes())["error.type"]
	if s := store.GetStatus(); s.GetCode() != spanpb.Status_STATUS_CODE_ERROR || s.GetMessage() != kind || kind != "timeout" && kind != "unavailable" {
		t.Errorf("%v, %s", s, kind)
	}
	of := named(t, spans, "GET /v1/auth")
	hasAttributes(t, of, "headgate.outcome", "allowed", "headgate.reason", "fail_open", "http.response.status_code", "200")
	if of.GetStatus().GetCode() == spanpb.Status_STATUS_CODE_ERROR {
		t.Error("the request is no error")
	}
}

// Spans do not affect streams and protocol upgrades through the proxy.
func TestTraceOfAStream(t *testing.T) {
	var r receiver
	heard := make(chan struct{})
	backend := http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		control := http.NewResponseController(w)
		if q.Header.Get("Upgrade") == "" {
			_, _ = io.WriteString(w, "first")
			_ = control.Flush()
			select {
			case <-heard:
			case <-q.Context().Done():
			}
			return
		}
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", "echo")
		w.WriteHeader(http.StatusSwitchingProtocols)
		nc, rw, err := control.Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = nc.Close() }()
		line, _ := rw.ReadString('\n')
		_, _ = rw.WriteString("echo " + line)
		_ = rw.Flush()
	})
	f := run(t, loginRules, backend, sending(t, r.listen(t, overGRPC, "127.0.0.1:0"), overGRPC, onlyTraces))
	open := func(traceparent, upgrade string) (net.Conn, *http.Response, *bufio.Reader) {
		nc, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", f.Addr(doorProxy))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = nc.Close() })
		_ = nc.SetDeadline(time.Now().Add(20 * time.Second))
		_, _ = fmt.Fprintf(nc, "GET /stream HTTP/1.1\r\nHost: x\r\nTraceparent: %s\r\n%s\r\n", traceparent, upgrade)
		from := bufio.NewReader(nc)
		res, err := http.ReadResponse(from, nil)
		if err != nil {
			t.Fatal(err)
		}
		return nc, res, from
	}
	header, streamed := parent(1, "01")
	_, res, _ := open(header, "")
	first := make([]byte, 5)
	if _, err := io.ReadFull(res.Body, first); err != nil || string(first) != "first" {
		t.Fatalf("%s, %v", first, err)
	}
	close(heard)
	_ = read(t, res)
	header, upgraded := parent(2, "01")
	nc, res, from := open(header, "Connection: Upgrade\r\nUpgrade: echo\r\n") //nolint:bodyclose // its body is the connection
	_, _ = io.WriteString(nc, "hello\n")
	if line, err := from.ReadString('\n'); err != nil || line != "echo hello\n" || res.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%d %q, %v", res.StatusCode, line, err)
	}
	_ = nc.Close()
	for trace, status := range map[string]string{streamed: "200", upgraded: "101"} {
		for _, s := range f.awaitSpans(t, &r, trace, 2) { // no rule applies
			hasAttributes(t, s, "http.response.status_code", status)
		}
	}
}
