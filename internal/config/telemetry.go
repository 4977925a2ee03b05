package config

import (
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/headgate/headgate/internal/base/nearest"
)

// Telemetry says what is sent to an OpenTelemetry collector. All of it is from
// OpenTelemetry's own variables; its SDK reads the others itself.
type Telemetry struct {
	Traces, Metrics bool
	GRPC            bool // rather than HTTP
	// Sampler and Interval report that variables say which traces are recorded, and how
	// often metrics are sent.
	Sampler, Interval bool
}

// Enabled reports whether anything is sent.
func (t *Telemetry) Enabled() bool { return t.Traces || t.Metrics }

// adoptOTel reads OpenTelemetry's variables.
func (t *Telemetry) adoptOTel(environment func(string) (string, bool)) error {
	get := func(name string) string {
		value, _ := environment(name)
		return strings.TrimSpace(value)
	}
	const prefix = "OTEL_EXPORTER_OTLP_"
	all := get(prefix+"ENDPOINT") != ""
	sends := func(signal string) bool {
		return (all || get(prefix+signal+"_ENDPOINT") != "") && get("OTEL_"+signal+"_EXPORTER") != "none" && !strings.EqualFold(get("OTEL_SDK_DISABLED"), "true")
	}
	t.Traces, t.Metrics = sends("TRACES"), sends("METRICS")
	if !t.Enabled() {
		return nil
	}
	for _, signal := range []string{"", "TRACES_", "METRICS_"} {
		if err := checkOTel(prefix+signal, get); err != nil {
			return err
		}
	}
	t.Sampler, t.Interval = get("OTEL_TRACES_SAMPLER") != "", get("OTEL_METRIC_EXPORT_INTERVAL") != ""
	switch v := get(prefix + "PROTOCOL"); v {
	case "", "http/protobuf":
	case "grpc":
		t.GRPC = true
	default:
		known := []string{"grpc", "http/protobuf"}
		return sourceError(prefix+"PROTOCOL", fmt.Errorf("%q is not one of %s%s", v, strings.Join(known, ", "), nearest.DidYouMean(v, known)))
	}
	return nil
}

// checkOTel finds invalid variables that the SDK would ignore, or log with the secrets in
// them.
func checkOTel(prefix string, get func(string) string) error {
	if _, err := url.Parse(get(prefix + "ENDPOINT")); err != nil {
		return sourceError(prefix+"ENDPOINT", &hinted{"the value is not a URL", "write http://127.0.0.1:4318, or https://… to encrypt"})
	}
	for _, name := range []string{"CERTIFICATE", "CLIENT_CERTIFICATE", "CLIENT_KEY"} {
		if file := get(prefix + name); file != "" {
			if _, err := os.Stat(file); err != nil {
				return sourceError(prefix+name, err)
			}
		}
	}
	for entry := range strings.SplitSeq(get(prefix+"HEADERS"), ",") {
		name, value, ok := strings.Cut(entry, "=")
		_, err := url.PathUnescape(value)
		if entry != "" && (!ok || err != nil || strings.TrimSpace(name) == "") {
			return sourceError(prefix+"HEADERS", &hinted{"an entry is not name=value", "write name=value,name=value, with %25 for a percent sign"})
		}
	}
	return nil
}
