package config

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/base/nearest"
	"github.com/headgate/headgate/internal/transport/certs"
)

// Telemetry has the settings of what the process exports.
type Telemetry struct {
	OTLP OTLP // OpenTelemetry's protocol
}

// OTLP says where and how traces and metrics are exported.
type OTLP struct {
	// Endpoint is the base URL of the collector; https encrypts. If it is nil,
	// FromEnvironment says whether OpenTelemetry's variables set one; its SDK reads
	// those itself.
	Endpoint            *url.URL
	FromEnvironment     bool
	Off                 bool              // disables export, whatever else is set
	Protocol            OTLPProtocol      // gRPC or HTTP
	Headers             map[string]Secret // sent with every message, by name; may be secret
	TLS                 certs.ClientFiles // used if the endpoint is https
	NoTraces, NoMetrics bool              // disable one of the two
	// Sample is the share of new traces that are recorded, from 0 to 1. Callers says
	// whether it applies to traces of callers too.
	Sample   float64
	Callers  Callers
	Interval time.Duration // how often metrics are sent; 0 is the default
	// ServiceName is service.name; empty is the default. Resource has further
	// attributes of the process.
	ServiceName string
	Resource    map[string]string
}

// Enabled reports whether anything is sent.
func (o *OTLP) Enabled() bool {
	return !o.Off && (o.Endpoint != nil || o.FromEnvironment) && (!o.NoTraces || !o.NoMetrics)
}

// DefaultSample is the default of OTLP.Sample.
const DefaultSample = 0.01

// OTLPProtocol is how OTLP is transported.
type OTLPProtocol string

// The protocols.
const (
	// OTLPAuto is OTLPHTTP at port 4318, which is reserved for it, else
	// OTLPGRPC.
	OTLPAuto OTLPProtocol = ""
	OTLPGRPC OTLPProtocol = "grpc"
	OTLPHTTP OTLPProtocol = "http"
)

// Callers says whether callers decide that their traces are recorded.
type Callers string

// The values. Empty is FollowCallers.
const (
	FollowCallers Callers = "follow" // records a trace if the caller does
	SampleCallers Callers = "sample" // records a share of those that callers record
)

// telemetrySettings returns the settings of OTLP.
func telemetrySettings() []Setting {
	const at = "telemetry.otlp."
	all := []Setting{
		One(at+"endpoint", func(o *OTLP, v string) (err error) {
			if o.Off = v == Off; !o.Off {
				o.Endpoint, err = collector(v)
			}
			return err
		}),
		Word(at+"protocol", func(o *OTLP) *OTLPProtocol { return &o.Protocol }, OTLPGRPC, OTLPHTTP),
		List(at+"headers", func(o *OTLP, v []string) error { return addHeaders(&o.Headers, v) }),
		SecretFile(at+"headers_file", func(o *OTLP, v string) error { return addHeaders(&o.Headers, Lines(v)) }),
		List(at+"signals", (*OTLP).choose),
		parsed(at+"traces.sample", func(o *OTLP) *float64 { return &o.Sample }, share),
		Word(at+"traces.callers", func(o *OTLP) *Callers { return &o.Callers }, FollowCallers, SampleCallers),
		Duration(at+"metrics.interval", func(o *OTLP) *time.Duration { return &o.Interval }, time.Second),
		Text(at+"service_name", func(o *OTLP) *string { return &o.ServiceName }),
		List(at+"resource", func(o *OTLP, v []string) (err error) { o.Resource, err = pairs(v); return err }),
	}
	for i := range all {
		all[i].pairs = all[i].key == at+"headers" || all[i].key == at+"resource"
	}
	return append(all, ClientTLS("telemetry.otlp.tls", func(o *OTLP) *certs.ClientFiles { return &o.TLS })...)
}

// collector parses the URL of a collector.
func collector(v string) (*url.URL, error) {
	const hint = `write http://127.0.0.1:4317, or https://… to encrypt, or "off"`
	u, err := url.Parse(v)
	switch {
	case strings.Contains(v, "@"): // before v appears in an error
		return nil, &hinted{"the URL must not contain a user or password", "send them in a header: set telemetry.otlp.headers_file"}
	case err != nil || u.Scheme != "http" && u.Scheme != "https":
		return nil, &hinted{fmt.Sprintf("%q does not start with http:// or https://", v), hint}
	case u.Hostname() == "":
		return nil, &hinted{fmt.Sprintf("%q has no host", v), hint}
	case u.RawQuery != "" || u.Fragment != "":
		return nil, &hinted{"the URL must not have a query or fragment", hint}
	}
	return u, nil
}

// choose sets which signals are sent.
func (o *OTLP) choose(names []string) error {
	if _, err := words(names, []string{"traces", "metrics"}); err != nil {
		return err
	}
	o.NoTraces, o.NoMetrics = !slices.Contains(names, "traces"), !slices.Contains(names, "metrics")
	return nil
}

