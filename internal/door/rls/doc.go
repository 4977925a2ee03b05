// Package rls is the rate limit service of Envoy:
// envoy.service.ratelimit.v3.RateLimitService over gRPC, and POST /json, its
// form in JSON. Proxies that speak it (Envoy, Istio, Envoy Gateway, Contour,
// Emissary) use it in place of envoyproxy/ratelimit.
//
// Messages are read and written here, by hand and without allocating for each
// field, since a decision takes less time than protobuf's reflection. Package
// go-control-plane says what they mean: tests hold the two together.
//
// The contract is in docs/grpc.md.
package rls
