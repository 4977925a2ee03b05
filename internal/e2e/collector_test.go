package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	metricspb "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	tracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	metricpb "go.opentelemetry.io/proto/otlp/metrics/v1"
	spanpb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/headgate/headgate/internal/app"
	"github.com/headgate/headgate/internal/config"
)

// receiver is an OpenTelemetry collector.
type receiver struct {
	tracepb.UnimplementedTraceServiceServer

	mu      sync.Mutex
	spans   []*spanpb.Span
	metrics *metricspb.ExportMetricsServiceRequest // the last message
	raw     bytes.Buffer                           // everything received
	header  http.Header
	stuck   chan struct{} // if not nil, answers wait until it is closed
}

// metricsReceiver is the part for metrics, separate since both have a method Export.
type metricsReceiver struct {
	metricspb.UnimplementedMetricsServiceServer

	*receiver
}

func (r *receiver) Export(ctx context.Context, q *tracepb.ExportTraceServiceRequest) (*tracepb.ExportTraceServiceResponse, error) {
	r.note(ctx, q)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, of := range q.GetResourceSpans() {
		for _, scope := range of.GetScopeSpans() {
			r.spans = append(r.spans, scope.GetSpans()...)
		}
	}
	return &tracepb.ExportTraceServiceResponse{}, nil
}

func (r metricsReceiver) Export(ctx context.Context, q *metricspb.ExportMetricsServiceRequest) (*metricspb.ExportMetricsServiceResponse, error) {
	r.note(ctx, q)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.metrics = q
	return &metricspb.ExportMetricsServiceResponse{}, nil
}

// note records a message as received.
func (r *receiver) note(ctx context.Context, m proto.Message) {
	if r.stuck != nil {
		select {
		case <-r.stuck:
		case <-ctx.Done():
		}
	}
	text, err := proto.Marshal(m)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.raw.Write(text)
	if err != nil {
		r.raw.WriteString(err.Error())
	}
	if md, ok := metadata.FromIncomingContext(ctx); ok {
		r.header = http.Header{}
		for name, values := range md {
			r.header[http.CanonicalHeaderKey(name)] = values
		}
	}
}

// ServeHTTP receives OTLP over HTTP.
func (r *receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	body, err := io.ReadAll(q.Body)
	var answer proto.Message
	switch {
	case err != nil:
	case q.URL.Path == "/base/v1/traces":
		var m tracepb.ExportTraceServiceRequest
		if err = proto.Unmarshal(body, &m); err == nil {
			answer, err = r.Export(q.Context(), &m)
		}
	case q.URL.Path == "/base/v1/metrics":
		var m metricspb.ExportMetricsServiceRequest
		if err = proto.Unmarshal(body, &m); err == nil {
			answer, err = metricsReceiver{receiver: r}.Export(q.Context(), &m)
		}
	default:
		http.NotFound(w, q)
		return
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	r.header = q.Header.Clone()
	r.mu.Unlock()
	text, _ := proto.Marshal(answer)
	w.Header().Set("Content-Type", "application/x-protobuf")
	_, _ = w.Write(text)
}

// listen serves a protocol at an address.
func (r *receiver) listen(t *testing.T, protocol, address string) *url.URL {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	if protocol == overHTTP {
		s := httptest.NewUnstartedServer(r)
		_ = s.Listener.Close()
		s.Listener = l
		s.Start()
		t.Cleanup(s.Close)
		return parseURL(t, s.URL+"/base")
	}
	s := grpc.NewServer()
	tracepb.RegisterTraceServiceServer(s, r)
	metricspb.RegisterMetricsServiceServer(s, metricsReceiver{receiver: r})
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	return parseURL(t, "http://"+l.Addr().String())
}

// of returns the received spans of a trace.
func (r *receiver) of(trace string) (found []*spanpb.Span) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.spans {
		if fmt.Sprintf("%x", s.GetTraceId()) == trace {
			found = append(found, s)
		}
	}
	return found
}

// awaitSpans waits for a number of spans of a trace.
func (f *fixture) awaitSpans(t *testing.T, r *receiver, trace string, n int) []*spanpb.Span {
	t.Helper()
	f.await(t, func() bool { return len(r.of(trace)) >= n })
	found := r.of(trace)
	if len(found) != n {
		t.Errorf("%d spans, want %d: %v", len(found), n, found)
	}
	return found
}

func named(t *testing.T, spans []*spanpb.Span, name string) *spanpb.Span {
	t.Helper()
	i := slices.IndexFunc(spans, func(s *spanpb.Span) bool { return s.GetName() == name })
	if i < 0 {
		t.Fatalf("no span %q in %v", name, spans)
	}
	return spans[i]
}

