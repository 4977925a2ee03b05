package e2e

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/testkit/certtest"
)

// closedPort is an address where currently no process listens.
func closedPort(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// Requests are served without a collector. When it starts, it gets the data from then
// on. Both changes are logged once.
func TestCollectorComesLater(t *testing.T) {
	for _, p := range []string{overGRPC, overHTTP} {
		t.Run(p, func(t *testing.T) {
			address := closedPort(t)
			endpoint := parseURL(t, "http://"+address)
			if p == overHTTP {
				endpoint.Path = "/base"
			}
			f := run(t, loginRules, nil, sending(t, endpoint, p, everyTrace), withAdmin)
			for range 3 {
				f.login(t, "198.51.100.7")
			}
			f.journal.await(t, "telemetry export failed")
			f.await(t, func() bool {
				failed, err := strconv.Atoi(f.metric(t, `headgate_otlp_messages_total{result="failed",signal="metrics"}`))
				return err == nil && failed >= 3
			})
			var r receiver
			r.listen(t, p, address)
			f.journal.await(t, "telemetry export recovered")
			header, trace := parent(1, "01")
			f.get(t, f.apiURL("/v1/auth"), "X-Forwarded-Uri", "/", "Traceparent", header)
			f.awaitSpans(t, &r, trace, 1)
			f.await(t, func() bool { return f.metric(t, `headgate_otlp_spans_total{result="sent"}`) != "0" })
			for _, signal := range []string{"metrics", "traces"} {
				if n := strings.Count(f.journal.text.String(), "is not taken\" signal="+signal); n > 1 {
					t.Errorf("said %d times of %s:\n%s", n, signal, f.journal.text)
				}
			}
		})
	}
}

// A collector that does not answer delays neither requests nor shutdown, and costs
// limited memory.
func TestCollectorThatHangs(t *testing.T) {
	r := receiver{stuck: make(chan struct{})}
	defer close(r.stuck)
	f := run(t, loginRules, nil, withAdmin, sending(t, r.listen(t, overGRPC, "127.0.0.1:0"), overGRPC, everyTrace), func(c *config.Config) {
		c.ShutdownTimeout = time.Second
	})
	for range 1100 { // with two spans each
		if status := f.login(t, "198.51.100.7"); status != http.StatusOK && status != http.StatusTooManyRequests {
			t.Fatal(status)
		}
	}
	f.await(t, func() bool { // 2200 less 2048, or more if some have been given up
		lost, err := strconv.Atoi(f.metric(t, `headgate_otlp_spans_total{result="lost"}`))
		return err == nil && lost >= 152
	})
	began := time.Now()
	if err := f.Stop(context.Background()); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 8*time.Second {
		t.Errorf("it took %s to stop", took)
	}
	f.journal.await(t, "some traces and metrics were not sent")
}

// The remaining data is sent before the process ends.
func TestStopSendsTheRest(t *testing.T) {
	var r receiver
	f := run(t, loginRules, nil, sending(t, r.listen(t, overGRPC, "127.0.0.1:0"), overGRPC, "OTEL_METRIC_EXPORT_INTERVAL=3600000"))
	header, trace := parent(1, "01")
	f.get(t, f.apiURL("/v1/auth"), "X-Forwarded-Uri", "/", "Traceparent", header)
	if err := f.Stop(context.Background()); err != nil {
		t.Error(err)
	}
	if n := len(r.of(trace)); n != 1 {
		t.Errorf("%d spans", n)
	}
	if lines, _ := r.lines(); !slices.Contains(lines, `headgate_requests_total{door="forward_auth",outcome="allowed"} 1`) {
		t.Errorf("sent:\n%s", strings.Join(lines, "\n"))
	}
}

// With TLS, a collector gets the header fields it requires, and nothing is sent to one
// with a wrong certificate.
func TestTelemetryByTLS(t *testing.T) {
	a := certtest.New(t)
	a.Issue("server", 2, "localhost", "127.0.0.1")
	var r receiver
	s := httptest.NewUnstartedServer(&r)
	pair, err := tls.LoadX509KeyPair(a.Path("server.pem"), a.Path("server.key"))
	if err != nil {
		t.Fatal(err)
	}
	s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	s.StartTLS()
	defer s.Close()
	to := sending(t, parseURL(t, s.URL+"/base"), overHTTP, onlyMetrics,
		"OTEL_EXPORTER_OTLP_HEADERS=authorization=Bearer%20abc", "OTEL_EXPORTER_OTLP_CERTIFICATE="+a.Path("ca.pem"))
	f := run(t, loginRules, nil, to)
	f.await(t, func() bool {
		lines, _ := r.lines()
		return len(lines) > 0
	})
	r.mu.Lock()
	got := r.header.Get("Authorization")
	r.mu.Unlock()
	if got != "Bearer abc" {
		t.Errorf("authorization %q", got)
	}
	if strings.Contains(f.journal.text.String(), "abc") {
		t.Error("the secret is in the log")
	}
	t.Setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", "")
	stranger := run(t, loginRules, nil, to)
	stranger.journal.await(t, "telemetry export failed")
}

// OpenTelemetry's message about an invalid header is logged, without the header.
func TestTelemetryLogsNoHeaders(t *testing.T) {
	var r receiver
	endpoint := r.listen(t, overHTTP, "127.0.0.1:0")
	to := sending(t, endpoint, overHTTP, everyTrace)
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization hush")
	f := run(t, loginRules, nil, to)
	if log := f.journal.text.String(); !strings.Contains(log, "parse headers") || strings.Contains(log, "hush") {
		t.Errorf("log: %s", log)
	}
}

// The name, headers and address are those of OpenTelemetry's variables.
func TestTelemetryByTheEnvironment(t *testing.T) {
	var r receiver
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", r.listen(t, overHTTP, "127.0.0.1:0").String())
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=shop")
	t.Setenv("OTEL_SERVICE_NAME", "gate")
	f := run(t, loginRules, nil, fromEnvironment(t))
	header, trace := parent(1, "01")
	f.get(t, f.apiURL("/v1/auth"), "X-Forwarded-Uri", "/", "Traceparent", header)
	if err := f.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	_, resource := r.lines()
	if n := len(r.of(trace)); n != 1 || resource["service.name"] != "gate" || r.header.Get("X-Tenant") != "shop" {
		t.Errorf("%d spans from %v with %v", n, resource, r.header)
	}
}
