// Package grpclimit adds rate limits to gRPC: [UnaryServer] and [StreamServer] are
// interceptors that limit the calls of a server; [UnaryClient] and [StreamClient]
// keep a client within a limit.
//
//	limiter := headgate.New(memory.New())
//	limit := headgate.PerSecond(100).WithBurst(500)
//	byKey := grpclimit.ByMetadata("x-api-key")
//	server := grpc.NewServer(
//		grpc.ChainUnaryInterceptor(grpclimit.UnaryServer(limiter, limit, byKey)),
//		grpc.ChainStreamInterceptor(grpclimit.StreamServer(limiter, limit, byKey)),
//	)
//
// A refusal is RESOURCE_EXHAUSTED with google.rpc.RetryInfo, which [RetryAfter]
// reads, and google.rpc.QuotaFailure, which names the limits. It is UNAVAILABLE if
// the store could not answer (headgate.FailClosed), or what is left is kept for others
// ([Headroom]).
//
// With headgate.Concurrent, a call holds its slots until it ends, and a stream until
// it is closed.
//
// Calls that do not identify themselves share one count, so leaving out a key does
// not avoid the limit.
package grpclimit
