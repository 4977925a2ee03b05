package engine

import (
	"context"

	"github.com/headgate/headgate/internal/base/enum"
)

// Observer receives every decision, for metrics and events. Its methods are called
// concurrently while requests wait, and must not block. Their arguments are valid until
// they return.
type Observer interface {
	// Deciding is called before a decision about a request at time at. Its result is
	// passed on as Mark.Start: when the decision started, in the Observer's own unit,
	// or 0 not to measure this one.
	Deciding(at int64, lane uint32) (start int64)
	// Decided is called before Decide returns v and err.
	Decided(ctx context.Context, m Mark, q Query, v Verdict, err error)
	// DecidedAll is called before DecideAll returns v and err. The parts of v
	// correspond to those of q.
	DecidedAll(ctx context.Context, m Mark, q MultiQuery, v MultiVerdict, err error)
}

// Mark identifies one decision.
type Mark struct {
	Start int64 // the result of Observer.Deciding
	// Lane is a number that concurrent decisions on different cores rarely share, so
	// that counters per lane are rarely contended. Lanes start at 1; there are about as
	// many as cores.
	Lane uint32
}

// Door is where a request came in.
type Door uint8

// The doors.
const (
	DoorNone        Door = iota // the caller did not say
	DoorAPI                     // POST /v1/check
	DoorGRPC                    // Envoy's rate limit service, over gRPC or as JSON
	DoorRESP                    // the Redis protocol
	DoorForwardAuth             // /v1/auth, for proxies that check before they forward
	DoorProxy                   // the reverse proxy
	DoorGRPCAPI                 // headgate.v1.Limiter, the API over gRPC
	Doors                       // number of doors
)

// String returns the name that metrics use, such as forward_auth.
func (d Door) String() string {
	return enum.Name(d, "door", "none", "api", "grpc", "resp", "forward_auth", "proxy", "grpc_api")
}

// Both returns an Observer that reports every decision to first and then to second.
// first measures durations: second's Deciding is not called, and its Mark has the
// result of first.
func Both(first, second Observer) Observer { return &both{first, second} }

type both struct{ first, second Observer }

// Deciding implements [Observer].
func (b *both) Deciding(at int64, lane uint32) (start int64) { return b.first.Deciding(at, lane) }

// Decided implements [Observer].
func (b *both) Decided(ctx context.Context, m Mark, q Query, v Verdict, err error) {
	b.first.Decided(ctx, m, q, v, err)
	b.second.Decided(ctx, m, q, v, err)
}

// DecidedAll implements [Observer].
func (b *both) DecidedAll(ctx context.Context, m Mark, q MultiQuery, v MultiVerdict, err error) {
	b.first.DecidedAll(ctx, m, q, v, err)
	b.second.DecidedAll(ctx, m, q, v, err)
}
