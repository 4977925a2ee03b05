package telemetry

import (
	"context"
	"errors"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/store"
)

// Attributes of decisions.
const (
	doorKey    = attribute.Key("headgate.door")
	domainKey  = attribute.Key("headgate.domain")
	ruleKey    = attribute.Key("headgate.rule")
	outcomeKey = attribute.Key("headgate.outcome")
	reasonKey  = attribute.Key("headgate.reason")
	checksKey  = attribute.Key("headgate.checks")
	storeKey   = attribute.Key("headgate.store")
	opsKey     = attribute.Key("headgate.store.operations")
)

// Observer wraps next to write each decision into its span, if that is recorded.
func (t *Telemetry) Observer(next engine.Observer) engine.Observer {
	if t == nil || t.tracer == nil {
		return next
	}
	return &observer{next, t.events}
}

type observer struct {
	next   engine.Observer
	events int // that a span keeps; below 0 all
}

// Observe writes a decision into a span: the first as attributes, further ones of a
// batch as events, as many as the span keeps, and how many there are as an attribute.
func (o *observer) Observe(ctx context.Context, d *engine.Decided) {
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		q, v := d.Query, d.Verdict
		about := []attribute.KeyValue{
			doorKey.String(q.Door.String()), domainKey.String(strings.ToValidUTF8(q.Domain, "\uFFFD")), outcomeKey.String(v.Outcome().String()),
		}
		if q.Parts == nil || v.Rule != nil {
			about = append(about, reasonKey.String(v.Decision.Reason.String()))
		}
		if v.Rule != nil {
			about = append(about, ruleKey.String(v.Rule.Name))
		}
		if before := decisions(span); before == 0 {
			span.SetAttributes(about...)
		} else {
			span.SetAttributes(checksKey.Int(before + 1))
			if before <= o.events || o.events < 0 { // one more would push out the oldest, which the SDK logs
				span.AddEvent("decision", trace.WithAttributes(about...))
			}
		}
	}
	o.next.Observe(ctx, d)
}

// decisions returns how many decisions have been written into a span.
func decisions(span trace.Span) (n int) {
	s, ok := span.(sdktrace.ReadOnlySpan)
	if !ok {
		return 0
	}
	for _, kv := range s.Attributes() {
		switch kv.Key {
		case outcomeKey:
			n = max(n, 1)
		case checksKey:
			n = max(n, int(kv.Value.AsInt64()))
		}
	}
	return n
}

// Store wraps next so that its calls are child spans of the request, if that is
// recorded. kind is the kind of store, such as redis.
func (t *Telemetry) Store(next store.Store, kind string) store.Store {
	if t == nil || t.tracer == nil {
		return next
	}
	about := []attribute.KeyValue{storeKey.String(kind)}
	s := &spanned{Store: next, tracer: t.tracer, kind: trace.SpanKindInternal}
	if kind == "redis" {
		about, s.kind = append(about, semconv.DBSystemNameRedis), trace.SpanKindClient
	}
	s.about = trace.WithAttributes(about...)
	return s
}

// spanned is a store whose calls are spans.
type spanned struct {
	store.Store

	tracer trace.Tracer
	kind   trace.SpanKind
	about  trace.SpanStartEventOption
}

// Do implements store.Store. Reading times has no span.
func (s *spanned) Do(ctx context.Context, b *store.Batch) {
	if !trace.SpanFromContext(ctx).IsRecording() || len(b.Ops) > 0 && b.Ops[0].Kind == store.KindTimes {
		s.Store.Do(ctx, b)
		return
	}
	name := "store batch"
	switch {
	case len(b.Groups) > 1:
		name = "store pipeline"
	case len(b.Ops) == 1:
		name = "store " + b.Ops[0].Kind.String()
	}
	ctx, span := s.tracer.Start(ctx, name, trace.WithSpanKind(s.kind), s.about)
	if len(b.Ops) != 1 {
		span.SetAttributes(opsKey.Int(len(b.Ops)))
	}
	s.Store.Do(ctx, b)
	end(span, b.Err())
}

// end ends the span of a call to a store. The text of the error is not sent, since a
// server may repeat the key in it.
func end(span trace.Span, err error) {
	if err != nil {
		kind := "error"
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			kind = "timeout"
		case errors.Is(err, context.Canceled):
			kind = "canceled"
		case errors.Is(err, headgate.ErrUnavailable):
			kind = "unavailable"
		}
		span.SetAttributes(semconv.ErrorTypeKey.String(kind))
		span.SetStatus(codes.Error, kind)
	}
	span.End()
}
