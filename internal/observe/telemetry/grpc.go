package telemetry

import (
	"context"
	"strings"

	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	rpc "google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/grpc"
	grpccodes "google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"
)

// Interceptor makes each gRPC call a span that continues the trace of its traceparent;
// nil without traces. Calls of health and reflection have no span.
func (t *Telemetry) Interceptor() grpc.UnaryServerInterceptor {
	if t == nil || t.tracer == nil {
		return nil
	}
	return func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		if strings.HasPrefix(info.FullMethod, "/grpc.") {
			return handle(ctx, request)
		}
		method := strings.TrimPrefix(info.FullMethod, "/")
		ctx, span := t.tracer.Start(t.propagator.Extract(ctx, incoming{ctx}), method, trace.WithSpanKind(trace.SpanKindServer))
		defer span.End()
		response, err := handle(ctx, request)
		if span.IsRecording() {
			code := grpcstatus.Code(err)
			name := rpc.Code(code).String() // such as DEADLINE_EXCEEDED, where gRPC for Go says DeadlineExceeded
			span.SetAttributes(semconv.RPCSystemNameGRPC, semconv.RPCMethod(method), semconv.RPCResponseStatusCode(name))
			if isFault(code) {
				span.SetAttributes(semconv.ErrorTypeKey.String(name))
				span.SetStatus(codes.Error, "")
			}
		}
		return response, err
	}
}

// isFault reports whether a status is a server error, by the semantic conventions.
func isFault(code grpccodes.Code) bool {
	switch code {
	case grpccodes.Unknown, grpccodes.DeadlineExceeded, grpccodes.Unimplemented, grpccodes.Internal,
		grpccodes.Unavailable, grpccodes.DataLoss:
		return true
	default:
		return false
	}
}

// incoming is a read-only propagation.TextMapCarrier of a call's metadata.
type incoming struct {
	ctx context.Context // it lives as long as the call
}

// Get implements propagation.TextMapCarrier.
func (c incoming) Get(name string) string {
	if values := metadata.ValueFromIncomingContext(c.ctx, name); len(values) > 0 {
		return values[0]
	}
	return ""
}

// Set implements propagation.TextMapCarrier; it does nothing.
func (incoming) Set(string, string) {}

// Keys implements propagation.TextMapCarrier.
func (incoming) Keys() []string { return nil }
