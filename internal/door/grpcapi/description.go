package grpcapi

import (
	"context"
	"fmt"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"

	headgatev1 "github.com/headgate/headgate/api/headgate/v1"
	"github.com/headgate/headgate/internal/token"
)

// Description is what a gRPC server has to know to serve s.
func (s *Service) Description() *grpc.ServiceDesc {
	d := headgatev1.Limiter_ServiceDesc
	d.Methods = slices.Clone(d.Methods)
	for i := range d.Methods {
		d.Methods[i].Handler = s.guarded(d.Methods[i].Handler)
	}
	return &d
}

// guarded lets next answer callers who may ask. A message that cannot be read is
// the caller's mistake, which gRPC takes for the server's; and, as with net/http,
// one request that goes wrong does not end the process.
func (s *Service) guarded(next grpc.MethodHandler) grpc.MethodHandler {
	return func(server any, ctx context.Context, read func(any) error, interceptor grpc.UnaryServerInterceptor) (out any, err error) { //nolint:revive // as grpc.MethodHandler wants it
		defer func() {
			if p := recover(); p != nil {
				s.options.Logger.ErrorContext(ctx, "call failed", "panic", p)
				out, err = nil, grpcstatus.Error(codes.Internal, "internal error")
			}
		}()
		if !s.knows(ctx) {
			return nil, grpcstatus.Error(codes.Unauthenticated, "the token of the API is missing or wrong")
		}
		return next(server, ctx, func(message any) error {
			if err := read(message); err != nil {
				return wrong(fmt.Errorf("the request could not be read: %s", grpcstatus.Convert(err).Message()))
			}
			return nil
		}, interceptor)
	}
}

// knows reports whether the caller may ask.
func (s *Service) knows(ctx context.Context) bool {
	if s.options.Tokens.Empty() {
		return true
	}
	told, _ := metadata.FromIncomingContext(ctx)
	return s.options.Tokens.KnowsValues(first(told.Get("authorization")), first(told.Get(token.Header)))
}

func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}
