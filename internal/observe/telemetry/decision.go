package telemetry

import (
	"context"
	"errors"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/store"
)

// Attributes of decisions.
const (
	doorKey    = attribute.Key("headgate.door")
	domainKey  = attribute.Key("headgate.domain")
	ruleKey    = attribute.Key("headgate.rule")
	outcomeKey = attribute.Key("headgate.outcome")
	reasonKey  = attribute.Key("headgate.reason")
	storeKey   = attribute.Key("headgate.store")
	opsKey     = attribute.Key("headgate.store.operations")
)

// Observer wraps next to write each decision into its span, if that is recorded.
func (t *Telemetry) Observer(next engine.Observer) engine.Observer {
	if t == nil || t.tracer == nil {
		return next
	}
	return &observer{next}
}

type observer struct{ engine.Observer }

func (o *observer) Decided(ctx context.Context, m engine.Mark, q engine.Query, v engine.Verdict, err error) {
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		note(span, q.Door, q.Domain, v.Outcome(), &v)
	}
	o.Observer.Decided(ctx, m, q, v, err)
}

func (o *observer) DecidedAll(ctx context.Context, m engine.Mark, q engine.MultiQuery, v engine.MultiVerdict, err error) {
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		note(span, q.Door, q.Domain, v.Outcome(), telling(v.Parts()))
	}
	o.Observer.DecidedAll(ctx, m, q, v, err)
}

// GaveBack implements engine.AnswerObserver.
func (o *observer) GaveBack(rule *rules.Rule) { engine.TellGivenBack(o.Observer, rule) }

// telling returns the part whose rule decided, or the first that has one.
func telling(parts []engine.Verdict) *engine.Verdict {
	if first := engine.First(parts); first != nil {
		return first
	}
	if i := slices.IndexFunc(parts, func(v engine.Verdict) bool { return v.Rule != nil }); i >= 0 {
		return &parts[i]
	}
	return nil
}

// note writes a decision into a span: the first as attributes, further ones of a
// batch as events.
func note(span trace.Span, door engine.Door, domain string, outcome engine.Outcome, v *engine.Verdict) {
	about := []attribute.KeyValue{
		doorKey.String(door.String()), domainKey.String(strings.ToValidUTF8(domain, "\uFFFD")), outcomeKey.String(outcome.String()),
	}
	if v != nil {
		about = append(about, reasonKey.String(v.Decision.Reason.String()))
		if v.Rule != nil {
			about = append(about, ruleKey.String(v.Rule.Name))
		}
	}
	if s, ok := span.(sdktrace.ReadOnlySpan); ok && slices.ContainsFunc(s.Attributes(), func(kv attribute.KeyValue) bool { return kv.Key == outcomeKey }) {
		span.AddEvent("decision", trace.WithAttributes(about...))
		return
	}
	span.SetAttributes(about...)
}

// Store wraps next so that its calls are child spans of the request, if that is
// recorded. kind is the kind of store, such as redis.
func (t *Telemetry) Store(next headgate.Store, kind string) headgate.Store {
	if t == nil || t.tracer == nil {
		return next
	}
	about := []attribute.KeyValue{storeKey.String(kind)}
	s := &spanned{Store: next, tracer: t.tracer, kind: trace.SpanKindInternal}
	if kind == "redis" {
		about, s.kind = append(about, semconv.DBSystemNameRedis), trace.SpanKindClient
	}
	s.about = trace.WithAttributes(about...)
	if p, ok := next.(store.Pipeliner); ok {
		return &pipeliner{spanned: s, next: p}
	}
	return s
}

// pipeliner is a spanned store.Pipeliner.
type pipeliner struct {
	*spanned

	next store.Pipeliner
}

// Pipeline implements store.Pipeliner.
func (s *pipeliner) Pipeline(ctx context.Context, ops []headgate.Op, out []headgate.Decision, groups []store.Group) {
	if !trace.SpanFromContext(ctx).IsRecording() {
		s.next.Pipeline(ctx, ops, out, groups)
		return
	}
	ctx, span := s.tracer.Start(ctx, "store pipeline", trace.WithSpanKind(s.kind), s.about)
	span.SetAttributes(opsKey.Int(len(ops)))
	s.next.Pipeline(ctx, ops, out, groups)
	var err error
	for i := range groups {
		if err = groups[i].Err; err != nil {
			break
		}
	}
	end(span, err)
}

// spanned is a store whose calls are spans.
type spanned struct {
	headgate.Store

	tracer trace.Tracer
	kind   trace.SpanKind
	about  trace.SpanStartEventOption
}

// KeyTimes implements headgate.KeyTimer, without a span.
func (s *spanned) KeyTimes(ctx context.Context, op headgate.Op) (headgate.KeyTimes, error) {
	return store.KeyTimes(ctx, s.Store, op)
}

func (s *spanned) Take(ctx context.Context, op headgate.Op) (headgate.Decision, error) {
	if !trace.SpanFromContext(ctx).IsRecording() {
		return s.Store.Take(ctx, op)
	}
	ctx, span := s.tracer.Start(ctx, "store "+op.Kind.String(), trace.WithSpanKind(s.kind), s.about)
	d, err := s.Store.Take(ctx, op)
	end(span, err)
	return d, err
}

func (s *spanned) Do(ctx context.Context, ops []headgate.Op, out []headgate.Decision, mode headgate.Mode) error {
	if !trace.SpanFromContext(ctx).IsRecording() {
		return s.Store.Do(ctx, ops, out, mode)
	}
	ctx, span := s.tracer.Start(ctx, "store batch", trace.WithSpanKind(s.kind), s.about)
	span.SetAttributes(opsKey.Int(len(ops)))
	err := s.Store.Do(ctx, ops, out, mode)
	end(span, err)
	return err
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
