package telemetry

import (
	"bufio"
	"maps"
	"net"
	"net/http"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// Router returns the route of a path, such as /v1/queue/{id}, and whether
// requests for it are traced. A route may be empty.
type Router func(path string) (route string, traced bool)

// Handler wraps next so that each request is a span that continues the trace of its
// traceparent.
func (t *Telemetry) Handler(next http.Handler, route Router) http.Handler {
	if t == nil || t.tracer == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if name, traced := route(r.URL.Path); traced {
			t.serve(w, r, next, name)
		} else {
			next.ServeHTTP(w, r)
		}
	})
}

// serve serves a request within a span.
func (t *Telemetry) serve(w http.ResponseWriter, r *http.Request, next http.Handler, route string) {
	ctx := t.propagator.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
	method := method(r.Method)
	name := method
	if route != "" {
		name += " " + route
	}
	ctx, span := t.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindServer))
	r = r.WithContext(ctx)
	if !span.IsRecording() {
		next.ServeHTTP(w, r)
		return
	}
	about := []attribute.KeyValue{
		semconv.HTTPRequestMethodKey.String(method), semconv.URLScheme("http"),
		semconv.NetworkProtocolVersion(version(r)),
	}
	if r.TLS != nil {
		about[1] = semconv.URLScheme("https")
	}
	if route != "" {
		about = append(about, semconv.HTTPRoute(route))
	}
	span.SetAttributes(about...)
	answer := &recorder{ResponseWriter: w}
	aborted := true
	defer func() { // httputil panics when an upstream aborts its response
		answered(span, answer.status, http.StatusInternalServerError)
		if aborted {
			span.SetAttributes(semconv.ErrorTypeKey.String("aborted"))
			span.SetStatus(codes.Error, "aborted")
		}
		span.End()
	}()
	next.ServeHTTP(answer, r)
	aborted = false
}

// answered writes a status into a span. Statuses from bad on are errors.
func answered(span trace.Span, status, bad int) {
	if status == 0 {
		status = http.StatusOK // the default of net/http
	}
	span.SetAttributes(semconv.HTTPResponseStatusCode(status))
	if status >= bad {
		span.SetAttributes(semconv.ErrorTypeKey.String(strconv.Itoa(status)))
		span.SetStatus(codes.Error, "")
	}
}

// method returns a known method, or _OTHER, since clients can send any.
func method(m string) string {
	switch m {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodConnect, http.MethodOptions, http.MethodTrace, "QUERY":
		return m
	}
	return "_OTHER"
}

func version(r *http.Request) string {
	if r.ProtoMajor == 1 {
		return "1." + strconv.Itoa(r.ProtoMinor)
	}
	return strconv.Itoa(r.ProtoMajor)
}

// recorder records the status. http.ResponseController finds everything else by
// Unwrap.
type recorder struct {
	http.ResponseWriter

	status int
}

func (r *recorder) WriteHeader(status int) {
	if r.status == 0 && (status >= http.StatusOK || status == http.StatusSwitchingProtocols) {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

// Hijack implements http.Hijacker. The hijacker writes the status itself, which is
// assumed to be 101.
func (r *recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	nc, rw, err := http.NewResponseController(r.ResponseWriter).Hijack()
	if err == nil && r.status == 0 {
		r.status = http.StatusSwitchingProtocols
	}
	return nc, rw, err
}

// Unwrap is for http.ResponseController.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// Transport wraps next so that requests within a trace are spans until the header of
// the response, and carry a traceparent. Other requests are unchanged.
func (t *Telemetry) Transport(next http.RoundTripper) http.RoundTripper {
	if t == nil || t.tracer == nil {
		return next
	}
	return &transport{t, next}
}

type transport struct {
	t    *Telemetry
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (c *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if !trace.SpanContextFromContext(r.Context()).IsValid() {
		return c.next.RoundTrip(r)
	}
	method := method(r.Method)
	ctx, span := c.t.tracer.Start(r.Context(), method, trace.WithSpanKind(trace.SpanKindClient))
	defer span.End()
	out := r.WithContext(ctx)
	out.Header = maps.Clone(r.Header)
	out.Header.Del("Tracestate") // the client's, of a trace that was not continued
	c.t.propagator.Inject(ctx, propagation.HeaderCarrier(out.Header))
	if !span.IsRecording() {
		return c.next.RoundTrip(out)
	}
	span.SetAttributes(semconv.HTTPRequestMethodKey.String(method), semconv.ServerAddress(r.URL.Hostname()))
	if port, err := strconv.Atoi(r.URL.Port()); err == nil {
		span.SetAttributes(semconv.ServerPort(port))
	}
	res, err := c.next.RoundTrip(out)
	if err != nil {
		span.SetAttributes(semconv.ErrorTypeOther)
		span.SetStatus(codes.Error, "no answer")
		return nil, err
	}
	answered(span, res.StatusCode, http.StatusBadRequest)
	return res, nil
}
