package config_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/internal/app"
	"github.com/headgate/headgate/internal/config"
)

// Errors about the keys of OTLP have their position.
func TestWrongTelemetry(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"telemetri: {}", `:1:1: unknown key "telemetri", did you mean "telemetry"?`},
		{"telemetry: {otpl_: {}}", `:1:13: unknown key "otpl_" in telemetry; use otlp`},
		{"telemetry: {otlp: {endpont: x}}", `:1:20: unknown key "endpont" in telemetry.otlp, did you mean "endpoint"?`},
		{"telemetry: {otlp: {endpoint: 127.0.0.1:4317}}", `:1:30: telemetry.otlp.endpoint: "127.0.0.1:4317" does not start with http:// or https://; write http://127.0.0.1:4317`},
		{"telemetry: {otlp: {endpoint: 'http://'}}", `"http://" has no host`},
		{"telemetry: {otlp: {endpoint: 'http://u:hush@h'}}", "the URL must not contain a user or password; send them in a header: set telemetry.otlp.headers_file"},
		{"telemetry: {otlp: {endpoint: 'grpc://u:hush@h:4317'}}", "the URL must not contain a user or password"},
		{"telemetry: {otlp: {endpoint: 'u:hush@h:4317'}}", "the URL must not contain a user or password"},
		{"telemetry: {otlp: {endpoint: 'http://u:hush@'}}", "the URL must not contain a user or password"},
		{"telemetry: {otlp: {endpoint: 'http://u:hush%zz@h'}}", "the URL must not contain a user or password"},
		{"telemetry: {otlp: {endpoint: 'http://h?x=1'}}", "the URL must not have a query or fragment"},
		{"telemetry: {otlp: {endpoint: 'http://h?key=hush'}}", "the URL must not have a query or fragment"},
		{"telemetry: {otlp: {protocol: grp}}", `:1:30: telemetry.otlp.protocol: "grp" is not one of grpc, http, did you mean "grpc"?`},
		{"telemetry: {otlp: {headers: {a: [b]}}}", `:1:30: telemetry.otlp.headers: "a" must have a single value`},
		{"telemetry: {otlp: {headers: {a: }}}", `:1:30: telemetry.otlp.headers: "a" must have a single value`},
		{"telemetry: {otlp: {headers: {a b: c}}}", `telemetry.otlp.headers: "a b" is not a valid header name`},
		{"telemetry: {otlp: {headers: {a: c, a: d}}}", `duplicate key "a", first on line 1`},
		{"telemetry: {otlp: {headers: {a: \"hu\\x01sh\"}}}", `the value of "a" contains characters that are not allowed in a header`},
		{"telemetry: {otlp: {headers: [hush]}}", "telemetry.otlp.headers: entry 1 is not name=value; write name=value, or use a mapping of names to values in the file"},
		{"telemetry: {otlp: {headers_file: nowhere}}", "no such file"},
		{"telemetry: {otlp: {signals: [trace]}}", `:1:29: telemetry.otlp.signals: "trace" is not one of traces, metrics, did you mean "traces"?`},
		{"telemetry: {otlp: {traces: {sample: 1%}}}", `:1:37: telemetry.otlp.traces.sample: "1%" is not a number from 0 to 1; write 0.01 for one in a hundred`},
		{"telemetry: {otlp: {traces: {sample: NaN}}}", "is not a number from 0 to 1"},
		{"telemetry: {otlp: {traces: {sample: 1.1}}}", "is not a number from 0 to 1"},
		{"telemetry: {otlp: {traces: {callers: folow}}}", `"folow" is not one of follow, sample, did you mean "follow"?`},
		{"telemetry: {otlp: {metrics: {interval: 15}}}", `:1:40: telemetry.otlp.metrics.interval: "15" is not a duration`},
		{"telemetry: {otlp: {metrics: {interval: 1ms}}}", "1ms is too short: the minimum is 1s"},
		{"telemetry: {otlp: {resource: x}}", "entry 1 is not name=value"},
		{"telemetry: {otlp: {endpoint: 'http://h:1', tls: {ca: x}}}", "telemetry.otlp.tls: the endpoint starts with http://, so nothing would be encrypted"},
		{"telemetry: {otlp: {endpoint: 'https://h:1', tls: {cert: x}}}", "telemetry.otlp.tls: cert and key must be set together"},
	} {
		_, err := load(t, tt.text+"\n")
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "hush") { // the secret
			t.Errorf("%s\ngot  %v\nwant %s", tt.text, err, tt.want)
		}
	}
}

