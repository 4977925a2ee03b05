// Package common is added to the package of this name in a copy of envoyproxy/ratelimit (see
// TestIntegration).
package common

import (
	envoy "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"
)

// Comparable returns an answer without what only Headgate's refusals have: a body and its
// header fields (docs/connect/envoy.md).
func Comparable(m proto.Message) proto.Message {
	if r, ok := m.(*envoy.RateLimitResponse); ok && r.GetOverallCode() == envoy.RateLimitResponse_OVER_LIMIT {
		r = proto.CloneOf(r)
		r.RawBody, r.ResponseHeadersToAdd = nil, nil
		return r
	}
	return m
}
