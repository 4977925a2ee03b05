package grpclimit_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/middleware/grpclimit"
)

// Handlers of calls and streams read from the context which limits mark them.
func TestHandlersSeeSoftLimits(t *testing.T) {
	var seen []string
	see := func(ctx context.Context) { seen = append(seen, fmt.Sprint(grpclimit.Soft(ctx))) }
	options := []grpclimit.Option{
		grpclimit.Name("tokens"), grpclimit.SoftAt(0.5), grpclimit.Also(headgate.PerDay(1), grpclimit.Name("fair-use"), grpclimit.OnlyMark()),
	}
	limiter, _ := newLimiter()
	unary := grpclimit.UnaryServer(limiter, headgate.PerDay(4), options...)
	limiter, _ = newLimiter()
	stream := grpclimit.StreamServer(limiter, headgate.PerDay(4), options...)
	limiter, _ = newLimiter()
	client := grpclimit.UnaryClient(limiter, headgate.PerDay(4), options...)
	for kind, send := range map[string]func() error{
		"unary": func() error {
			_, err := unary(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: method}, func(ctx context.Context, _ any) (any, error) {
				see(ctx)
				return nil, nil //nolint:nilnil // an empty answer
			})
			return err
		},
		"stream": func() error {
			return stream(nil, serverStream{ctx: t.Context()}, &grpc.StreamServerInfo{FullMethod: method}, func(_ any, s grpc.ServerStream) error {
				see(s.Context())
				return nil
			})
		},
		"client": func() error {
			return client(t.Context(), method, nil, nil, nil, func(ctx context.Context, _ string, _, _ any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
				see(ctx)
				return nil
			})
		},
	} {
		seen = nil
		for i := range 5 {
			if err := send(); (status.Code(err) == codes.ResourceExhausted) != (i == 4) {
				t.Errorf("%s, call %d: %v", kind, i, err)
			}
		}
		const want = "[[] [fair-use] [tokens fair-use] [tokens fair-use]]"
		if fmt.Sprint(seen) != want {
			t.Errorf("%s: %v, want %s", kind, seen, want)
		}
	}
	if err := grpclimit.Validate(limiter, headgate.PerDay(4), grpclimit.SoftAt(2)); err == nil || errors.Is(err, headgate.ErrInvalidLimit) {
		t.Error(err)
	}
}