// OTLP is enabled by an endpoint, from our settings or OpenTelemetry's variables.
func TestTelemetry(t *testing.T) {
	at := func(o config.OTLP) string {
		if !o.Enabled() {
			return "off"
		}
		var endpoint any = o.Endpoint
		if o.FromEnvironment {
			endpoint = "environment"
		}
		return fmt.Sprint(endpoint, " ", o.Protocol, " ", !o.NoTraces, " ", !o.NoMetrics)
	}
	const ours = "HEADGATE_TELEMETRY_OTLP_"
	for _, tt := range []struct {
		text      string
		variables map[string]string
		want      string
	}{
		{"", nil, "off"},
		{"telemetry: {otlp: {traces: {sample: 1}}}", nil, "off"},
		{"telemetry: {otlp: {endpoint: 'http://h:4317'}}", nil, "http://h:4317 grpc true true"},
		{"telemetry: {otlp: {endpoint: 'http://h:4318'}}", nil, "http://h:4318 http true true"},
		{"telemetry: {otlp: {endpoint: 'http://h:4318', protocol: grpc}}", nil, "http://h:4318 grpc true true"},
		{"telemetry: {otlp: {endpoint: 'http://h:1', signals: metrics}}", nil, "http://h:1 grpc false true"},
		{"", map[string]string{ours + "ENDPOINT": "http://h:1", ours + "SIGNALS": "traces"}, "http://h:1 grpc true false"},
		{"telemetry: {otlp: {endpoint: 'http://h:1'}}", map[string]string{ours + "ENDPOINT": "off"}, "off"},
		{"", map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, "environment http true true"},
		{"", map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "environment grpc true true"},
		{"", map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://x"}, "environment http true false"},
		{"", map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_METRICS_EXPORTER": "none"}, "environment http true false"},
		{"", map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_SDK_DISABLED": "true"}, "off"},
		{"telemetry: {otlp: {endpoint: off}}", map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, "off"},
		{"telemetry: {otlp: {endpoint: 'http://h:1'}}", map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_SDK_DISABLED": "true"}, "http://h:1 grpc true true"},
		{"", map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://u:hush%zz@x"}, "OTEL_EXPORTER_OTLP_ENDPOINT: the value is not a URL"},
		{"", map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://u:hush%zz@x"}, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: the value is not a URL"},
		{"", map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_EXPORTER_OTLP_HEADERS": "a=b,hush"}, "OTEL_EXPORTER_OTLP_HEADERS: an entry is not name=value"},
		{"", map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_EXPORTER_OTLP_HEADERS": "a=hush%zz"}, "OTEL_EXPORTER_OTLP_HEADERS: an entry is not name=value"},
		{"", map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_EXPORTER_OTLP_HEADERS": "a=b%20c,d=e,"}, "environment http true true"},
		{"", map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"}, `OTEL_EXPORTER_OTLP_PROTOCOL: "http/json" is not one of grpc, http/protobuf`},
	} {
		file := write(t, tt.text)
		c, err := config.Load(config.Sources{Doors: app.Sections(), File: file, Environment: environment(tt.variables)})
		got := fmt.Sprint(err)
		if err == nil {
			got = at(c.Telemetry.OTLP)
		}
		if !strings.HasPrefix(got, tt.want) || strings.Contains(got, "hush") {
			t.Errorf("%s %v\ngot  %s\nwant %s", tt.text, tt.variables, got, tt.want)
		}
	}
	c, err := config.Load(config.Sources{Doors: app.Sections(), NoFile: true, Environment: environment(map[string]string{
		ours + "ENDPOINT": "http://h:1", ours + "HEADERS": "A=b, c=d=e", ours + "RESOURCE": "team=x", ours + "TRACES_SAMPLE": "0",
	})})
	if err != nil {
		t.Fatal(err)
	}
	want := config.OTLP{
		Endpoint: &url.URL{Scheme: "http", Host: "h:1"}, Protocol: config.OTLPGRPC,
		Headers: map[string]config.Secret{"a": "b", "c": "d=e"}, Resource: map[string]string{"team": "x"},
	}
	if diff := cmp.Diff(want, c.Telemetry.OTLP); diff != "" {
		t.Error(diff)
	}
}
