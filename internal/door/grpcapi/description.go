package grpcapi

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	headgatev1 "github.com/headgate/headgate/api/headgate/v1"
	"github.com/headgate/headgate/internal/door/described"
	"github.com/headgate/headgate/internal/request/token"
)

// Description returns the service description for a gRPC server. The server's codec
// must let messages with ReadWire read themselves, as that of package grpcserver does.
func (s *Service) Description() *grpc.ServiceDesc {
	d := headgatev1.Limiter_ServiceDesc
	d.Methods = slices.Clone(d.Methods)
	for i := range d.Methods {
		d.Methods[i].Handler = s.guarded(d.Methods[i].Handler)
	}
	return &d
}

// guarded calls next for callers with a valid token. As in net/http, a panic in one
// request does not end the process. The call does not end with its caller, or at the
// deadline that a client of the caller has chosen: the store's own time-out applies.
func (s *Service) guarded(next grpc.MethodHandler) grpc.MethodHandler {
	return func(server any, ctx context.Context, read func(any) error, interceptor grpc.UnaryServerInterceptor) (out any, err error) {
		defer func() {
			if p := recover(); p != nil {
				s.options.Logger.ErrorContext(ctx, "call failed", "panic", p)
				out, err = nil, grpcstatus.Error(codes.Internal, "internal error")
			}
		}()
		if !s.knows(ctx) {
			return nil, grpcstatus.Error(codes.Unauthenticated, "the API token is missing or wrong")
		}
		return next(server, context.WithoutCancel(ctx), func(message any) error { return readWith(read, message) }, interceptor)
	}
}

// readWith reads a message. If it cannot be read, that is the caller's mistake; gRPC
// itself would blame the server.
func readWith(read func(any) error, message any) error {
	m, ok := message.(proto.Message)
	if !ok {
		return fmt.Errorf("the message is %T", message)
	}
	r := reader{message: m}
	if err := read(&r); err != nil {
		return err // such as a message that is too large
	}
	if errors.Is(r.err, errManyChecks) {
		return wrong(r.err)
	}
	if r.err != nil {
		return wrong(fmt.Errorf("the request could not be read: %w", r.err))
	}
	return nil
}

// reader reads a message and keeps the error.
type reader struct {
	message proto.Message
	err     error
}

// The approximate memory of a call while it is answered: a check of two bytes on the
// wire becomes a check to match rules against, with its verdict and answer.
const (
	checkCost = 2 << 10
	byteCost  = 16

	checksField = 1 // of CheckBatchRequest
)

// Weigh implements grpcserver.Reader.
func (r *reader) Weigh(data []byte, size int) int64 {
	checks := 0
	switch {
	case !r.isBatch():
	case data == nil:
		checks = min(size/2, described.MaxChecks)
	default:
		checks = described.Elements(data, checksField, described.MaxChecks)
	}
	return int64(checks)*checkCost + int64(size)*byteCost
}

// ReadWire implements grpcserver.Reader.
func (r *reader) ReadWire(data []byte) {
	// Do not decode too many checks: each takes many times its size on the wire.
	if r.isBatch() && described.Elements(data, checksField, described.MaxChecks+1) > described.MaxChecks {
		r.err = errManyChecks
		return
	}
	r.err = proto.Unmarshal(data, r.message)
}

func (r *reader) isBatch() bool {
	_, yes := r.message.(*headgatev1.CheckBatchRequest)
	return yes
}

// knows reports whether the caller has a valid token, and counts wrong tokens.
func (s *Service) knows(ctx context.Context) bool {
	if s.options.Tokens.Empty() {
		return true
	}
	told, _ := metadata.FromIncomingContext(ctx)
	authorization, field := first(told.Get("authorization")), first(told.Get(token.Header))
	known := s.options.Tokens.KnowsValues(authorization, field)
	if !known && (authorization != "" || field != "") {
		remote := ""
		if p, ok := peer.FromContext(ctx); ok {
			remote = p.Addr.String()
		}
		s.options.Failures.Note(remote)
	}
	return known
}

func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}

// Spared reports whether a method is answered even during overload. Ending a lease or
// reservation frees resources, and renewing a lease keeps its slot from being lost.
func Spared(method string) bool {
	switch method {
	case headgatev1.Limiter_Commit_FullMethodName, headgatev1.Limiter_Cancel_FullMethodName,
		headgatev1.Limiter_Report_FullMethodName, headgatev1.Limiter_Release_FullMethodName, headgatev1.Limiter_Renew_FullMethodName:
		return true
	}
	return false
}