// attributes returns the attributes of a span, as text.
func attributes(list []*commonpb.KeyValue) map[string]string {
	all := map[string]string{}
	for _, kv := range list {
		switch v := kv.GetValue().GetValue().(type) {
		case *commonpb.AnyValue_StringValue:
			all[kv.GetKey()] = v.StringValue
		case *commonpb.AnyValue_IntValue:
			all[kv.GetKey()] = fmt.Sprint(v.IntValue)
		}
	}
	return all
}

func hasAttributes(t *testing.T, s *spanpb.Span, want ...string) {
	t.Helper()
	got := attributes(s.GetAttributes())
	for i := 0; i+1 < len(want); i += 2 {
		if got[want[i]] != want[i+1] {
			t.Errorf("%s: %s is %q, want %q", s.GetName(), want[i], got[want[i]], want[i+1])
		}
	}
}

// The protocols of OTLP.
const (
	overGRPC = "grpc"
	overHTTP = "http/protobuf"
)

// sending makes an App export to a collector, with further variables, NAME=value.
func sending(t *testing.T, endpoint *url.URL, protocol string, variables ...string) set {
	t.Helper()
	for _, one := range append([]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT=" + endpoint.String(), "OTEL_EXPORTER_OTLP_PROTOCOL=" + protocol, "OTEL_METRIC_EXPORT_INTERVAL=100",
	}, variables...) {
		name, value, _ := strings.Cut(one, "=")
		t.Setenv(name, value)
	}
	return fromEnvironment(t)
}

// fromEnvironment takes what OpenTelemetry's variables say.
func fromEnvironment(t *testing.T) set {
	t.Helper()
	loaded, err := config.Load(config.Sources{Doors: app.Sections(), NoFile: true})
	if err != nil {
		t.Fatal(err)
	}
	return func(c *config.Config) { c.Telemetry = loaded.Telemetry }
}

const (
	onlyTraces  = "OTEL_METRICS_EXPORTER=none"
	onlyMetrics = "OTEL_TRACES_EXPORTER=none"
	everyTrace  = "OTEL_TRACES_SAMPLER=parentbased_always_on"
)

// lines formats metrics like /metrics: one line per value.
func (r *receiver) lines() (lines []string, resource map[string]string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	line := func(name string, labels []*commonpb.KeyValue, v float64, more ...string) {
		for label, value := range attributes(labels) {
			more = append(more, fmt.Sprintf("%s=%q", label, value))
		}
		slices.Sort(more)
		if len(more) > 0 {
			name += "{" + strings.Join(more, ",") + "}"
		}
		lines = append(lines, fmt.Sprint(name, " ", v))
	}
	for _, of := range r.metrics.GetResourceMetrics() {
		resource = attributes(of.GetResource().GetAttributes())
		for _, scope := range of.GetScopeMetrics() {
			for _, m := range scope.GetMetrics() {
				points := m.GetGauge().GetDataPoints()
				if m.GetSum() != nil {
					points = m.GetSum().GetDataPoints()
				}
				for _, p := range points {
					line(m.GetName(), p.GetAttributes(), p.GetAsDouble())
				}
				for _, p := range m.GetHistogram().GetDataPoints() {
					histogram(line, m.GetName(), p)
				}
			}
		}
	}
	return lines, resource
}

func histogram(line func(string, []*commonpb.KeyValue, float64, ...string), name string, p *metricpb.HistogramDataPoint) {
	line(name+"_count", p.GetAttributes(), float64(p.GetCount()))
	line(name+"_sum", p.GetAttributes(), p.GetSum())
	n := uint64(0)
	for i, bound := range p.GetExplicitBounds() {
		n += p.GetBucketCounts()[i]
		line(name+"_bucket", p.GetAttributes(), float64(n), fmt.Sprintf("le=%q", fmt.Sprint(bound)))
	}
	line(name+"_bucket", p.GetAttributes(), float64(p.GetCount()), `le="+Inf"`)
}

// ours returns the lines of /metrics about decisions.
func ours(lines []string) (kept []string) {
	for _, l := range lines {
		for _, name := range []string{"headgate_decisions_total", "headgate_requests_total", "headgate_near_limit_total", "headgate_decision_duration_seconds", "headgate_memory_keys", "headgate_rules"} {
			if strings.HasPrefix(l, name) {
				kept = append(kept, l)
				break
			}
		}
	}
	slices.Sort(kept)
	return kept
}