// addHeaders parses name=value and adds it to to. Errors do not contain values.
func addHeaders(to *map[string]Secret, list []string) error {
	headers, err := pairs(list)
	if err != nil {
		return err
	}
	all := maps.Clone(*to)
	if all == nil {
		all = map[string]Secret{}
	}
	given := map[string]bool{} // in lower case
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		value := headers[name]
		const known = "abcdefghijklmnopqrstuvwxyz0123456789-_."
		if strings.ContainsFunc(strings.ToLower(name), func(r rune) bool { return !strings.ContainsRune(known, r) }) {
			return fmt.Errorf("%q is not a valid header name", name)
		}
		if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }) {
			return fmt.Errorf("the value of %q contains characters that are not allowed in a header", name)
		}
		if lower := strings.ToLower(name); given[lower] {
			return fmt.Errorf("duplicate %q: the case of a header's name does not count", lower)
		}
		given[strings.ToLower(name)] = true
		all[strings.ToLower(name)] = Secret(value)
	}
	*to = all
	return nil
}

// pairs parses name=value. Errors do not contain values.
func pairs(list []string) (map[string]string, error) {
	all := make(map[string]string, len(list))
	for i, entry := range list {
		name, value, ok := strings.Cut(entry, "=")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		if !ok || name == "" {
			return nil, &hinted{fmt.Sprintf("entry %d is not name=value", i+1), "write name=value, or use a mapping of names to values in the file"}
		}
		if _, twice := all[name]; twice {
			return nil, fmt.Errorf("duplicate %q", name)
		}
		all[name] = value
	}
	return all, nil
}

// share parses a share from 0 to 1.
func share(v string) (float64, error) {
	f, err := strconv.ParseFloat(v, 64)
	if err != nil || !(f >= 0 && f <= 1) {
		return 0, &hinted{fmt.Sprintf("%q is not a number from 0 to 1", v), "write 0.01 for one in a hundred"}
	}
	return f, nil
}

// adoptOTel lets OpenTelemetry's variables enable export, if no setting does. The SDK
// reads the rest of them itself.
func (o *OTLP) adoptOTel(environment func(string) (string, bool)) error {
	get := func(name string) string {
		value, _ := environment(name)
		return strings.TrimSpace(value)
	}
	if strings.EqualFold(get("OTEL_SDK_DISABLED"), "true") {
		o.Off = o.Off || o.Endpoint == nil
	}
	if o.Off || o.Endpoint != nil {
		return nil
	}
	const prefix = "OTEL_EXPORTER_OTLP_"
	traces, metrics := get(prefix+"TRACES_ENDPOINT") != "", get(prefix+"METRICS_ENDPOINT") != ""
	if get(prefix+"ENDPOINT") == "" {
		if !traces && !metrics {
			return nil
		}
		o.NoTraces, o.NoMetrics = o.NoTraces || !traces, o.NoMetrics || !metrics
	}
	for _, signal := range []string{"", "TRACES_", "METRICS_"} {
		if err := checkOTel(prefix+signal, get); err != nil {
			return err
		}
	}
	o.FromEnvironment = true
	o.NoTraces = o.NoTraces || get("OTEL_TRACES_EXPORTER") == "none"
	o.NoMetrics = o.NoMetrics || get("OTEL_METRICS_EXPORTER") == "none"
	if o.Protocol != OTLPAuto {
		return nil
	}
	switch v := get(prefix + "PROTOCOL"); v {
	case "", "http/protobuf":
		o.Protocol = OTLPHTTP
	case "grpc":
		o.Protocol = OTLPGRPC
	default:
		known := []string{"grpc", "http/protobuf"}
		return sourceError(prefix+"PROTOCOL", fmt.Errorf("%q is not one of %s%s", v, strings.Join(known, ", "), nearest.DidYouMean(v, known)))
	}
	return nil
}

// checkOTel finds invalid variables that the SDK would log, with the secrets in them.
func checkOTel(prefix string, get func(string) string) error {
	if _, err := url.Parse(get(prefix + "ENDPOINT")); err != nil {
		return sourceError(prefix+"ENDPOINT", &hinted{"the value is not a URL", "write http://127.0.0.1:4318, or https://… to encrypt"})
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

// check finds conflicting settings.
func (o *OTLP) check() error {
	if !o.Enabled() {
		return nil
	}
	wrong := func(key, message, hint string) error {
		return &SourceError{Source: "telemetry.otlp." + key, Message: message, Hint: hint}
	}
	switch {
	case o.TLS != certs.ClientFiles{} && o.Endpoint != nil && o.Endpoint.Scheme == "http":
		return wrong("tls", "the endpoint starts with http://, so nothing would be encrypted", "write https://"+o.Endpoint.Host)
	case (o.TLS.Cert == "") != (o.TLS.Key == ""):
		return wrong("tls", "cert and key must be set together", "set both, or neither")
	}
	return nil
}

// settle sets the protocol from the port.
func (o *OTLP) settle() {
	if o.Protocol == OTLPAuto && o.Endpoint != nil {
		o.Protocol = OTLPGRPC
		if o.Endpoint.Port() == "4318" {
			o.Protocol = OTLPHTTP
		}
	}
}
