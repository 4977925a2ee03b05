// Package grpclimit puts limits into gRPC: [UnaryServer] and [StreamServer]
// are interceptors that limit the calls of a server, [UnaryClient] and
// [StreamClient] make a client keep to a limit.
//
//	limiter := headgate.New(memory.New())
//	limit := headgate.PerSecond(100).Burst(500)
//	byKey := grpclimit.ByMetadata("x-api-key")
//	server := grpc.NewServer(
//		grpc.ChainUnaryInterceptor(grpclimit.UnaryServer(limiter, limit, byKey)),
//		grpc.ChainStreamInterceptor(grpclimit.StreamServer(limiter, limit, byKey)),
//	)
//
// A refusal is RESOURCE_EXHAUSTED with google.rpc.RetryInfo, which says when
// the same call would pass, and google.rpc.QuotaFailure, which names the
// limits; [RetryAfter] reads it. One because the store could not answer
// (headgate.FailureDeny) is UNAVAILABLE.
//
// Of limits of headgate.Concurrent a call holds its places until it is over, a
// stream until it ends, however that is.
//
// Calls that do not say who they are share one count: leaving out a key never
// leaves out the limit.
package grpclimit
